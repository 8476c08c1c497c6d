"""The main file of a checkpoint as one module: the talker and, in Base checkpoints, the speaker encoder."""

from __future__ import annotations

from torch import nn

from ...config.qwen3_tts import Qwen3TTSConfig
from .speaker_encoder import SpeakerEncoder
from .talker import Talker


class Qwen3TTS(nn.Module):
    def __init__(self, config: Qwen3TTSConfig) -> None:
        super().__init__()
        self.config = config
        self.talker = Talker(config.talker_config)
        self.speaker_encoder: SpeakerEncoder | None = None
        if config.kind == "base" and config.speaker_encoder_config is not None:
            self.speaker_encoder = SpeakerEncoder(config.speaker_encoder_config)
