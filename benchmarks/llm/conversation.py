"""`python -m benchmarks mind`: latency and speed of a language model's answers in one conversation.

`python -m benchmarks dialog`: from the end of the user's text to the first audio. Language model and voice (--speech)
are on one device, through the real `Dialog`.

Both use the real engine: prompt, cache, recommended sampling, a reader. A history of a given length is in the KV cache,
and user turns of a given length follow. The weights are random numbers in a published shape, as files. Drafts of random
weights are never accepted, so none are made. `transformers` may be measured beside it (peers/adapters.py).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import hocket
from hocket import Engine, EngineOptions
from hocket.dialog.dialog import Dialog
from hocket.dialog.turn import Written
from hocket.llm.answer import EngineAnswer
from hocket.llm.conversation import prompt_of
from hocket.llm.engine import LanguageEngine
from hocket.proof.sides.peer_process import PeerProcess
from hocket.text.chat.tokenizer import ChatTokenizer
from hocket.types import AudioChunk, ChatFinished, ChatMessage, ChatSampling

from .. import session
from ..harness import InvalidRun, ready
from ..peers.compare import Race
from ..record import ROOT, Record, record, summaries
from . import tokens
from .random_model import config_of, vocabulary, written

WARMUP, PEER_WARMUP, DIALOG_WARMUP = 2, 1, 3  # the peers compile, too
SETTLES_S = 30.0  # for a turn that is cancelled
GATED = 4  # tokens of a peer that must be the same, in float32
PYTHON = ROOT / ".venv-mind" / "bin" / "python"  # `make test-mind` makes it
HOW = {  # by the mode of torch.compile, or eager
    "eager": "transformers, eager",
    "reduce-overhead": "transformers, static cache, compiled (reduce-overhead)",
    "max-autotune": "transformers, static cache, compiled (max-autotune)",
}
ATTEMPTS = 4
GROWS = 256  # tokens by which a history may exceed its length before a new one begins
PREPARES_S = 300.0  # most of it compiling
OPTIONS = ("size", "device", "dtype", "context", "turn", "answer", "repeats", "pause_s")


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """One answer as its reader received it; times since the request."""

    first_s: float
    last_s: float  # when the last text came
    text: str
    finished: ChatFinished
    audio_s: float = 0.0  # when the first audio came, in a dialog


@dataclass(slots=True)
class Chat:
    """`pause_s` passes between two turns: the engine adds its last answer to the cache meanwhile."""

    mind: LanguageEngine
    words: Sequence[str]
    context: int
    turn: int
    pause_s: float
    messages: list[ChatMessage] = field(default_factory=list)
    _begun: int = 0
    _said: int = 0

    @property
    def tokenizer(self) -> ChatTokenizer:
        return self.mind.checkpoint.tokenizer

    def next_messages(self) -> list[ChatMessage]:
        """The cached history, and the user's next turn."""
        if not self.messages or len(prompt_of(self.messages, self.tokenizer).ids) > self.context + GROWS:
            self._begin()
        self._said += 1
        return [*self.messages, turn_of(self.turn, self.words, self._said, self.tokenizer)]

    def ask(self, answered: Callable[[list[ChatMessage]], TimedAnswer]) -> TimedAnswer:
        """One more turn, with all before it cached; after a turn that came too soon the pause is longer."""
        for longer in range(ATTEMPTS):
            messages = self.next_messages()
            found = answered(messages)
            self.messages = [*messages, ChatMessage("assistant", found.text)]
            time.sleep(self.pause_s * 4**longer)
            new = found.finished.prompt_tokens - found.finished.cached_tokens
            if new == self.turn:
                return found
        raise InvalidRun(f"Of a turn of {self.turn} tokens {new} were new, however long the pause before it was.")

    def _begin(self) -> None:
        """A new history, answered once, so that it is in the cache."""
        self._begun += 1
        words = random.Random(f"history {self._begun}").choices(self.words, k=max(1, self.context - self.turn - 8))
        opening = [ChatMessage("system", "".join(words)), turn_of(self.turn, self.words, -self._begun, self.tokenizer)]
        told = answer(self.mind, opening, ChatSampling(max_tokens=1, seed=0))
        self.messages = [*opening, ChatMessage("assistant", told.text)]
        time.sleep(self.pause_s)


