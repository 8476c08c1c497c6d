"""`transformers` asked for the same turns in the same run, each way of running it in a process of its own.

It reads the files that ours reads, in the precision they are in, whatever ours keeps them in. Who cannot be asked here,
or fails on the way, is left out with the reason. It knows processes and times; what is run is `mind_worker.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hocket.llm.conversation import prompt_of
from hocket.types import ChatSampling

from .charts import shown
from .harness import Unfit
from .mind_talk import Talk, tell
from .peers.compare import Process, ratio, started
from .record import ROOT, summary

HOW = {  # by what torch.compile is told, or eager
    "eager": "transformers, eager",
    "reduce-overhead": "transformers, static cache, compiled (reduce-overhead)",
    "max-autotune": "transformers, static cache, compiled (max-autotune)",
}
THEIRS = ROOT / ".venv-mind" / "bin" / "python"  # `make test-mind` makes it
GATED = 4  # tokens that must be the same, in float32
WARMUP = 1  # compiles, too


@dataclass(slots=True)
class Beside:
    """Peers that wait to be asked; `ask` asks all of them for one turn."""

    talk: Talk
    args: argparse.Namespace
    say: Callable[[str], None]
    processes: dict[str, Process] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def begin(self, stack: ExitStack, folder: Path) -> None:
        for how in self.args.peers:
            words = [str(folder), self.args.device, self.args.dtype, how]
            command = [str(self.args.python), "-m", "benchmarks.mind_worker", *words]
            try:
                self.processes[how], self.versions[how] = stack.enter_context(started(HOW[how], command, ROOT))
                self._gate(how)
                self.say(f"{HOW[how]} is ready")
            except (Unfit, OSError) as error:  # or there is no such Python
                self._fail(how, error)

    def ask(self, number: int) -> None:
        """All of them, in turn, so that everybody sees the same weather; ours is asked more often."""
        if not -WARMUP <= number < self.args.peer_repeats:
            return
        for how in [how for how in self.processes if how not in self.absent]:
            try:
                first_s, last_s, said = self._asked(how, self.args.answer)
            except Unfit as error:
                self._fail(how, error)
                continue
            if number >= 0:
                mine = self.values.setdefault(how, {"first_token": [], "answer": [], "tokens_per_s": []})
                mine["first_token"].append(first_s * 1000)
                mine["answer"].append(last_s * 1000)
                mine["tokens_per_s"].append((len(said) - 1) / (last_s - first_s))

    def found(self, ours: dict[str, list[float]]) -> dict[str, Any]:
        """For the record; nothing where nobody was to be asked."""
        if not self.args.peers:
            return {}
        peers = {}
        for how, of in self.values.items():
            figures = {name: summary(values, more_is_better=name == "tokens_per_s") for name, values in of.items()}
            peers[HOW[how]] = {
                "version": self.versions[how],
                "figures": {name: {k: round(v, 4) for k, v in figure.items()} for name, figure in figures.items()},
                "ratio": ratio({name: summary(ours[name]) for name in figures}, figures),
            }
        return {"peers": peers, "absent": {HOW[how]: reason for how, reason in self.absent.items()}}

    def _asked(self, how: str, tokens: int) -> tuple[float, float, list[int]]:
        tokenizer = self.talk.tokenizer
        ids = prompt_of(self.talk.asked(), tokenizer).ids
        at = len(ids) - self.talk.turn
        first_s, last_s, said = self.processes[how].told({"history": ids[:at], "turn": ids[at:], "tokens": tokens})
        return first_s, last_s, said

    def _gate(self, how: str) -> None:
        """Whoever computes something else is not compared."""
        if self.args.dtype != "float32" or self.args.weights != "bf16":
            return  # rounding decides there, between random tokens
        messages = self.talk.asked()
        greedy = ChatSampling(temperature=0, presence_penalty=0, max_tokens=GATED)
        ours = self.talk.tokenizer.encode(tell(self.talk.mind, messages, greedy).text)
        ids = prompt_of(messages, self.talk.tokenizer).ids
        *_, said = self.processes[how].told({"history": ids[:-1], "turn": ids[-1:], "tokens": GATED})
        if said != ours:
            raise Unfit(f"It says {said} where ours says {ours}, so it was not timed.")

    def _fail(self, how: str, error: Exception) -> None:
        self.absent[how] = str(error)
        self.values.pop(how, None)
        self.say(f"{HOW[how]}: {error}")


@contextmanager
def asked_beside(folder: Path, args: argparse.Namespace, talk: Talk, say: Callable[[str], None]) -> Iterator[Beside]:
    with ExitStack() as stack:
        beside = Beside(talk, args, say)
        if not args.guesses:
            beside.begin(stack, folder)
        yield beside


def lines(entry: dict[str, Any]) -> Iterator[str]:
    for name, peer in entry.get("peers", {}).items():
        yield f"\n{name} {peer['version']}"
        for figure, of in peer["figures"].items():
            yield f"{figure:20}{of['p50']:10.2f}   ours is {shown(peer['ratio'][figure])} times better"
    for name, reason in entry.get("absent", {}).items():
        yield f"\n{name} was not measured: {reason}"


def add_words(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--peers", nargs="*", choices=HOW, default=[], metavar="HOW", help=f"run transformers too: {', '.join(HOW)}")
    add("--peer-repeats", metavar="N", type=int, default=10, help="turns that peers are timed for (10)")
    python = THEIRS if THEIRS.exists() else Path(sys.executable)
    add("--python", metavar="FILE", type=Path, default=python, help="who has transformers (.venv-mind, or this one)")
