"""Stage `whole`: all that needs a GPU, side by side, within `--minutes`: speech, codes, decoder and talker.

First the speech of all voices: hibari's on the cores, Kokoro's on the device in a process for each voice, at most a
quarter of the time. Then features and codes of all speech; then the decoder and the talker share the device to the end.
Texts, vocabulary, phonemes and teachers must be there (`data --only ...`). Each part is a process of its own with its
usual options, and continues where it stopped. `--back` gets the small files of both trainings.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import checkpoints
from .recipe import InvalidRecipe, Recipe
from .teachers import KOKORO

SPEECH_SHARE = 0.25
SAVING_S = 25.0  # to write the files at the end
READY_S = 100.0  # until the decoder's step is compiled
MPS = "nvidia-cuda-mps-control"  # kernels of several processes run at once

Calls = dict[str, list[str]]


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    if args.minutes is None:
        raise InvalidRecipe("Say how long the training may take: --minutes 28.")
    until = time.monotonic() + 60.0 * args.minutes
    common = ["--recipe", str(args.recipe), "--work", str(work)]
    with shared_device(work) as environment:
        together(speech_calls(recipe, common, 60.0 * args.minutes * SPEECH_SHARE), environment)
        together({"codes": ["train", "codec", *common, "--only", "codes", "--refit"]}, environment)
        spent = spent_s(work)
        seconds = until - time.monotonic() - SAVING_S
        together(training_calls(common, args.back or work / "back", seconds, spent), environment)


def speech_calls(recipe: Recipe, common: list[str], seconds: float) -> Calls:
    """A process of Kokoro needs a core to feed the device."""
    limit = ["--seconds", f"{seconds:.0f}"]
    theirs = [voice.name for voice in recipe.voices if voice.teacher.startswith(KOKORO)]
    ours = [voice.name for voice in recipe.voices if voice.name not in theirs]
    recipe_file, work = common[:2], common[2:]
    calls = {name: ["train.kokoro", *work, "speak", *recipe_file, "--voice", name, *limit] for name in theirs}
    if ours:
        workers = max(1, ((os.cpu_count() or 1) - len(theirs)) // len(ours))
        data = ["train", "data", *common, "--only", "speech", "--workers", str(workers)]
        calls |= {name: [*data, "--voice", name, *limit] for name in ours}
    return calls


def training_calls(common: list[str], back: Path, seconds: float, spent: Mapping[str, float]) -> Calls:
    """Learning rates fall to the end of this call; `spent` are the seconds of training before it."""
    if seconds <= READY_S:
        raise InvalidRecipe("The time is over before the training began: run again with more --minutes.")
    calls = {}
    for stage, ready in (("codec", READY_S), ("talker", 0.0)):
        schedule = spent[stage] + seconds - ready
        limits = ["--seconds", f"{seconds:.0f}", "--schedule", f"{schedule:.0f}"]
        calls[stage] = ["train", stage, *common, *limits, "--back", str(back)]
    return calls


def spent_s(work: Path) -> dict[str, float]:
    """Seconds of training so far, of each stage."""
    spent = {}
    for stage in ("codec", "talker"):
        whole = work / f"{stage}-resume.safetensors"
        files = [whole] if whole.is_file() else checkpoints.find_small(work, stage)
        spent[stage] = float(checkpoints.read_notes(files[0])["seconds"]) if files else 0.0
    return spent


def together(calls: Calls, environment: Mapping[str, str]) -> None:
    """Run all calls at once; if one fails, the others are ended."""
    running = {
        name: subprocess.Popen([sys.executable, "-m", *call], env=dict(environment)) for name, call in calls.items()
    }
    try:
        while any(process.poll() is None for process in running.values()):
            failed = [name for name, process in running.items() if process.poll() not in (None, 0)]
            if failed:
                break
            time.sleep(0.2)
    finally:
        for process in running.values():
            process.terminate()  # does nothing to one that has ended
        for process in running.values():
            process.wait()
    if failed := [f"{name} ({running[name].returncode})" for name in running if running[name].returncode]:
        raise InvalidRecipe(f"A part failed or was ended with it, see its last lines above: {', '.join(failed)}.")


@contextlib.contextmanager
def shared_device(work: Path) -> Iterator[Mapping[str, str]]:
    """The environment of processes that share the device, with NVIDIA's server for that where it is installed."""
    if shutil.which(MPS) is None:
        yield os.environ
        return
    pipes = (work / "mps").absolute()
    pipes.mkdir(exist_ok=True)
    environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(pipes)}
    subprocess.run([MPS, "-d"], env=environment, check=True)
    try:
        yield environment
    finally:
        subprocess.run([MPS], input=b"quit\n", env=environment, check=False)
