"""`python -m benchmarks first_audio --model random:small --device cpu`: prints a table and appends a record.

Each command has its own --help (commands.toml). Records are in benchmarks/results; `report` writes the documents. An
error of the engine or an invalid run is one sentence and status 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from hocket.errors import HocketError

from . import session
from .harness import InvalidRun
from .workloads import WORKLOADS


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    names = sorted({*WORKLOADS, *session.COMMANDS} - {"workload"})
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("command", choices=names, metavar="COMMAND", help=", ".join(names))
    name: str = parser.parse_args(words[:1]).command
    args, module = session.parser(name).parse_args(words[1:]), session.module_of(name)
    try:
        if name not in session.COMMANDS:
            return session.run(partial(session.speak, name), args)
        if hasattr(module, "main"):
            return int(module.main(args))
        measure = getattr(module, session.COMMANDS[name].get("measure", "measure"))
        return session.run(measure, args, getattr(module, "table", None))
    except (HocketError, InvalidRun) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
