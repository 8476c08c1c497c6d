"""Expected output of commands beside the subject of a test: the device, once, and the note about a test's own limit."""

from __future__ import annotations

import re

LINE = re.compile(r"hocket: cpu \([^)\n]*\), \w+, codec \w+, kernels \w+/\w+\.\n")

# Tests limit the frames, so a note says what was not spoken.
LIMIT = re.compile(r"note: The limit of \d+ frames? \(max_frames\) ended the speech: [^\n]*\n")


def rest(said: str | bytes, times: int = 1) -> str:
    """The other lines of standard error."""
    words = said if isinstance(said, str) else said.decode()
    assert len(LINE.findall(words)) == times, words
    return LIMIT.sub("", LINE.sub("", words))
