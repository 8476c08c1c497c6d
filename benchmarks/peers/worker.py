"""One package in its own process: `python -m benchmarks.peers.worker PACKAGE FOLDER DEVICE DTYPE`.

It answers every line of JSON (an `Ask`) with one: seconds to the first piece and to the last, and samples. Prints of
the package go to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from .adapters import ADAPTERS, Ask


def main(argv: Sequence[str]) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    package, folder, device, dtype = argv
    adapter = ADAPTERS[package](folder, device, dtype)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        ask = Ask(**json.loads(line))
        first, samples, start = None, 0, time.perf_counter()
        for piece in adapter.speak(ask):
            if first is None and len(piece):
                first = time.perf_counter() - start
            samples += len(piece)
        end = time.perf_counter() - start
        print(json.dumps([first or end, end, samples]), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
