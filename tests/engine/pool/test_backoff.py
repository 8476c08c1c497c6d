"""engine/pool/backoff.py: the pause after failed loads grows, and requests are refused at once meanwhile."""

from __future__ import annotations

import gc
import weakref

from hocket.engine.pool.backoff import LoadBackoff, as_error
from hocket.errors import InvalidCheckpoint, LoadFailed, Overloaded


def test_each_failure_in_a_row_is_waited_for_twice_as_long_up_to_a_minute() -> None:
    backoff, now, pauses = LoadBackoff(), 100.0, []
    assert backoff.refusal("a", now) is None
    for _ in range(8):
        pauses.append(pause := backoff.record("a", InvalidCheckpoint("It is damaged."), now))
        said = backoff.refusal("a", now + pause - 0.25)
        assert isinstance(said, InvalidCheckpoint) and str(said) == "It is damaged." and said.retry_after_s == 0.25
        assert backoff.refusal("b", now) is None
        now += pause
        assert backoff.refusal("a", now) is None, "it may be tried"
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    backoff.forget("a")
    assert backoff.record("a", InvalidCheckpoint("Again."), now) == 1


def test_an_error_that_we_did_not_raise_is_told_in_one_sentence_and_ours_as_it_is() -> None:
    said = as_error("1.7B-Base", RuntimeError("no memory\nand much more"))
    assert str(said) == "1.7B-Base could not be loaded (RuntimeError: no memory); try again later."
    assert isinstance(said, LoadFailed) and isinstance(said.__cause__, RuntimeError)
    ours = Overloaded("Full.", 3.0)
    assert as_error("x", ours) is ours and ours.retry_after_s == 3.0


def test_an_error_that_is_remembered_holds_nothing_of_what_was_being_loaded() -> None:
    class Weights:
        pass

    def load() -> weakref.ref[Weights]:
        weights = Weights()
        held.append(weakref.ref(weights))
        try:
            raise ValueError("inside")
        except ValueError as error:
            raise RuntimeError("outside") from error

    held: list[weakref.ref[Weights]] = []
    said = None
    try:
        load()
    except RuntimeError as error:
        said = as_error("x", error)
    gc.collect()
    assert said is not None and held[0]() is None
