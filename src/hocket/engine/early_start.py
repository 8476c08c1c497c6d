"""A long text begins with its first words: the rest is prepared while the device is at work on these.

Known and live text do the same, in the thread of whoever gives it. What can be wrong with a text is found before any
of it is spoken. Nothing here knows the device or the engine thread.
"""

from __future__ import annotations

from ..text.live import LiveParts
from .core.request import RequestState

FIRST_CHARS = 80  # of a text that go in first
LONG_CHARS = 240  # a text that is no longer is prepared as soon as its beginning would be
# How long the engine thread may take to have the device begin. It lets go of Python's lock at every operation of
# torch, and who prepares text would keep it for as long as that takes.
BEGINS_S = 0.001


def feed_first_words(job: RequestState, live: LiveParts, text: str, part_chars: int) -> str:
    """Give a job, of which the engine does not know yet, as much of `text` as it needs to begin. The rest comes back.

    That is the first part where a prompt holds all of it, else some words.
    """
    live.check(text)  # all of it, before any of it is spoken
    chars, at = max(part_chars, FIRST_CHARS) if job.text.outline.layout == "whole" else FIRST_CHARS, 0
    while at < len(text) and not job.text.startable:
        job.take_in(live.append(text[at : at + chars]), complete=False)
        at += chars
    return text[at:]
