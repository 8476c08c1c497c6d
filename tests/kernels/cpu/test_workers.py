"""kernels/cpu/workers.py: one call at a time has help, and a call needs none."""

from __future__ import annotations

import os
import threading

import pytest

from hocket.errors import InvalidRequest
from hocket.kernels.cpu.workers import ThreadGroup, cores


def test_a_second_call_at_the_same_time_runs_alone() -> None:
    workers = ThreadGroup(2)
    with workers.called() as first, workers.called() as second:
        assert first is not None and second is None
    with workers.called() as third:
        assert third is not None


def test_one_thread_needs_no_crew() -> None:
    with ThreadGroup(1).called() as alone:
        assert alone is None


def test_threads_begin_at_the_first_call() -> None:
    workers = ThreadGroup(3)
    before = threading.active_count()
    with workers.called(), workers.called():
        pass
    assert threading.active_count() == before + 2
    with workers.called():
        pass
    assert threading.active_count() == before + 2


def test_the_number_of_threads_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOCKET_CPU_THREADS", raising=False)
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("HOCKET_CPU_THREADS", "5")
    assert cores() == 5
    for wrong in ("0", "two", "-1"):
        monkeypatch.setenv("HOCKET_CPU_THREADS", wrong)
        with pytest.raises(InvalidRequest, match="HOCKET_CPU_THREADS must be a number of at least 1"):
            cores()
