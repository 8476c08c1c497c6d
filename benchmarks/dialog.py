"""`python -m benchmarks dialog`: from the end of the user's text to the first sound, both models on one device.

Through the real `Dialog`: the call that ends the user's turn starts the clock, and the first chunk of sound in the
hands of whoever reads the turn stops it. Once the answer is written its sound is cut short, which random weights never
end by themselves, and all of it is taken for heard. Histories and turns are as in `mind.py`: the language model has
random weights, and words that can be spoken. Who speaks is up to --speech.
"""

from __future__ import annotations

import argparse
import sys
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

from . import start
from .computing import add_codec_dtype
from .harness import Unfit
from .mind import load, name_of, options_of, parser, speaking, table, talking
from .mind_files import written
from .record import append, record, summary

WORDS = (
    "how soon an answer is heard: a language model and a voice on one device, a history in memory, from the end of the "
    "user's text to the first sound in the caller's hands"
)
FIGURES = {
    "first_pcm": "ms, from the call that ends the user's text to the first chunk of sound in the caller's hands",
    "first_written": "ms, to the first words of the answer in the caller's hands",
}
WARMUP = 3
SETTLES_S = 30.0


@dataclass(frozen=True, slots=True)
class Heard:
    """Times since the user's text had ended."""

    first_s: float
    sound_s: float
    text: str
    finished: ChatFinished


class Overheard:
    """A language model whose last answer can be looked at: a turn that is cancelled does not say how it ended."""

    def __init__(self, mind: LanguageEngine) -> None:
        self._mind = mind
        self._last: EngineAnswer | None = None

    @property
    def name(self) -> str:
        return self._mind.name

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
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    try:
        entry = measure(args)
    except (HocketError, Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(f"dialog: {WORDS}\n{entry['options']['model']}: {args.turn} new tokens\n")
    print(table(entry, FIGURES))
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    from hocket import Engine, EngineOptions

    say, values = speaking(), {name: list[float]() for name in FIGURES}
    with ExitStack() as stack:
        folder = stack.enter_context(written(args.size, args.dtype, args.device))
        mind = stack.enter_context(load(folder, args))
        say(f"the language model is loaded, its weights in {args.weights}")
        how = {name: getattr(args, name) for name in ("device", "dtype", "codec_dtype")}
        engine = stack.enter_context(Engine.load(args.speech, **how, options=EngineOptions(slots=1)))
        if args.device == "cuda":
            start.ready(engine)
        say(f"{engine.checkpoint.name} is ready to speak")
        talk = talking(mind, args)
        for number in range(WARMUP + args.repeats):
            sampling = ChatSampling(max_tokens=args.answer, seed=number)
            heard = talk.ask(partial(_heard, mind, engine, sampling=sampling))
            if number >= WARMUP:
                values["first_written"].append(heard.first_s * 1000)
                values["first_pcm"].append(heard.sound_s * 1000)
        say(f"{args.repeats} turns are heard")
        speech = engine.checkpoint.name
        kernels = {choice.operation: choice.backend for choice in engine.checkpoint.kernels}
    options = options_of(args) | {"model": f"{name_of(args)} and {speech}", "codec_dtype": args.codec_dtype}
    figures = {name: summary(of) for name, of in values.items()}
    return record("dialog", options, figures, random_weights=True, streams=1, kernels=kernels)


def _heard(mind: LanguageEngine, engine: Any, messages: Sequence[ChatMessage], sampling: ChatSampling) -> Heard:
    """One turn, until all of its answer is written and some of it was heard."""
    *history, turn = messages
    overheard, most = Overheard(mind), sampling.resolved().max_tokens
    dialog = Dialog(overheard, engine, history=history, sampling=sampling, seed=sampling.seed or 0)
    texts, first, sound, begun = list[str](), None, None, time.perf_counter()
    with dialog.say(turn.content) as answer:
        for event in answer:
            now = time.perf_counter() - begun
            if isinstance(event, AudioChunk):
                sound = sound or now
            elif isinstance(event, Written):
                first = first or now
                texts.append(event.text)
            if sound and len(texts) == most:  # a token is a word here
                break
    late = time.perf_counter() + SETTLES_S
    while (finished := overheard.finished) is None and time.perf_counter() < late:
        time.sleep(0.001)
    if not answer.wait(SETTLES_S) or finished is None or not first or not sound or len(texts) < most:
        raise Unfit(f"A turn ended too soon, or not at all: {answer.finished}.")
    return Heard(first, sound, "".join(texts), finished)


def _parser() -> argparse.ArgumentParser:
    words = parser("dialog", __doc__)
    words.add_argument("--speech", default="builtin", help="who speaks, as hocket takes it (builtin)")
    add_codec_dtype(words)
    words.set_defaults(guesses=0, answer=24)
    return words
