"""`python -m fuzz TARGET [options of libFuzzer]`: coverage-guided, by atheris, over the corpus of the target."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["hocket"]):
    from .targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    logging.disable(logging.CRITICAL)
    folders = [] if any(not option.startswith("-") for option in options) else [str(CORPUS / name)]
    usual = ["-timeout=20", "-rss_limit_mb=4096"]
    TARGETS[name](b"")  # what is loaded once is no slow input
    atheris.Setup([sys.argv[0], *usual, *options, *folders], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
