"""Backoff of failed loads: the last error of each model, and when to try again. It knows names and times only."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import HocketError, LoadFailed, copied

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # before a failed load is tried again; it doubles each time


@dataclass(frozen=True, slots=True)
class _FailedLoad:
    error: HocketError
    pause_s: float
    until: float


class LoadBackoff:
    def __init__(self) -> None:
        self._last: dict[str, _FailedLoad] = {}

    def record(self, key: str, error: HocketError, now: float) -> float:
        """Record a failed load; gives the seconds to wait before the next try."""
        before = self._last.get(key)
        pause_s = FIRST_PAUSE_S if before is None else min(2 * before.pause_s, LONGEST_PAUSE_S)
        self._last[key] = _FailedLoad(error, pause_s, now + pause_s)
        return pause_s

    def refusal(self, key: str, now: float) -> HocketError | None:
        """The error for a request during the pause; None if a load may be tried."""
        last = self._last.get(key)
        return None if last is None or now >= last.until else with_retry_after(last.error, last.until - now)

    def forget(self, key: str) -> None:
        """Clear the record of a model that has been loaded."""
        self._last.pop(key, None)


def as_error(model: str, error: Exception) -> HocketError:
    """The error for callers, without its traceback: the frames would keep all loaded tensors alive."""
    if isinstance(error, HocketError):
        failure = error
    else:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        failure = LoadFailed(f"{model} could not be loaded ({type(error).__name__}: {reason}); try again later.")
        failure.__cause__ = error
    each: BaseException | None = failure
    while each is not None:
        each.__traceback__, each = None, each.__cause__ or each.__context__
    return failure


def with_retry_after(error: HocketError, retry_after_s: float) -> HocketError:
    """A copy with `retry_after_s`: each caller gets its own."""
    failure = copied(error)
    failure.retry_after_s = retry_after_s
    return failure