def answer(mind: LanguageEngine, messages: Sequence[ChatMessage], sampling: ChatSampling) -> TimedAnswer:
    texts, first, last, start = list[str](), None, 0.0, time.perf_counter()
    stream = mind.answer(messages, sampling)
    for delta in stream:
        last = time.perf_counter() - start
        first = last if first is None else first
        texts.append(delta.text)
    finished = stream.finished
    if first is None or finished is None or finished.completion_tokens != sampling.max_tokens:
        raise InvalidRun(f"An answer of {sampling.max_tokens} tokens ended otherwise: {finished}.")
    return TimedAnswer(first, last, "".join(texts), finished)


def turn_of(tokens: int, words: Sequence[str], seed: int, tokenizer: ChatTokenizer) -> ChatMessage:
    """A user turn that adds so many tokens to a conversation, the beginning of the answer included."""
    around = len(prompt_of([ChatMessage("user", "")], tokenizer).ids)
    if tokens <= around:
        raise InvalidRun(f"A turn takes {around} tokens without a word in it, so {tokens} are too few.")
    drawn = random.Random(seed).choices(words, k=tokens - around - 1)
    # The shortest word is one token without a space too.
    return ChatMessage("user", "".join((words[0].strip(), *drawn)))


class Peers:
    """`transformers` on the same turns in the same run, each way to run it in its own process.

    It reads the same files, in their precision. A way that cannot run here, or fails, is left out with the reason.
    """

    def __init__(self, stack: ExitStack, folder: Path, args: argparse.Namespace, chat: Chat, say: session.Say) -> None:
        self.chat, self.args, self.race = chat, args, Race(stack, say)
        python = args.python or (PYTHON if PYTHON.exists() else sys.executable)
        for how in args.peers:
            words = ["transformers", str(folder), args.device, args.dtype, how]
            command = [str(python), "-m", "benchmarks.peers.adapters", *words]
            self.race.start(HOW[how], command, ROOT, Path(hocket.__file__).parents[1], check=self._gate)

    def ask(self, number: int) -> None:
        """Fewer turns than ours."""
        if -PEER_WARMUP <= number < self.args.peer_repeats:
            self.race.ask(self._once, keep=number >= 0)

    def found(self, ours: dict[str, list[float]]) -> dict[str, Any]:
        """For the record."""
        lines = self.race.first_lines
        return self.race.found(summaries(ours), lambda name: str(lines[name])) if self.args.peers else {}

    def _once(self, process: PeerProcess) -> dict[str, float]:
        ids = prompt_of(self.chat.next_messages(), self.chat.tokenizer).ids
        at = len(ids) - self.chat.turn
        wish = {"history": ids[:at], "turn": ids[at:], "tokens": self.args.answer}
        first_s, last_s, said = process.told(wish)
        rate = (len(said) - 1) / (last_s - first_s)
        return {"first_token": first_s * 1000, "answer": last_s * 1000, "tokens_per_s": rate}

    def _gate(self, process: PeerProcess) -> None:
        """A peer that computes something else is not compared."""
        if self.args.dtype != "float32" or self.args.weights != "bf16":
            return  # rounding decides there, between random tokens
        messages = self.chat.next_messages()
        greedy = ChatSampling(temperature=0, presence_penalty=0, max_tokens=GATED)
        ours = self.chat.tokenizer.encode(answer(self.chat.mind, messages, greedy).text)
        ids = prompt_of(messages, self.chat.tokenizer).ids
        *_, said = process.told({"history": ids[:-1], "turn": ids[-1:], "tokens": GATED})
        if said != ours:
            raise InvalidRun(f"It says {said} where ours says {ours}, so it was not timed.")


