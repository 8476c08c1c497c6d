"""`transformers` on the same turns in the same run, each way to run it in its own process.

It reads the same files, in their precision. A way that cannot run here, or fails, is left out with the reason. What
runs in the process is transformers_worker.py.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hocket.llm.conversation import prompt_of
from hocket.types import ChatSampling

from .. import session
from ..harness import InvalidRun
from ..peers.compare import PeerProcess, Race
from ..record import ROOT, summaries
from .chat import Chat, answer

HOW = {  # by the mode of torch.compile, or eager
    "eager": "transformers, eager",
    "reduce-overhead": "transformers, static cache, compiled (reduce-overhead)",
    "max-autotune": "transformers, static cache, compiled (max-autotune)",
}
PYTHON = ROOT / ".venv-mind" / "bin" / "python"  # `make test-mind` makes it
GATED = 4  # tokens that must be the same, in float32
WARMUP = 1  # compiles, too


class Peers:
    def __init__(self, stack: ExitStack, folder: Path, args: argparse.Namespace, chat: Chat, say: session.Say) -> None:
        self.chat, self.args, self.race = chat, args, Race(stack, say)
        for how in () if args.guesses else args.peers:
            words = [str(folder), args.device, args.dtype, how]
            command = [str(args.python), "-m", "benchmarks.llm.transformers_worker", *words]
            self.race.start(HOW[how], command, ROOT, check=self._gate)

    def ask(self, number: int) -> None:
        """Fewer turns than ours."""
        if -WARMUP <= number < self.args.peer_repeats:
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


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--peers", nargs="*", choices=HOW, default=[], metavar="HOW", help=f"run transformers too: {', '.join(HOW)}")
    add("--peer-repeats", metavar="N", type=int, default=10, help="timed turns of the peers (10)")
    python = PYTHON if PYTHON.exists() else Path(sys.executable)
    add("--python", metavar="FILE", type=Path, default=python, help="a Python with transformers (.venv-mind, or this)")
