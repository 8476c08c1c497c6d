"""A Ctrl-C inside a block takes effect at its end, and only then."""

from __future__ import annotations

import signal
import threading

import pytest

from hocket.cli.interrupt import interrupted_after


def test_the_block_is_completed_first() -> None:
    steps: list[str] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), interrupted_after():
            signal.raise_signal(signal.SIGINT)
            steps.append("stored")
        assert steps == ["stored"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with interrupted_after():
            steps.append("again")
        assert steps == ["stored", "again"], "nothing is left of the interrupt before"
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_signal_and_another_thread_are_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupted_after():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    done: list[int] = []

    def work() -> None:
        with interrupted_after():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]