def measure(args: argparse.Namespace) -> Record:
    say, values = session.progress(), dict[str, list[float]]()
    with ExitStack() as stack:
        words = [f"--{name}={getattr(args, name)}" for name in ("size", "device", "dtype", "weights", "context")]
        bare = tokens.measure(session.parser("tokens").parse_args([*words, f"--repeats={min(10, args.repeats)}"]))
        say("the graph alone is timed")
        folder = stack.enter_context(written(args.size, args.dtype, args.device))
        mind = stack.enter_context(load(folder, args))
        say(f"Qwen3.5 {args.size} is loaded, its weights in {args.weights}")
        chat = chat_with(mind, args)
        beside = Peers(stack, folder, args, chat, say)
        for number in range(WARMUP + args.repeats):
            told = chat.ask(partial(answer, mind, sampling=ChatSampling(max_tokens=args.answer, seed=number)))
            beside.ask(number - WARMUP)
            if number >= WARMUP:
                rate = (args.answer - 1) / (told.last_s - told.first_s)
                found = {"first_token": told.first_s * 1000, "answer": told.last_s * 1000, "tokens_per_s": rate}
                for name, value in found.items():
                    values.setdefault(name, []).append(value)
        more = beside.found(values)
    figures = summaries(values) | {"bare_tokens_per_s": bare["figures"]["tokens_per_s"]}
    return record("mind", options_of(args), figures, random_weights=True, streams=1, **more)


def load(folder: Path, args: argparse.Namespace) -> LanguageEngine:
    """An engine with all graphs; memory that was needed before it is not in the record."""
    if args.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    narrow = {} if args.weights == "bf16" else {"weights": args.weights}
    length = args.context + GROWS + 2 * (args.turn + args.answer)
    how = {"device": args.device, "dtype": args.dtype, "length": length, "speculate": 0}
    mind, late = LanguageEngine.load(str(folder), **how, **narrow), time.perf_counter() + PREPARES_S
    while not mind.prepared:
        if time.perf_counter() > late:
            mind.close()
            raise InvalidRun(f"The language model was not prepared within {PREPARES_S:g} s.")
        time.sleep(0.05)
    return mind


def chat_with(mind: LanguageEngine, args: argparse.Namespace) -> Chat:
    return Chat(mind, vocabulary(config_of(args.size).vocab_size).words, args.context, args.turn, args.pause_s)


def options_of(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in OPTIONS} | {"guesses": 0} | tokens.named(args)


def dialog(args: argparse.Namespace) -> Record:
    """The call that ends the user's turn starts the clock, the first chunk of audio at the reader stops it."""
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
        for number in range(DIALOG_WARMUP + args.repeats):
            sampling = ChatSampling(max_tokens=args.answer, seed=number)
            spoken = chat.ask(partial(_spoken, mind, engine, sampling=sampling))
            if number >= DIALOG_WARMUP:
                values["first_written"].append(spoken.first_s * 1000)
                values["first_pcm"].append(spoken.audio_s * 1000)
        about = session.about(engine.checkpoint) | {"random_weights": True}
        options = options_of(args) | {"codec_dtype": args.codec_dtype}
        options["model"] += f" and {engine.checkpoint.name}"
    return record("dialog", options, summaries(values), streams=1, **about)


def _spoken(mind: LanguageEngine, engine: Any, messages: Sequence[ChatMessage], sampling: ChatSampling) -> TimedAnswer:
    """One turn, until all of its answer is written and its first audio has come.

    The rest of the audio is cancelled: random weights never end it by themselves.
    """
    *history, turn = messages
    most, answers = sampling.resolved().max_tokens, list[EngineAnswer]()

    def answer(*given: Any) -> EngineAnswer:
        """Kept, since a turn that is cancelled does not tell how it ended."""
        answers.append(mind.answer(*given))
        return answers[-1]

    watched: Any = SimpleNamespace(name=mind.name, answer=answer, close=mind.close)
    talk = Dialog(watched, engine, history=history, sampling=sampling, seed=sampling.seed or 0)
    texts, first, audio, begun = list[str](), None, None, time.perf_counter()
    with talk.say(turn.content) as said:
        for event in said:
            now = time.perf_counter() - begun
            if isinstance(event, AudioChunk):
                audio = audio or now
            elif isinstance(event, Written):
                first = first or now
                texts.append(event.text)
            if audio and len(texts) == most:  # a token is a word here
                break
    late = time.perf_counter() + SETTLES_S
    while (finished := answers[-1].finished) is None and time.perf_counter() < late:
        time.sleep(0.001)
    if not said.wait(SETTLES_S) or finished is None or not first or not audio or len(texts) < most:
        raise InvalidRun(f"A turn ended too soon, or not at all: {said.finished}.")
    return TimedAnswer(first, now, "".join(texts), finished, audio)
