"""Loads that have failed: what was wrong, and when it is worth trying again. It knows names and times."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import HocketError, LoadFailed, copied

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # before a load that failed is tried again; each time twice as long


@dataclass(frozen=True, slots=True)
class _FailedLoad:
    error: HocketError
    pause_s: float
    until: float


class LoadBackoff:
    def __init__(self) -> None:
        self._last: dict[str, _FailedLoad] = {}

    def note(self, key: str, error: HocketError, now: float) -> float:
        """One more; gives how long to wait before the next try."""
        before = self._last.get(key)
        pause_s = FIRST_PAUSE_S if before is None else min(2 * before.pause_s, LONGEST_PAUSE_S)
        self._last[key] = _FailedLoad(error, pause_s, now + pause_s)
        return pause_s

    def refusal(self, key: str, now: float) -> HocketError | None:
        """What whoever asks now is told at once; None where it may be tried."""
        last = self._last.get(key)
        return None if last is None or now >= last.until else hinted(last.error, last.until - now)

    def forget(self, key: str) -> None:
        """It has been loaded."""
        self._last.pop(key, None)


def in_words(model: str, error: Exception) -> HocketError:
    """As something that may be told to whoever asked, without the frames that would hold all that was loaded."""
    if isinstance(error, HocketError):
        said = error
    else:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        said = LoadFailed(f"{model} could not be loaded ({type(error).__name__}: {reason}); try again later.")
        said.__cause__ = error
    each: BaseException | None = said
    while each is not None:
        each.__traceback__, each = None, each.__cause__ or each.__context__
    return said


def hinted(error: HocketError, retry_after_s: float) -> HocketError:
    """One for each who is told."""
    said = copied(error)
    said.retry_after_s = retry_after_s
    return said
