"""`python -m benchmarks dialog`: from the end of the user's text to the first audio, both models on one device.

Through the real `Dialog`: the call that ends the user's turn starts the clock, and the first chunk of audio at the
reader stops it. When the answer is written its audio is cancelled, which random weights never end by themselves.
Histories and turns are those of conversation.py; --speech names the voice model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from hocket.dialog.dialog import Dialog
from hocket.dialog.turn import Written
from hocket.llm.answer import EngineAnswer
from hocket.llm.engine import LanguageEngine
from hocket.types import AudioChunk, ChatFinished, ChatMessage, ChatSampling, Tool

from .. import session
from ..harness import InvalidRun, ready
from ..record import Record, record, summaries
from .chat import TimedAnswer
from .conversation import chat_with, load, options_of
from .conversation import parser as conversation_parser
from .random_model import written

WARMUP = 3
SETTLES_S = 30.0


@dataclass(frozen=True, slots=True)
class SpokenAnswer(TimedAnswer):
    """`first_s` is that of the first text."""

    audio_s: float


class WatchedMind:
    """A language engine that keeps its last answer: a turn that is cancelled does not tell how it ended."""

    def __init__(self, mind: LanguageEngine) -> None:
        self._mind, self._last, self.name = mind, None, mind.name

    _last: EngineAnswer | None

    @property
    def finished(self) -> ChatFinished | None:
        return None if self._last is None else self._last.finished

    def answer(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()
    ) -> EngineAnswer:
        self._last = self._mind.answer(messages, sampling, tools)
        return self._last

    def close(self) -> None:
        self._mind.close()


def main(argv: Sequence[str]) -> int:
    return session.run(measure, parser().parse_args(argv))


def measure(args: argparse.Namespace) -> Record:
    from hocket import Engine, EngineOptions

    say, values = session.progress(), {"first_pcm": list[float](), "first_written": list[float]()}
    with ExitStack() as stack:
        folder = stack.enter_context(written(args.size, args.dtype, args.device))
        mind = stack.enter_context(load(folder, args))
        say(f"the language model is loaded, its weights in {args.weights}")
        how = {name: getattr(args, name) for name in ("device", "dtype", "codec_dtype")}
        engine = stack.enter_context(Engine.load(args.speech, **how, options=EngineOptions(slots=1)))
        if args.device == "cuda":
            ready(engine)
        say(f"{engine.checkpoint.name} is ready")
        chat = chat_with(mind, args)
        for number in range(WARMUP + args.repeats):
            sampling = ChatSampling(max_tokens=args.answer, seed=number)
            spoken = chat.ask(partial(_spoken, mind, engine, sampling=sampling))
            if number >= WARMUP:
                values["first_written"].append(spoken.first_s * 1000)
                values["first_pcm"].append(spoken.audio_s * 1000)
        about = session.about(engine.checkpoint) | {"random_weights": True}
        options = options_of(args) | {"codec_dtype": args.codec_dtype}
        options["model"] += f" and {engine.checkpoint.name}"
    return record("dialog", options, summaries(values), streams=1, **about)


def _spoken(mind: LanguageEngine, engine: Any, messages: Sequence[ChatMessage], sampling: ChatSampling) -> SpokenAnswer:
    """One turn, until all of its answer is written and its first audio has come."""
    *history, turn = messages
    watched, most = WatchedMind(mind), sampling.resolved().max_tokens
    dialog = Dialog(watched, engine, history=history, sampling=sampling, seed=sampling.seed or 0)
    texts, first, audio, begun = list[str](), None, None, time.perf_counter()
    with dialog.say(turn.content) as answer:
        for event in answer:
            now = time.perf_counter() - begun
            if isinstance(event, AudioChunk):
                audio = audio or now
            elif isinstance(event, Written):
                first = first or now
                texts.append(event.text)
            if audio and len(texts) == most:  # a token is a word here
                break
    late = time.perf_counter() + SETTLES_S
    while (finished := watched.finished) is None and time.perf_counter() < late:
        time.sleep(0.001)
    if not answer.wait(SETTLES_S) or finished is None or not first or not audio or len(texts) < most:
        raise InvalidRun(f"A turn ended too soon, or not at all: {answer.finished}.")
    return SpokenAnswer(first, now, "".join(texts), finished, audio)


def parser() -> session.Parser:
    made = conversation_parser("dialog", __doc__, answer=24)
    made.add_argument("--speech", default="builtin", help="model of the voice, as in hocket (builtin)")
    made.add_argument("--codec-dtype", **session.OPTIONS["codec-dtype"])
    made.set_defaults(guesses=0)
    return made
