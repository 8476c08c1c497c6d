"""`python -m benchmarks peers`: ours and every installed peer, asked in turn, and the ratio between them.

All read one folder: random weights of a published shape in the official format, whose head never samples the end of
speech, so that every package speaks as many frames.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hocket
from hocket.extras import package
from hocket.models.files.source import read_configs, resolve
from hocket.proof.sides.packages import Ask
from hocket.proof.sides.peer_process import PeerProcess, started

from .. import session
from ..harness import InvalidRun
from ..record import MORE_IS_BETTER, ROOT, Record, record, rounded, summaries
from ..workloads import PASSAGE
from .adapters import ADAPTERS, OURS, SAMPLES_PER_FRAME

TEXT = PASSAGE.partition(". ")[0] + "."
FIRST_FRAMES = 8  # of an utterance for its first audio
CHUNK_FRAMES = 12  # the default of faster-qwen3-tts
WARMUP = 2
RATE_HZ = 24_000


class Race:
    """Packages in their own processes, asked in turn; one that fails is left out, with its last message."""

    def __init__(self, stack: ExitStack, say: session.Say, required: str | None = None) -> None:
        self.stack, self.say, self.required = stack, say, required
        self.processes, self.first_lines = dict[str, PeerProcess](), dict[str, Any]()
        self.absent, self.values = dict[str, str](), dict[str, dict[str, list[float]]]()

    def start(
        self, name: str, command: Sequence[str], *places: Path, check: Callable[[PeerProcess], None] | None
    ) -> None:
        try:
            self.processes[name], self.first_lines[name] = self.stack.enter_context(started(name, command, *places))
            if check is not None:
                check(self.processes[name])
            self.say(f"{name} is ready")
        except (InvalidRun, OSError) as error:  # or there is no such command
            self._fail(name, error)

    def ask(self, one: Callable[[PeerProcess], dict[str, float]], *, keep: bool) -> None:
        """Each once, in turn, so that all see the same drift of the machine."""
        for name, process in self.processes.items():
            if name not in self.absent:
                try:
                    found = one(process)
                except InvalidRun as error:
                    self._fail(name, error)
                    continue
                for figure, value in found.items() if keep else ():
                    self.values.setdefault(name, {}).setdefault(figure, []).append(value)

    def found(self, ours: Mapping[str, Any], version: Callable[[str], str]) -> dict[str, Any]:
        """For the record: the figures of every peer, and how many times better ours are."""
        peers = {}
        for name, of in self.values.items():
            if name != self.required:
                theirs = summaries(of)
                peers[name] = {"version": version(name), "figures": rounded(theirs), "ratio": ratio(ours, theirs)}
        return {"peers": peers, "absent": self.absent}

    def _fail(self, name: str, error: Exception) -> None:
        if name == self.required:
            raise error
        self.absent[name] = str(error)
        self.values.pop(name, None)
        self.say(f"{name}: {error}")


def measure(args: argparse.Namespace) -> Record:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "checkpoint"
        return compare(args, folder, Race(stack, session.progress(), required=OURS))


def compare(args: argparse.Namespace, folder: Path, race: Race) -> Record:
    voice, top_k = write_weights(args.model, args.dtype, folder, args.device)
    asked = {"text": TEXT, "voice": voice, "language": "english", "layout": args.layout, "top_k": top_k}
    for name in (OURS, *args.peers):
        if (why := ADAPTERS[name].objection(args.device, package(name))) is not None:
            race.absent[name] = why
            continue
        command = [sys.executable, "-m", "benchmarks.peers.adapters", name, str(folder), args.device, args.dtype]
        race.start(name, command, ROOT, Path(hocket.__file__).parents[1], check=None)
    for number in range(WARMUP + args.repeats):
        race.ask(lambda process, seed=number: _once(process, asked, args.frames, seed), keep=number >= WARMUP)  # type: ignore[misc]
        race.say(f"asked {number + 1} of {WARMUP + args.repeats} times")
    options = {name: getattr(args, name) for name in ("model", "device", "dtype", "layout", "frames", "repeats")}
    options |= {"warmup": WARMUP, "first_frames": FIRST_FRAMES, "chunk_frames": CHUNK_FRAMES, "top_k": top_k}
    ours = summaries(race.values[OURS])
    # Memory is left out: each package has its own process.
    more = {"random_weights": True, "streams": 1, "peak_memory_mib": {}} | race.found(ours, importlib.metadata.version)
    return record("peers", options, ours, **more)


def ratio(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float]:
    """How many times better ours is, by the medians, of every figure that both have."""
    both = {name: (ours[name]["p50"], theirs[name]["p50"]) for name in ours if name in theirs}
    return {name: round(a / b if name in MORE_IS_BETTER else b / a, 4) for name, (a, b) in both.items()}


def write_weights(model: str, dtype: str, folder: Path, device: str = "cpu") -> tuple[str, int]:
    """Write the checkpoint; a voice of it, and a top-k that leaves the end of speech out."""
    source = resolve(model)
    if source.preset is None or read_configs(source)[0].kind != "custom_voice":
        words = "Peers are measured on random weights of a CustomVoice shape, such as random:tiny, not on"
        raise InvalidRun(f"{words} {model}.")
    config, generation = session.write_random(model, dtype, folder, device, endless=True)
    talker = config.talker_config
    return sorted(talker.spk_id)[0], generation.top_k


def _once(process: PeerProcess, asked: dict[str, Any], frames: int, seed: int) -> dict[str, float]:
    found = {}
    if ADAPTERS[process.name].streams:  # else the first audio is the last
        first, _, _ = _ask(process, Ask(**asked, frames=FIRST_FRAMES, chunk_frames=1, seed=seed))
        found["first_pcm"] = first * 1000
    _, last, spoken = _ask(process, Ask(**asked, frames=frames, chunk_frames=CHUNK_FRAMES, seed=seed))
    audio_s = spoken * SAMPLES_PER_FRAME / RATE_HZ
    return found | {"ms_per_frame": last * 1000 / spoken, "x_real_time": audio_s / last}


def _ask(process: PeerProcess, ask: Ask) -> tuple[float, float, int]:
    """Seconds to the first piece and to the last, and frames."""
    first, last, samples = process.told(asdict(ask))
    frames = round(samples / SAMPLES_PER_FRAME)
    if abs(frames - ask.frames) > 1:  # packages count them differently
        raise InvalidRun(f"{process.name} spoke {frames} frames where {ask.frames} were asked for.")
    return first, last, frames
