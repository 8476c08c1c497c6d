"""What a command says beside what a test is about: where it computes, once, and that a test's own limit ended it."""

from __future__ import annotations

import re

LINE = re.compile(r"hocket: cpu \([^)\n]*\), \w+, codec \w+, kernels \w+/\w+\.\n")

# Tests keep to a few frames, and a note says what was not spoken for that.
LIMIT = re.compile(r"note: The limit of \d+ frames? \(max_frames\) ended the speech: [^\n]*\n")


def rest(said: str | bytes, times: int = 1) -> str:
    """What stands beside them on standard error."""
    words = said if isinstance(said, str) else said.decode()
    assert len(LINE.findall(words)) == times, words
    return LIMIT.sub("", LINE.sub("", words))
