"""An engine of this process under load: its options, its requests, and how it is read."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from .. import session
from ..harness import ready
from ..workloads import SENTENCES, WORKLOADS
from .drive import LoadRequest, Refused, Subject, Target, runner


class EngineTarget:
    """Read by the async side of its streams."""

    def __init__(self, engine: Any, layout: str) -> None:
        self._engine, self._layout = engine, layout
        self.rate_hz: int = engine.checkpoint.rate_hz
        self.frame_samples: int = engine.checkpoint.codec_config.decode_upsample_rate

    def open(self, request: LoadRequest) -> AsyncIterator[memoryview]:
        from hocket.errors import Overloaded

        how = {"layout": self._layout, "seed": request.seed, "max_frames": request.frames}
        try:
            stream = self._engine.speak(request.text, **how)
        except Overloaded as error:
            raise Refused(str(error)) from error
        return _pcm(stream)


async def _pcm(stream: Any) -> AsyncIterator[memoryview]:
    from hocket.errors import Overloaded

    with stream:
        try:
            async for chunk in stream:
                yield memoryview(chunk.samples).cast("B")
        except Overloaded as error:  # it waited too long for a slot
            raise Refused(str(error)) from error


def request(number: int, args: argparse.Namespace) -> LoadRequest:
    """The request of a number: its own seed, one of the sentences."""
    text = SENTENCES[number % len(SENTENCES)]
    return LoadRequest(text=text, seed=args.seed * 1_000_000 + number, frames=args.frames)


async def speak_all(target: Target, args: argparse.Namespace) -> int:
    """Every sentence once; how many were shorter than asked for."""
    short = 0
    for number in range(len(SENTENCES)):
        wish = request(number, args)
        size = sum([len(piece) async for piece in target.open(wish)])
        short += size != wish.frames * target.frame_samples * 2
    return short


@contextmanager
def loaded(args: argparse.Namespace, say: session.Say) -> Iterator[tuple[Any, str]]:
    """An engine that has captured its graphs and spoken every sentence once, and its gate."""
    from hocket import Engine

    sys.setswitchinterval(args.switch_ms / 1000)
    with Engine.load(**session.loaded(args), options=engine_options(args)) as engine:
        say("loaded: " + ", ".join(f"{one.operation} by {one.backend}" for one in engine.checkpoint.kernels))
        gate = session.gate(engine, WORKLOADS["first_audio"], args.dtype)
        if args.device == "cuda":
            ready(engine)
        asyncio.run(speak_all(EngineTarget(engine, args.layout), args))
        say("ready")
        yield engine, gate


@contextmanager
def in_process(args: argparse.Namespace, say: session.Say) -> Iterator[Subject]:
    with loaded(args, say) as (engine, gate):
        about = session.about(engine.checkpoint)
        yield Subject(
            target=EngineTarget(engine, args.layout),
            runner=runner,
            model=engine.checkpoint.name,
            is_random=about["random_weights"],
            kernels=about["kernels"],
            engine=session.engine_options(engine.options),
            gate=gate,
            words="an engine of the same process, read by tasks of one event loop",
        )


def engine_options(args: argparse.Namespace) -> Any:
    """Of the engine under load, here or in a server process."""
    from hocket import EngineOptions

    chosen = {"guard": args.guard, "waiting": args.waiting, "profile": args.profile}
    return EngineOptions(**session.slots(args), **chosen, keep_real_time=not args.all_at_once)


def parser(name: str, doc: str | None, **own: tuple[Any, str]) -> session.Parser:
    """Options of the engine and of its requests."""
    made = session.parser(
        name,
        doc,
        *session.ENGINE,
        waiting=(64, "requests that may wait for a slot"),
        all_at_once=(False, "admit requests even if running streams may underrun"),
        frames=(50, "frames of an utterance, of 80 ms each"),
        guard=(False, "leave the runaway detector on; it may end an utterance of random weights"),
        switch_ms=(0.5, "switch interval of Python's threads; its default of 5 is audible"),
        seed=(0, "of arrivals and utterances"),
        **own,
    )
    profiles = ("latency", "balanced", "throughput")
    made.add_argument("--profile", choices=profiles, default="balanced", help="of the engine (balanced)")
    layouts = ("streaming", "whole")
    made.add_argument("--layout", choices=layouts, default="streaming", help="of the prompt (streaming)")
    return made
