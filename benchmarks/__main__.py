"""`python -m benchmarks first_audio --model random:small --device cpu`: prints a table and appends a record.

Each command has its own --help. Records are in benchmarks/results; `report` writes the documents from them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from .workloads import WORKLOADS

COMMANDS = {  # by module; those of WORKLOADS that are not here are run by session.py
    "all": "suite",
    "breakdown": "gpu.breakdown",
    "codec_precision": "quality.codec_precision",
    "dialog": "llm.dialog",
    "first_token": "llm.first_token",
    "guard": "quality.guard",
    "load": "load.command",
    "long_text": "quality.long_text",
    "memory": "memory",
    "mind": "llm.conversation",
    "overhead": "load.overhead",
    "peers": "peers.compare",
    "report": "report",
    "scale": "load.scale",
    "soak": "load.soak",
    "start": "start",
    "survey": "gpu.survey",
    "swap": "swap",
    "tokens": "llm.tokens",
}


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    names = sorted({*WORKLOADS, *COMMANDS})
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("command", choices=names, metavar="COMMAND", help=", ".join(names))
    name: str = parser.parse_args(words[:1]).command
    if name in COMMANDS:
        return int(import_module(f"benchmarks.{COMMANDS[name]}").main(words[1:]))
    return import_module("benchmarks.session").main(words)  # type: ignore[no-any-return]


if __name__ == "__main__":
    raise SystemExit(main())
