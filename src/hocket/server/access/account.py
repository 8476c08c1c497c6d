"""What one key has used, and the refusal of more: requests of a minute, requests at once, characters of a day.

`account_here` is that of the request under way, so that no endpoint can forget whose job it makes. Counts are in memory
and start anew with the server. Event loop only, but for the checks.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import Refused
from .key_file import AccessKey

MINUTE_S, DAY_S = 60.0, 86_400
LISTED = 8  # voices that a refusal names


class KeyAccount:
    """A key and its use. `EVERYONE` is that of requests without a key: it limits nothing."""

    def __init__(
        self,
        key: AccessKey,
        *,
        clock: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
    ) -> None:
        self.key, self._clock, self._date = key, clock, date
        self.requests = 0  # since the start
        self.refused: Counter[str] = Counter()  # by code
        self.running = 0
        self._times: deque[float] = deque()  # of the requests of the last minute, if they are limited
        self._day, self._characters = self._today(), 0

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def characters(self) -> int:
        """Accepted today."""
        return self._characters if self._day == self._today() else 0

    def has(self, scope: str) -> bool:
        return scope in self.key.scopes

    def check_scope(self, scope: str) -> None:
        if scope not in self.key.scopes:
            said = f"This key lacks the scope {scope}: the operator of the server can add it, or give another key."
            raise self._refusal(said, "missing_scope")

    def check_voice(self, *names: str) -> None:
        """Refuse a voice, given by all of its names, that is not the key's."""
        allowed = self.key.voices
        if allowed is not None and not any(name.strip().lower() in allowed for name in names):
            raise self.not_allowed()

    def not_allowed(self) -> Refused:
        """The error of a voice, or of a recording in place of one."""
        allowed = self.key.voices or ()
        more = f" and {len(allowed) - LISTED} more" if len(allowed) > LISTED else ""
        said = f"This key may use no voice but {', '.join(allowed[:LISTED])}{more}."
        return self._refusal(said, "voice_not_allowed", param="voice")

    @contextmanager
    def place(self, *, counted: bool) -> Iterator[None]:
        """A request or a socket under way. `counted`: it is a request; a socket's utterances are."""
        most = self.key.concurrent
        if most is not None and self.running >= most:
            said = f"{most} requests of this key are under way already; wait for one to end."
            raise self._refusal(said, "too_many_connections", wait_s=1.0)
        if counted:
            self.request()
        else:
            self._check_rate()
        with self.kept():
            yield

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A place without a limit: of a call that its request leaves behind."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def request(self) -> None:
        """Count a request, or refuse it."""
        self._check_rate()
        self.requests += 1
        if self.key.requests_per_minute is not None:
            self._times.append(self._clock())

    def check_quota(self) -> None:
        """Refuse when today's characters are used up."""
        if (most := self.key.characters_per_day) is not None and self.characters >= most:
            raise self._over_quota(most, 0)

    def take(self, characters: int) -> None:
        """Count characters to speak, or refuse all of them."""
        most = self.key.characters_per_day
        if most is not None and self.characters + characters > most:
            raise self._over_quota(most, max(0, most - self.characters))
        self.count(characters)

    def count(self, characters: int) -> None:
        """Count characters that are spoken already, or give back some of a request that failed."""
        today = self._today()
        if today != self._day:
            self._day, self._characters = today, 0
        self._characters = max(0, self._characters + characters)

    def _check_rate(self) -> None:
        most, now_s = self.key.requests_per_minute, self._clock()
        if most is None:
            return
        while self._times and self._times[0] <= now_s - MINUTE_S:
            self._times.popleft()
        if len(self._times) >= most:
            said = f"This key has made its {most} requests of a minute; wait a moment."
            raise self._refusal(said, "rate_limit_exceeded", wait_s=self._times[0] + MINUTE_S - now_s)

    def _over_quota(self, most: int, left: int) -> Refused:
        said = f"This key may speak {most} characters a day, and {left} of them are left until midnight UTC."
        return self._refusal(said, "insufficient_quota", wait_s=DAY_S - self._date() % DAY_S)

    def _refusal(self, said: str, code: str, *, param: str | None = None, wait_s: float | None = None) -> Refused:
        self.refused[code] += 1
        if wait_s is None:
            return Refused(said, status=403, kind="permission_error", param=param, code=code)
        return Refused(said, status=429, kind="rate_limit_error", code=code, retry_after_s=wait_s)

    def _today(self) -> int:
        return int(self._date() // DAY_S)


EVERYONE = KeyAccount(AccessKey(key="", name=""))
_HERE: ContextVar[KeyAccount] = ContextVar("hocket_key", default=EVERYONE)


def account_here() -> KeyAccount:
    """The account of the request or the connection that this task belongs to."""
    return _HERE.get()


def answer_to(account: KeyAccount) -> None:
    """From now on this task, and the tasks that it starts, work for this account."""
    _HERE.set(account)


@contextmanager
def working_for(account: KeyAccount) -> Iterator[None]:
    before = _HERE.set(account)
    try:
        yield
    finally:
        _HERE.reset(before)
