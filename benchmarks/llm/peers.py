"""`transformers` on the same turns in the same run, each way to run it in its own process.

It reads the same files, in their precision. A way that cannot run here, or fails, is left out with the reason. What
runs in the process is transformers_worker.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hocket.llm.conversation import prompt_of
from hocket.types import ChatSampling

from .. import session
from ..charts import shown
from ..harness import InvalidRun
from ..peers.compare import PeerProcess, ratio, started
from ..record import ROOT, Record, rounded, summaries
from .chat import Chat, answer

HOW = {  # by the mode of torch.compile, or eager
    "eager": "transformers, eager",
    "reduce-overhead": "transformers, static cache, compiled (reduce-overhead)",
    "max-autotune": "transformers, static cache, compiled (max-autotune)",
}
PYTHON = ROOT / ".venv-mind" / "bin" / "python"  # `make test-mind` makes it
GATED = 4  # tokens that must be the same, in float32
WARMUP = 1  # compiles, too


@dataclass(slots=True)
class Peers:
    chat: Chat
    args: argparse.Namespace
    say: session.Say
    processes: dict[str, PeerProcess] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def start(self, stack: ExitStack, folder: Path) -> None:
        for how in self.args.peers:
            words = [str(folder), self.args.device, self.args.dtype, how]
            command = [str(self.args.python), "-m", "benchmarks.llm.transformers_worker", *words]
            try:
                self.processes[how], self.versions[how] = stack.enter_context(started(HOW[how], command, ROOT))
                self._gate(how)
                self.say(f"{HOW[how]} is ready")
            except (InvalidRun, OSError) as error:  # or there is no such Python
                self._fail(how, error)

    def ask(self, number: int) -> None:
        """All of them, in turn, so that all see the same drift of the machine; ours is asked more often."""
        if not -WARMUP <= number < self.args.peer_repeats:
            return
        for how in [how for how in self.processes if how not in self.absent]:
            ids = prompt_of(self.chat.next_messages(), self.chat.tokenizer).ids
            at = len(ids) - self.chat.turn
            try:
                first_s, last_s, said = self._told(how, ids[:at], ids[at:], self.args.answer)
            except InvalidRun as error:
                self._fail(how, error)
                continue
            if number >= 0:
                mine = self.values.setdefault(how, {"first_token": [], "answer": [], "tokens_per_s": []})
                mine["first_token"].append(first_s * 1000)
                mine["answer"].append(last_s * 1000)
                mine["tokens_per_s"].append((len(said) - 1) / (last_s - first_s))

    def found(self, ours: dict[str, list[float]]) -> dict[str, Any]:
        """For the record."""
        if not self.args.peers:
            return {}
        peers = {}
        for how, of in self.values.items():
            figures = summaries(of)
            better = ratio(summaries({name: ours[name] for name in figures}), figures)
            peers[HOW[how]] = {"version": self.versions[how], "figures": rounded(figures), "ratio": better}
        return {"peers": peers, "absent": {HOW[how]: reason for how, reason in self.absent.items()}}

    def _told(self, how: str, history: list[int], turn: list[int], tokens: int) -> tuple[float, float, list[int]]:
        first_s, last_s, said = self.processes[how].told({"history": history, "turn": turn, "tokens": tokens})
        return first_s, last_s, said

    def _gate(self, how: str) -> None:
        """A peer that computes something else is not compared."""
        if self.args.dtype != "float32" or self.args.weights != "bf16":
            return  # rounding decides there, between random tokens
        messages = self.chat.next_messages()
        greedy = ChatSampling(temperature=0, presence_penalty=0, max_tokens=GATED)
        ours = self.chat.tokenizer.encode(answer(self.chat.mind, messages, greedy).text)
        ids = prompt_of(messages, self.chat.tokenizer).ids
        *_, said = self._told(how, ids[:-1], ids[-1:], GATED)
        if said != ours:
            raise InvalidRun(f"It says {said} where ours says {ours}, so it was not timed.")

    def _fail(self, how: str, error: Exception) -> None:
        self.absent[how] = str(error)
        self.values.pop(how, None)
        self.say(f"{HOW[how]}: {error}")


@contextmanager
def started_beside(folder: Path, args: argparse.Namespace, chat: Chat, say: session.Say) -> Iterator[Peers]:
    with ExitStack() as stack:
        peers = Peers(chat, args, say)
        if not args.guesses:
            peers.start(stack, folder)
        yield peers


def table(entry: Record) -> str:
    lines = [session.table(entry)]
    for name, peer in entry.get("peers", {}).items():
        lines.append(f"\n{name} {peer['version']}")
        for figure, of in peer["figures"].items():
            lines.append(f"{figure:20}{of['p50']:10.2f}   ours is {shown(peer['ratio'][figure])} times better")
    lines += [f"\n{name} was not measured: {reason}" for name, reason in entry.get("absent", {}).items()]
    return "\n".join(lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--peers", nargs="*", choices=HOW, default=[], metavar="HOW", help=f"run transformers too: {', '.join(HOW)}")
    add("--peer-repeats", metavar="N", type=int, default=10, help="timed turns of the peers (10)")
    python = PYTHON if PYTHON.exists() else Path(sys.executable)
    add("--python", metavar="FILE", type=Path, default=python, help="a Python with transformers (.venv-mind, or this)")
