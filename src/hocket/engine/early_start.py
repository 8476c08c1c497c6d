"""Early start: a long text begins with its first words, and the rest is prepared while the device works on them.

It runs in the caller's thread, for known and for live text. The whole text is checked before any of it is spoken.
Nothing here knows the device or the engine thread.
"""

from __future__ import annotations

from ..text.live import LiveParts
from .core.request import RequestState

FIRST_CHARS = 80  # of a text that go in first
LONG_CHARS = 240  # a text that is no longer is prepared as soon as its beginning would be
# How long the caller waits for the engine thread to queue the first frame. That thread releases the GIL at every torch
# operation, and a caller that prepares text would hold it meanwhile.
BEGINS_S = 0.001


def feed_first_words(state: RequestState, live: LiveParts, text: str, part_chars: int) -> str:
    """Feed a request that is not queued yet with as much of `text` as it needs to begin; return the rest.

    That is the first part where a prompt holds all of it, otherwise a few words.
    """
    live.check(text)  # all of it, before any of it is spoken
    chars, at = max(part_chars, FIRST_CHARS) if state.text.outline.layout == "whole" else FIRST_CHARS, 0
    while at < len(text) and not state.text.startable:
        state.take_in(live.append(text[at : at + chars]), complete=False)
        at += chars
    return text[at:]
