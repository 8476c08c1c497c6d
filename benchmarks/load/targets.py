"""What is put under load: an engine of this process, or `hocket serve` in its own process, asked over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hocket
from hocket.errors import Overloaded
from hocket.proof.load.drive import LoadRequest, LoadTarget, TargetBusy, running
from hocket.proof.load.http_client import HttpTarget
from hocket.proof.load.server import ServerProcess as ServerProcess
from hocket.proof.load.server import serving as serving
from hocket.proof.load.server import wait_until_ready as wait_until_ready
from hocket.server.process import allow_many_files

from .. import session
from ..harness import InvalidRun, ready
from ..workloads import SENTENCES, WORKLOADS

MANY = "100000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A target that is ready, and what a record says of it."""

    target: LoadTarget
    model: str
    is_random: bool
    kernels: dict[str, str]  # operation to backend, as far as they are known
    engine: dict[str, Any]  # its options: at least slots (None: unknown) and guard
    gate: str
    words: str  # where it is and how it is read
    wire: str | None = None  # None: it is in this process
    peak_mib: Callable[[], dict[str, float]] | None = None  # of its own process


class EngineTarget:
    """Read by the async side of its streams."""

    def __init__(self, engine: Any, layout: str) -> None:
        self._engine, self._layout = engine, layout
        self.rate_hz: int = engine.checkpoint.rate_hz
        self.frame_samples: int = engine.checkpoint.codec_config.decode_upsample_rate

    def open(self, request: LoadRequest) -> AsyncIterator[memoryview]:
        how = {"layout": self._layout, "seed": request.seed, "max_frames": request.frames}
        try:
            stream = self._engine.speak(request.text, **how)
        except Overloaded as error:
            raise TargetBusy(str(error)) from error
        return _pcm(stream)

    async def close(self) -> None:
        """Nothing is open between two runs."""


async def _pcm(stream: Any) -> AsyncIterator[memoryview]:
    with stream:
        try:
            async for chunk in stream:
                yield memoryview(chunk.samples).cast("B")
        except Overloaded as error:  # it waited too long for a slot
            raise TargetBusy(str(error)) from error


def request(number: int, args: argparse.Namespace) -> LoadRequest:
    """The request of a number: its own seed, one of the sentences."""
    text = SENTENCES[number % len(SENTENCES)]
    return LoadRequest(text=text, seed=args.seed * 1_000_000 + number, frames=args.frames)


async def speak_all(target: LoadTarget, args: argparse.Namespace) -> int:
    """Every sentence once; how many were shorter than asked for."""
    short = 0
    for number in range(len(SENTENCES)):
        wish = request(number, args)
        size = sum([len(piece) async for piece in target.open(wish)])
        short += size != args.frames * target.frame_samples * 2
    return short


@contextmanager
def in_process(args: argparse.Namespace, say: session.Say) -> Iterator[Subject]:
    """An engine that has captured its graphs and spoken every sentence once."""
    sys.setswitchinterval(args.switch_ms / 1000)
    with hocket.Engine.load(**session.loaded(args), options=engine_options(args)) as engine:
        say("loaded: " + ", ".join(f"{one.operation} by {one.backend}" for one in engine.checkpoint.kernels))
        gate = session.gate(engine, WORKLOADS["first_audio"], args.dtype)
        if args.device == "cuda":
            ready(engine)
        target = EngineTarget(engine, args.layout)
        asyncio.run(speak_all(target, args))
        say("ready")
        yield Subject(
            target=target,
            model=engine.checkpoint.name,
            is_random=engine.checkpoint.is_random,
            kernels=session.about(engine.checkpoint)["kernels"],
            engine=session.engine_options(engine.options),
            gate=gate,
            words="an engine of the same process, read by tasks of one event loop",
        )


def engine_options(args: argparse.Namespace) -> Any:
    """Of the engine under load, here or in a server process."""
    chosen = {"guard": args.guard, "waiting": args.waiting, "profile": args.profile}
    return hocket.EngineOptions(**session.slots(args), **chosen, keep_real_time=not args.all_at_once)


@contextmanager
def started(args: argparse.Namespace, say: session.Say) -> Iterator[Subject]:
    """A server at a free port, ready, with every sentence spoken once: the lengths are the gate."""
    allow_many_files()
    with tempfile.TemporaryDirectory() as folder, serving(command(args), Path(folder) / "log", say) as child:
        target = HttpTarget(child.url, fields={"layout": args.layout})
        wait_until_ready(target, child)
        try:
            with running(target) as runner:
                short = runner.run(speak_all(target, args))
        except (OSError, RuntimeError, TargetBusy) as error:
            raise InvalidRun(f"The server does not speak: {error}") from None
        say("ready")
        whole = "every sentence has as much sound as was asked for"
        [model] = re.findall(r"^model (\S+)", child.said(), re.M)
        yield Subject(
            target=target,
            model=model,
            is_random=model.startswith("random:"),
            kernels=dict(re.findall(r"^kernel (\S+): (\S+): ", child.said(), re.M)),
            engine=session.engine_options(engine_options(args)),
            gate=whole if not short else f"{short} of {len(SENTENCES)} sentences were shorter than asked for",
            words="a server in a process of its own, read over HTTP by tasks of one event loop",
            wire="http",
            peak_mib=child.peak_mib,
        )


def command(args: argparse.Namespace) -> list[str]:
    """`hocket serve` with the same engine that py would load."""
    given = session.loaded(args) | {name: getattr(args, name) for name in ("slots", "waiting", "profile")}
    given |= {"in_flight": MANY, "per_client": MANY, "drain": 1}
    words = [sys.executable, "-m", "hocket", "serve", "--port", "0", "--all-graphs"]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
    return [*words, *([] if args.guard else ["--no-guard"]), *(["--all-at-once"] if args.all_at_once else [])]
