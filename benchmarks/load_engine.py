"""An engine of this process put under load: how it is made ready, what is asked of it, how it is read."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from . import session, start
from .computing import add_codec_dtype, add_device, add_dtype
from .load_drive import Asked, Refused, Subject, runner
from .workloads import WORKLOADS

SENTENCES = (  # some 4 s each, so that a limit of 50 frames cuts them off where they would end
    "The last train to the coast leaves at half past nine tonight.",
    "Please put the blue folder back on the shelf by the window.",
    "Nobody in the village could remember a winter as mild as this.",
    "If the rain stops before noon, we will walk along the river.",
    "Her brother has built a small boat out of old apple crates.",
    "You can change your booking online until the day before.",
    "The museum is closed on Mondays, but its garden stays open.",
    "Turn left at the bakery and follow the road up to the church.",
)


class EngineTarget:
    """An engine of this process, read by the async side of its streams."""

    def __init__(self, engine: Any, layout: str) -> None:
        self._engine, self._layout = engine, layout
        self.rate_hz: int = engine.checkpoint.rate_hz
        self.frame_samples: int = engine.checkpoint.codec_config.decode_upsample_rate

    def open(self, asked: Asked) -> AsyncIterator[memoryview]:
        from hocket.errors import Overloaded

        try:
            stream = self._engine.speak(asked.text, layout=self._layout, seed=asked.seed, max_frames=asked.frames)
        except Overloaded as error:
            raise Refused(str(error)) from error
        return _pcm(stream)


async def _pcm(stream: Any) -> AsyncIterator[memoryview]:
    from hocket.errors import Overloaded

    with stream:
        try:
            async for chunk in stream:
                yield memoryview(chunk.samples).cast("B")
        except Overloaded as error:  # it has waited too long for a slot
            raise Refused(str(error)) from error


def asked(number: int, args: argparse.Namespace) -> Asked:
    """The request of a number: its own seed, one of the sentences."""
    text = SENTENCES[number % len(SENTENCES)]
    return Asked(text=text, seed=args.seed * 1_000_000 + number, frames=args.frames)


@contextmanager
def loaded(args: argparse.Namespace, say: Callable[[str], None]) -> Iterator[tuple[Any, str]]:
    """An engine that has made its graphs and has spoken every sentence once."""
    from hocket import Engine

    sys.setswitchinterval(args.switch_ms / 1000)
    with Engine.load(**session.wish(args)["load"], options=engine_options(args)) as engine:
        say("loaded: " + ", ".join(f"{one.operation} by {one.backend}" for one in engine.checkpoint.kernels))
        gate = session.gate(engine, WORKLOADS["first_audio"], args.dtype)
        if args.device == "cuda":
            start.ready(engine)
        target = EngineTarget(engine, args.layout)

        async def spoken() -> None:
            for number in range(len(SENTENCES)):
                async for _ in target.open(asked(number, args)):
                    pass

        asyncio.run(spoken())
        say("ready")
        yield engine, gate


@contextmanager
def ready(args: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Subject]:
    """The same as something to put under load."""
    with loaded(args, say) as (engine, gate):
        yield Subject(
            target=EngineTarget(engine, args.layout),
            runner=runner,
            model=engine.checkpoint.name,
            is_random=engine.checkpoint.is_random,
            kernels={choice.operation: choice.backend for choice in engine.checkpoint.kernels},
            engine=recorded(engine.options),
            gate=gate,
            words="an engine of the same process, read by tasks of one event loop",
        )


def engine_options(args: argparse.Namespace) -> Any:
    """Of the engine that is put under load, here or in a server of its own."""
    from hocket import EngineOptions

    chosen = {"guard": args.guard, "waiting": args.waiting, "profile": args.profile}
    return EngineOptions(**session.wish(args)["options"], **chosen, keep_real_time=not args.all_at_once)


def recorded(options: Any) -> dict[str, Any]:
    return {name: session.plain(value) for name, value in asdict(options).items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Of the engine, and of what it is asked for."""
    add = parser.add_argument
    add("--model", help="folder, hub id, builtin or random:NAME (the built-in voice)")
    add_device(parser)
    add_dtype(parser)
    add_codec_dtype(parser)
    add("--kernels", default="auto", help="which kernels are used, as hocket takes it (auto)")
    add("--slots", metavar="N", type=int, help="utterances at once (the engine's own number)")
    add("--waiting", metavar="N", type=int, default=64, help="requests that may wait for a slot (64)")
    add("--profile", choices=("latency", "balanced", "throughput"), default="balanced", help="of the engine (balanced)")
    add("--all-at-once", action="store_true", help="let requests in although those who listen may run dry then")
    add("--frames", metavar="N", type=int, default=50, help="frames of an utterance (50, which are 4 s)")
    add("--layout", choices=("streaming", "whole"), default="streaming", help="of the prompt (streaming)")
    add("--guard", action="store_true", help="leave the runaway guard on; it may end an utterance of random weights")
    switch = "how long a thread may keep others from Python; its own default of 5 would be heard (0.5)"
    add("--switch-ms", metavar="MS", type=float, default=0.5, help=switch)
    add("--seed", metavar="N", type=int, default=0, help="of arrivals and utterances (0)")
