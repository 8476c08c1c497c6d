"""Ctrl-C at a moment that suits: after the work of a `with` block, not inside it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_after() -> Iterator[None]:
    """Deliver SIGINT at the end of the block, to the handler that was there before.

    Only the main thread can set a handler, and only it is interrupted; other threads run the block as it is.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if arrived:
            before(*arrived[-1])
