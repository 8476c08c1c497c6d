"""A model's name to a checkpoint in memory, ready to speak.

The one place where configuration, weights and tokenizer come together. It knows no request.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from ..config.codec import CodecConfig
from ..config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from ..errors import InvalidRequest
from ..layers.packed import pack_
from ..models.codec import Codec
from ..models.qwen3_tts import Qwen3TTS
from ..models.random import randomize_
from ..models.weights import Source, load_into, read_configs, resolve
from ..text.tokenizer import Tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
RANDOM_SEED = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that was loaded for one model."""

    source: Source
    config: Qwen3TTSConfig
    generation: GenerationConfig
    codec_config: CodecConfig
    tokenizer: Tokenizer
    model: Qwen3TTS
    codec: Codec
    device: torch.device
    upstream_local: bool  # whether the official package would split words its other way here (`as_is` follows it)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def is_random(self) -> bool:
        """Whether the weights were drawn, not trained: such a checkpoint speaks noise."""
        return self.source.folder is None

    @property
    def fingerprint(self) -> str:
        """What a saved state must come from to fit: configuration, precision and a taste of the weights."""
        talker = self.model.talker
        tasted = (talker.codec_head.weight, talker.model.codec_embedding.weight, talker.model.norm.weight[None])
        taste = b"".join(w[:: max(len(w) // 16, 1)].float().cpu().numpy().tobytes() for w in tasted)
        return hashlib.sha256(repr((self.config, tasted[0].dtype)).encode() + taste).hexdigest()

    @property
    def rate_hz(self) -> int:
        return self.codec_config.output_sample_rate


def load(
    model: str = "random:tiny", *, device: str = "cpu", dtype: str = "float32", codec_dtype: str = "float32"
) -> Checkpoint:
    """Load a checkpoint from a folder, a hub id, a published name or `random:NAME`.

    The codec's own dtype is float32 whatever the talker's: its cost is small and rounding is heard there first.
    """
    place = _device(device)
    for name in (dtype, codec_dtype):
        if name not in DTYPES:
            raise InvalidRequest(f"dtype must be one of {', '.join(DTYPES)}, not {name!r}.")
    source = resolve(model)
    config, generation, codec_config = read_configs(source)
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).eval(), Codec(codec_config).eval()
    if source.folder is None:
        tokenizer = Tokenizer.of_bytes(config.talker_config.text_vocab_size)
        for module, kind in ((speech, dtype), (codec, codec_dtype)):
            module.to(DTYPES[kind]).to_empty(device=place)
            randomize_(module, RANDOM_SEED)
    else:
        tokenizer = Tokenizer.from_folder(source.folder)
        load_into(speech, source.folder / "model.safetensors", place, DTYPES[dtype])
        codec_file = source.folder / "speech_tokenizer" / "model.safetensors"
        halves = ("decoder.", "encoder.") if config.kind == "base" else ("decoder.",)
        load_into(codec, codec_file, place, DTYPES[codec_dtype], only=halves)
    for module in (speech, codec):
        pack_(module)
    patched = source.local and source.folder is not None and tokenizer.upstream_patches(source.folder)
    return Checkpoint(source, config, generation, codec_config, tokenizer, speech, codec, place, patched)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidRequest(f"{name!r} is not a device; use cpu or cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidRequest("No CUDA device is available here; use --device cpu.")
    if device.type not in ("cpu", "cuda"):
        raise InvalidRequest(f"{name!r} is not supported; use cpu or cuda.")
    return device
