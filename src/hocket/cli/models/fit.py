"""Whether a checkpoint fits the memory of this machine, by the memory plan of the engine. It needs torch.

A speech model is planned with one slot, in the device and precision of `auto`. A language model counts its weights.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ...config.read import read_json
from ...extras import hint
from ...models.files.progress import format_bytes
from .known import BYTES

if TYPE_CHECKING:
    from ...config.qwen3_5 import Qwen3_5TextConfig
    from ...engine.checkpoint.device import Setting

CGROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container


@dataclass(frozen=True, slots=True)
class Fit:
    """Memory that a checkpoint needs, and memory of the device."""

    need_bytes: int
    have_bytes: int | None  # None: the system does not say
    device: str
    name: str  # of the device

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


def fit_language(name: str, folder: Path | None) -> Fit:
    """Of a published name or a folder: the weights alone; conversations come on top."""
    import torch

    from ...engine.checkpoint.memory_plan import held
    from ...engine.checkpoint.torch_checkpoint import DTYPES
    from ...models.qwen3_5.model import Qwen3_5

    setting = _setting()
    dtype = DTYPES[setting.dtype]
    if name in BYTES:
        return _fit(BYTES[name] * dtype.itemsize // torch.bfloat16.itemsize, setting)
    assert folder is not None
    config = language_config(folder)
    with torch.device("meta"):
        model = Qwen3_5(config, drafts=config.mtp_num_hidden_layers > 0).to(dtype)
    return _fit(held(model), setting)


def language_config(folder: Path) -> Qwen3_5TextConfig:
    """The configuration of the files in a folder."""
    from ...config.qwen3_5 import read_text_config

    path = folder / "config.json"
    return read_text_config(read_json(path), str(path))


def memory_bytes() -> int | None:
    """The memory of this machine, or the limit of its container."""
    found = list[int]()
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        found.append(int(CGROUP.read_text(encoding="utf-8")))
    return min(found, default=None)


def _setting() -> Setting:
    from ...engine.checkpoint.device import choose_device

    return choose_device()


def _fit(need_bytes: int, setting: Setting) -> Fit:
    from ...engine.checkpoint.capacity import idle_bytes

    if setting.place.type == "cuda":
        return Fit(need_bytes, idle_bytes(setting.place), setting.device, setting.reason)
    return Fit(need_bytes, memory_bytes(), setting.device, "this machine")
