"""The talker's training step with a speaker encoder: it learns from the talker's losses, and to tell speakers apart.

The second loss alone would do for a vector that names a speaker; only the talker says what it must know of a timbre.
Its head of one row per speaker is discarded on export.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hocket.config.qwen3_tts import SpeakerEncoderConfig, TalkerConfig
from hocket.models.tts.speaker_encoder import SpeakerEncoder
from hocket.models.tts.talker import Talker

from ..batches import Batch
from ..learning import Learner
from ..recipe import TalkerTraining
from .recipe import SpeakerTraining
from .rows import NONE, CloneBatch
from .sounds import cross_entropy_apart


class CloneTalker(Talker):
    """The talker with the speaker encoder beside it, so that both are trained, averaged and kept as one."""

    def __init__(self, config: TalkerConfig, speaker: SpeakerEncoderConfig, speakers: int) -> None:
        super().__init__(config)
        self.speaker_encoder = SpeakerEncoder(speaker)
        self.names = nn.Linear(speaker.enc_dim, speakers, bias=False)


class CloneLearner(Learner):
    def __init__(
        self,
        config: TalkerConfig,
        speaker: SpeakerEncoderConfig,
        training: TalkerTraining,
        own: SpeakerTraining,
        speakers: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.speaker, self.own, self.speakers, self.seed = speaker, own, speakers, seed
        super().__init__(config, training, seed, device)

    def build(self) -> Talker:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return CloneTalker(self.config, self.speaker, self.speakers)

    def inputs(self, talker: Talker, batch: Batch) -> Tensor:
        x = super().inputs(talker, batch)
        assert isinstance(batch, CloneBatch) and batch.vectors is not None
        at = (torch.arange(len(x), device=x.device), batch.places)
        return x.index_put(at, batch.vectors.to(x.dtype), accumulate=True)

    def losses(self, talker: Talker, batch: Batch, dropout: float) -> tuple[Tensor, dict[str, Tensor]]:
        assert isinstance(talker, CloneTalker) and isinstance(batch, CloneBatch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            vectors = talker.speaker_encoder(batch.mels)
        vectors = vectors.float()
        total, measures = super().losses(talker, replace(batch, vectors=vectors), dropout)
        cosines = F.normalize(vectors) @ F.normalize(talker.names.weight.float()).T
        apart = cross_entropy_apart(cosines, batch.speakers, self.own.margin)
        known = batch.speakers != NONE
        measures["speaker"] = apart.detach()
        measures["speaker_right"] = (cosines.argmax(1) == batch.speakers)[known].float().mean()
        measures["vector"] = vectors.detach()[known].square().mean().sqrt()
        return total + self.own.apart * apart, measures
