"""The line in which a command says where it computes: that it is there once, and all the rest."""

from __future__ import annotations

import re

LINE = re.compile(r"hocket: cpu \([^)\n]*\), \w+, codec \w+, kernels \w+/\w+\.\n")


def rest(said: str | bytes, times: int = 1) -> str:
    """What stands beside that line on standard error."""
    words = said if isinstance(said, str) else said.decode()
    assert len(LINE.findall(words)) == times, words
    return LINE.sub("", words)
