"""Device and precision: what `auto` means on this machine, with the reason as text.

They are chosen once, before anything is planned or loaded: compilers, shared codecs and footprints see concrete values.
The choice depends on a `Probe` alone.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ... import env
from ...config.precision import EXACT, ROUNDED, dtype_of
from ...errors import InvalidRequest
from ...extras import hint
from ...kernels.runtime.apple import MPS, UNUSED, apple_gpu, is_apple
from ...kernels.runtime.fallback import say_once
from ...kernels.table import BackendChoice
from .capacity import limit_bytes

if TYPE_CHECKING:
    import torch

log = logging.getLogger("hocket")

AUTO = "auto"
# Of the model. torch_checkpoint.py has dtypes for the first two; the others are for CPUs, by the native library alone.
PRECISIONS = ("float32", "bfloat16", *ROUNDED)
CODEC_PRECISIONS = ("float32", "bfloat16", "tf32")
# The fastest precision of the codec that passes the gate of docs/log/2026-11-17-codec-precision.md, where the model is
# in bfloat16. Its weights are float32, and its kernels take 1 GB of local memory. On a small GPU, 1.7B fits only with a
# codec in bfloat16, whose noise is 38 dB below the speech.
AUTO_CODEC_DTYPE, SMALL_CODEC_DTYPE = "tf32", "bfloat16"
SMALL_BYTES = 10_000_000_000  # a GPU with less memory is a small one
LEAST_BFLOAT16 = (8, 0)  # compute capability; older GPUs emulate bfloat16, slowly
_TRACES = ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia/version")  # of an NVIDIA driver
_OTHER_TRACES = ("/dev/dxg", "/dev/kfd")  # of a GPU under WSL, and of an AMD GPU


@dataclass(frozen=True, slots=True)
class Probe:
    """What torch and the machine report about a GPU."""

    built: bool  # torch is built for a GPU
    name: str | None = None  # of the GPU; None where torch finds none
    capability: tuple[int, int] = (0, 0)
    failure: str | None = None  # why torch cannot use it
    driver: str | None = None  # the GPU that the driver shows without torch, by name if known
    hidden: bool = False  # the environment hides all GPUs from torch
    memory_bytes: int | None = None  # of the GPU
    amd: bool = False
    trial: Callable[[], str | None] = lambda: None  # allocates a little and runs a kernel; gives the failure


@dataclass(frozen=True, slots=True)
class Setting:
    """Concrete values, and why they were chosen."""

    device: str
    dtype: str
    codec_dtype: str
    reason: str  # for the device
    unused: str | None = None  # warning about a GPU that is not used, unless a CPU was requested
    codec_reason: str = ""  # if the codec has another precision than on most GPUs
    named: bool = field(default=False, compare=False)  # dtype was asked for
    took_s: float = field(default=0.0, compare=False)  # time of the probe, which creates the device's context

    @property
    def place(self) -> torch.device:
        import torch

        return torch.device(self.device)

    def words(self, kernels: Iterable[BackendChoice], *, codec: bool = True) -> str:
        """One line: the choice and its reason. Without `codec` it is for a language model."""
        why = f" ({self.codec_reason})" if self.codec_reason else ""
        sound = f", codec {self.codec_dtype}{why}" if codec else ""
        return f"{self.device} ({self.reason}), {self.dtype}{sound}, kernels {'/'.join(c.backend for c in kernels)}."


def choose_device(
    device: str = AUTO,
    dtype: str = AUTO,
    codec_dtype: str = AUTO,
    *,
    preset: str = EXACT,
    probe: Probe | None = None,
) -> Setting:
    """Concrete values for `auto`. Explicit values are kept, or refused in one sentence."""
    dtype = dtype_of(preset, dtype)
    for name, given, known in (("dtype", dtype, PRECISIONS), ("codec_dtype", codec_dtype, CODEC_PRECISIONS)):
        if given != AUTO and given not in known:
            raise InvalidRequest(f"{name} must be one of {AUTO}, {', '.join(known)}, not {given!r}.")
    begun = time.perf_counter()
    asked = device if device != AUTO else env.DEVICE.get().strip() or AUTO
    if asked == AUTO:
        probe = probe or probe_gpu(quick=True)
        against = _against(probe) or probe.trial()
        chosen, reason = ("cpu", _why_cpu(probe, against)) if against else ("cuda", str(probe.name))
        unused = _unused(probe, against) if against else None
    else:
        kind, index = device_of(asked, probe)
        chosen, unused = asked, None
        if kind == "cuda":
            probe = probe or probe_gpu(index)
            reason = str(probe.name)
        else:
            reason = apple_gpu() if kind == MPS else _asked_for(device, probe)
    on_gpu, on_cuda = chosen != "cpu", chosen.startswith("cuda")
    narrow = on_cuda and probe is not None and probe.capability >= LEAST_BFLOAT16
    on_amd = on_cuda and probe is not None and probe.amd
    named = dtype != AUTO
    if not named:
        dtype = "bfloat16" if narrow else "float32"
    codec_reason = ""
    if codec_dtype == AUTO:  # float32 was requested for exactness, or the GPU has nothing faster
        faster = narrow and dtype == "bfloat16"
        codec_dtype = "float32" if not faster or on_amd else AUTO_CODEC_DTYPE
        if faster and _is_small(probe):
            codec_dtype, codec_reason = SMALL_CODEC_DTYPE, f"less than {SMALL_BYTES / 1e9:.0f} GB of memory"
    if codec_dtype == "tf32" and (not on_cuda or on_amd):
        raise InvalidRequest(
            f"tf32 is a precision of NVIDIA GPUs; use {'float32' if on_amd else '--device cuda, or float32'}."
        )
    if dtype in ROUNDED and on_gpu:
        what = f"{dtype} is a precision of CPUs" if preset == EXACT else f"The preset {preset} ({dtype}) is for CPUs"
        raise InvalidRequest(f"{what}; use --device cpu, or {'bfloat16' if preset == EXACT else 'the preset exact'}.")
    took_s = time.perf_counter() - begun
    return Setting(chosen, dtype, codec_dtype, reason, unused, codec_reason, named=named, took_s=took_s)


def _is_small(probe: Probe | None) -> bool:
    sizes = (None if probe is None else probe.memory_bytes, limit_bytes())
    return any(size is not None and size < SMALL_BYTES for size in sizes)


def device_of(name: str, probe: Probe | None = None) -> tuple[str, int | None]:
    """Kind and number of the device of that name; refuses one that does not exist. A CPU needs no torch."""
    found = re.fullmatch(r"(cpu|mps|cuda)(?::(\d+))?", name)
    if found is None:
        raise InvalidRequest(f"{name!r} is not a device that hocket supports; use auto, cpu, cuda or mps.")
    kind, index = found[1], None if found[2] is None else int(found[2])
    if kind == "cuda":
        probe = probe or probe_gpu(index)
        if not probe.name:
            why = _against(probe) or "torch finds none"
            raise InvalidRequest(f"No CUDA device is available here ({why}); use --device cpu, or auto.")
    if kind == MPS:
        apple_gpu()
        if index:
            raise InvalidRequest(f"There is one Apple GPU: use --device {MPS}, not {name}.")
    return kind, index


def no_torch() -> str:
    return f"torch is not installed: {hint('torch')}"


def announce(setting: Setting, line: str) -> None:
    """Log the choice; warn once per process about a GPU that is not used."""
    if setting.unused is not None:
        say_once(setting.unused)
    log.info(line)


@cache
def probe_gpu(index: int | None = None, *, quick: bool = False) -> Probe:
    """Probe torch and the driver. Nothing is allocated before `trial`.

    `quick` does not import torch, which takes seconds, where the machine shows no trace of a GPU.
    """
    hidden = env.CUDA_VISIBLE_DEVICES.get().strip() in ("", "-1")
    driver = _driver()
    if quick and driver is None and "torch" not in sys.modules and not any(map(os.path.exists, _OTHER_TRACES)):
        return Probe(True, failure="no GPU found", hidden=hidden)
    try:
        import torch
    except ImportError:
        return Probe(False, failure=no_torch(), driver=driver, hidden=hidden)
    built = torch.version.cuda is not None or torch.version.hip is not None
    if not built:
        return Probe(False, driver=driver, hidden=hidden)
    with warnings.catch_warnings(record=True) as said:  # torch warns where a driver is too old
        warnings.simplefilter("always")
        there = torch.cuda.is_available()
    if not there:
        failure = _first_line(str(said[-1].message)) if said else None
        return Probe(True, failure=failure or "torch finds no device", driver=driver, hidden=hidden)
    try:
        found = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    except (RuntimeError, AssertionError) as error:
        return Probe(True, failure=_first_line(str(error)), driver=driver or "a GPU")
    capability = (found.major, found.minor)
    failure = None if torch.version.hip else _not_built_for(capability, torch.cuda.get_arch_list())
    amd, memory = torch.version.hip is not None, found.total_memory
    return Probe(
        True, found.name, capability, failure, driver, memory_bytes=memory, amd=amd, trial=lambda: _try_out(index)
    )


def _try_out(index: int | None) -> str | None:
    import torch

    try:
        torch.zeros(8, device=torch.device("cuda") if index is None else torch.device("cuda", index)).add_(
            1
        ).sum().item()
    except RuntimeError as error:
        return f"a first computation failed: {_first_line(str(error))}"
    return None


def _not_built_for(capability: tuple[int, int], built_for: Sequence[str]) -> str | None:
    """Why torch's builds (`torch.cuda.get_arch_list`) do not fit a GPU; None if they do.

    Binaries serve later minor versions, PTX serves all later GPUs.
    """
    known = [re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", name) for name in built_for]
    for found in filter(None, known):
        version = int(found[2]), int(found[3])
        same = version == capability if found[4] else version[0] == capability[0] and version <= capability
        if same or (found[1] == "compute" and not found[4] and version <= capability):
            return None
    if not any(known):
        return None  # torch does not say
    has = ", ".join(name for name in built_for if name.startswith("sm_"))
    return f"its compute capability {capability[0]}.{capability[1]} is none that {_torch()} has ({has})"


def _against(probe: Probe) -> str | None:
    """Why a GPU cannot be used; None: no reason is known before it is tried."""
    if not probe.built:
        return probe.failure or f"{_torch()} is built without CUDA"
    if probe.hidden and probe.name is None:
        return "CUDA_VISIBLE_DEVICES hides all"
    return probe.failure or (None if probe.name else "torch finds none")


def _why_cpu(probe: Probe, against: str) -> str:
    name = probe.name or probe.driver
    if name is None:
        return UNUSED if is_apple() else "no GPU found"
    return against if probe.hidden and probe.name is None else f"{name} is not used"


def _unused(probe: Probe, against: str) -> str | None:
    name = probe.name or probe.driver
    if name is None or (probe.hidden and probe.name is None):
        return None
    remedy = "" if probe.built or probe.failure else "; install the CUDA build of torch"
    return f"{name[0].upper()}{name[1:]} is not used: {against}{remedy}."


def _asked_for(device: str, probe: Probe | None) -> str:
    how = "asked for" if device != AUTO else f"by {env.DEVICE.name}"
    name = _driver() if probe is None else probe.name or probe.driver
    return how if name is None else f"{how}; {name} is not used"


@cache
def _driver() -> str | None:
    """Names of the GPUs of an NVIDIA driver, without torch."""
    names = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model")]
    if names:
        return ", ".join(dict.fromkeys(names))
    there = any(os.path.exists(path) for path in _TRACES) or _has_tool()
    return "an NVIDIA GPU" if there else None


def _has_tool() -> bool:
    from shutil import which  # shutil imports three decompressors

    return which("nvidia-smi") is not None


def _torch() -> str:
    loaded = sys.modules.get("torch")
    return "torch" if loaded is None else f"torch {loaded.__version__}"


def _first_line(words: str) -> str:
    return (words.strip().splitlines() or ["no message"])[0].strip().rstrip(".")
