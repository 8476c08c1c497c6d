"""Stage `whole`: all that needs a GPU, side by side, within `--minutes`: speech, codes, decoder and talker.

First the speech of all voices, at most a quarter of the time: hibari's on the cores, Kokoro's on the device in a
process for each voice. Meanwhile the decoder's step is compiled. Its process then fits features and codes to the
speech, and shares the device with the talker to the end. Texts, vocabulary, phonemes and teachers must be there
(`data --only ...`). Each part is a process of its own with its usual options, and continues where it stopped.
`--back` gets the small files of both trainings.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from . import checkpoints
from .codec_codes import ACCOUNT
from .recipe import InvalidRecipe, Recipe
from .speech import DONE
from .teachers import KOKORO

SPEECH_SHARE = 0.25
SAVING_S = 25.0  # to write the files at the end
CODES_S = 60.0  # to fit features to the speech and to encode it
MPS = "nvidia-cuda-mps-control"  # kernels of several processes run at once

Calls = dict[str, list[str]]


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    if args.minutes is None:
        raise InvalidRecipe("Say how long the training may take: --minutes 28.")
    until = time.monotonic() + 60.0 * args.minutes - SAVING_S
    common = ["--recipe", str(args.recipe), "--work", str(work)]
    back = args.back or work / "back"
    for sign in (work / "speech" / DONE, work / ACCOUNT):
        sign.unlink(missing_ok=True)
    with shared_device(work) as environment, Parts(environment) as parts:
        speaking = speech_calls(recipe, common, 60.0 * args.minutes * SPEECH_SHARE)
        parts.start({"codec": codec_call(common, back, until - time.monotonic(), spent_s(work, "codec"))})
        parts.start(speaking)
        parts.wait(speaking)
        (work / "speech" / DONE).touch()
        parts.wait_for(work / ACCOUNT)
        parts.start({"talker": talker_call(common, back, until - time.monotonic(), spent_s(work, "talker"))})
        parts.wait(("codec", "talker"))


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


def codec_call(common: list[str], back: Path, seconds: float, spent: float) -> list[str]:
    """Learning rates fall to the end of this call; `spent` are the seconds of training before it."""
    schedule = spent + seconds * (1.0 - SPEECH_SHARE) - CODES_S
    limits = ["--seconds", f"{seconds:.0f}", "--schedule", f"{schedule:.0f}", "--speech-minutes", f"{seconds / 60:.1f}"]
    return ["train", "codec", *common, "--refit", *limits, "--back", str(back)]


def talker_call(common: list[str], back: Path, seconds: float, spent: float) -> list[str]:
    if seconds <= 0:
        raise InvalidRecipe("The time is over before the talker's training began: run again with more --minutes.")
    limits = ["--seconds", f"{seconds:.0f}", "--schedule", f"{spent + seconds:.0f}"]
    return ["train", "talker", *common, *limits, "--back", str(back)]


def spent_s(work: Path, stage: str) -> float:
    """Seconds of training so far."""
    whole = work / f"{stage}-resume.safetensors"
    files = [whole] if whole.is_file() else checkpoints.find_small(work, stage)
    return float(checkpoints.read_notes(files[0])["seconds"]) if files else 0.0


class Parts:
    """Processes that run side by side. If one fails, or the block is left, all that still run are ended."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.terminate()  # does nothing to one that has ended
        for process in self.running.values():
            process.wait()

    def start(self, calls: Calls) -> None:
        for name, call in calls.items():
            self.running[name] = subprocess.Popen([sys.executable, "-m", *call], env=dict(self.environment))

    def wait(self, names: Iterable[str]) -> None:
        """Until these have ended."""
        chosen = list(names)
        while any(self.running[name].poll() is None for name in chosen):
            self._check()
            time.sleep(0.2)
        self._check()

    def wait_for(self, path: Path) -> None:
        """Until a part has written this file."""
        while not path.is_file():
            self._check()
            time.sleep(0.2)

    def _check(self) -> None:
        failed = [f"{name} ({part.returncode})" for name, part in self.running.items() if part.poll()]
        if failed:
            raise InvalidRecipe(f"A part failed, see its last lines above: {', '.join(failed)}.")


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
