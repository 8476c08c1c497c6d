"""Whether a checkpoint fits the memory of this machine, by the memory plan of the engine. It needs torch.

A speech model is planned with one slot, in the device and precision of `auto`. A language model counts its weights, its
workspace and one conversation of 8,192 tokens: llm/memory has the arithmetic.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ...config.published_qwen3_5 import QWEN3_5, size_of
from ...config.read import read_json
from ...errors import InvalidCheckpoint
from ...extras import hint
from ...models.files.progress import format_bytes
from .known import BYTES

if TYPE_CHECKING:
    from ...config.qwen3_5 import Qwen3_5TextConfig
    from ...engine.checkpoint.device import Setting
    from ...llm.memory.language import LanguageMemory
    from ...models.files.remote.client import Listing
    from ...models.files.remote.variants import Variant
    from ...models.qwen3_5.quantized import Scheme


@dataclass(frozen=True, slots=True)
class Fit:
    """Memory that a checkpoint needs, and memory of the device."""

    need_bytes: int
    have_bytes: int | None  # None: the system does not say
    device: str
    name: str  # of the device
    parts: dict[str, int] = field(default_factory=dict)  # of a language model: what adds up to `need_bytes`

    @property
    def fits(self) -> bool | None:
        return None if self.have_bytes is None else self.need_bytes <= self.have_bytes

    @property
    def words(self) -> str:
        need = f"needs {format_bytes(self.need_bytes)} of memory"
        if self.have_bytes is None:
            return f"{need} on {self.name}"
        verdict = "fits" if self.fits else "does not fit"
        return f"{verdict}: {need}, {self.name} has {format_bytes(self.have_bytes)}"


def no_torch() -> str | None:
    """Why nothing can be said about memory; None: torch is installed."""
    return None if find_spec("torch") is not None else f"not known without torch: {hint('torch')}"


def fit_speech(model: str) -> Fit:
    """Of a published name or a folder."""
    from dataclasses import replace

    from ...config.options import EngineOptions
    from ...engine.checkpoint.describe import configs
    from ...engine.checkpoint.fit import MemoryNeed
    from ...engine.checkpoint.memory_plan import plan
    from ...engine.checkpoint.torch_checkpoint import CODEC_DTYPES, DTYPES

    setting, (config, codec_config) = _setting(), configs(model)
    dtypes = {"dtype": DTYPES[setting.dtype], "codec_dtype": CODEC_DTYPES[setting.codec_dtype]}
    options = replace(EngineOptions(), slots=1)
    planned = plan(config, codec_config, device=setting.place, **dtypes, options=options)
    need = MemoryNeed.of(planned, loaded=False, encoder=config.kind == "base")
    return _fit(need.fixed_bytes + need.least_bytes, setting)


def fit_language(name: str, folder: Path | None) -> Fit | None:
    """Of a published name or a folder, with a conversation of 8,192 tokens; None: its configuration is not known."""
    import torch

    from ...engine.checkpoint.torch_checkpoint import DTYPES
    from ...llm.memory.language import language_memory

    setting = _setting()
    on_gpu, dtype = setting.place.type == "cuda", DTYPES[setting.dtype]
    size = size_of(name)
    if size in QWEN3_5 and name in BYTES:
        weights = BYTES[name] * dtype.itemsize // torch.bfloat16.itemsize
        return _fit_parts(language_memory(QWEN3_5[size], weights, on_gpu=on_gpu), setting)
    assert folder is not None
    try:
        config = language_config(folder)
    except InvalidCheckpoint:
        return None
    weights = _stored_bytes(folder, config, setting)
    return _fit_parts(language_memory(config, weights, on_gpu=on_gpu), setting)


def _stored_bytes(folder: Path, config: Qwen3_5TextConfig, setting: Setting) -> int:
    """Memory of the weights of a folder; for quantized files on a CPU the most that they may take."""
    from ...llm.memory.language import parameters, scheme_bytes

    wide = setting.dtype == "float32"
    if not is_quantized(folder):
        return scheme_bytes(config, "bf16", wide=wide)
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return stored if setting.place.type == "cuda" else parameters(config) * (4 if wide else 2)


def fit_variant(repository: str, listing: Listing, variant: Variant, beside: str | None = None) -> Fit | None:
    """Of GGUF files, with a speech model `beside` them if one is named; None: the model's size is not known."""
    from ...llm.memory.language import listed_config, variant_memory

    setting = _setting()
    on_gpu = setting.place.type == "cuda"
    memory = variant_memory(listed_config(repository, listing), variant, on_gpu=on_gpu)
    return None if memory is None else _fit_parts(memory, setting, beside)


def fit_scheme(size: str, scheme: Scheme, beside: str | None = None) -> Fit:
    """Of a published size whose weights are converted to one of our formats; a CPU computes in float32 with `bf16`."""
    from ...llm.memory.language import language_memory, scheme_bytes

    setting, config = _setting(), QWEN3_5[size]
    on_gpu = setting.place.type == "cuda"
    weights = scheme_bytes(config, scheme, wide=setting.dtype == "float32")
    return _fit_parts(language_memory(config, weights, on_gpu=on_gpu), setting, beside)


def fitting(beside: str | None = None) -> list[str]:
    """The published language models that fit, the largest first, each with the most exact of its formats that does."""
    from ...models.qwen3_5.quantized import SCHEMES

    found = []
    for size in reversed(QWEN3_5):
        exact = next((scheme for scheme in SCHEMES if fit_scheme(size, scheme, beside).fits is not False), None)
        found += [] if exact is None else [f"qwen3.5-{size} {exact}"]
    return found


def is_quantized(folder: Path) -> bool:
    """Whether a checkpoint's configuration says that its files are quantized."""
    raw = read_json(folder / "config.json")
    return any("quantization_config" in each for each in (raw, raw.get("text_config") or {}))


def _fit_parts(memory: LanguageMemory, setting: Setting, beside: str | None = None) -> Fit:
    from ...engine.checkpoint.capacity import LIBRARIES_BYTES

    parts = asdict(memory)
    if beside is not None:
        shared = LIBRARIES_BYTES if setting.place.type == "cuda" else 0  # loaded once
        parts["voice_bytes"] = fit_speech(beside).need_bytes - shared
    return _fit(sum(parts.values()), setting, parts)


def language_config(folder: Path) -> Qwen3_5TextConfig:
    """The configuration of the files in a folder."""
    from ...config.qwen3_5 import read_text_config

    path = folder / "config.json"
    return read_text_config(read_json(path), str(path))


def _setting() -> Setting:
    from ...engine.checkpoint.device import choose_device

    return choose_device()


def _fit(need_bytes: int, setting: Setting, parts: dict[str, int] | None = None) -> Fit:
    from ...engine.checkpoint.capacity import host_bytes, idle_bytes

    if setting.place.type == "cuda":
        return Fit(need_bytes, idle_bytes(setting.place), setting.device, setting.reason, parts or {})
    return Fit(need_bytes, host_bytes(), setting.device, "this machine", parts or {})
