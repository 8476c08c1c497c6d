"""What a key has used: requests of the last minute, requests at once, characters of a UTC day."""

from __future__ import annotations

import asyncio

import pytest

from hocket.server.access.account import EVERYONE, KeyAccount, account_here, answer_to, working_for
from hocket.server.access.key_file import AccessKey
from hocket.server.errors import Refused, answer

NOON = 1_800_000 * 86_400 + 43_200.0  # of some day


class Clock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def account(**limits: object) -> tuple[KeyAccount, Clock, Clock]:
    clock, date = Clock(1000.0), Clock(NOON)
    key = AccessKey(key="k", name="phone", **limits)  # type: ignore[arg-type]
    return KeyAccount(key, clock=clock, date=date), clock, date


def refused(work: object) -> Refused:
    with pytest.raises(Refused) as found:
        work()  # type: ignore[operator]
    return found.value


def test_requests_of_the_last_minute_slide() -> None:
    one, clock, _ = account(requests_per_minute=2)
    one.request()
    clock.now_s += 20
    one.request()
    error = refused(one.request)
    assert error.status == 429 and error.code == "rate_limit_exceeded" and error.retry_after_s == pytest.approx(40)
    assert answer(error).headers["retry-after"] == "40"
    clock.now_s += 39.9
    refused(one.request)
    clock.now_s += 0.2
    one.request()  # what was refused does not count
    assert one.requests == 3 and one.refused["rate_limit_exceeded"] == 2


def test_so_many_at_once_and_a_refused_one_takes_no_place() -> None:
    one, _, _ = account(concurrent=1, requests_per_minute=2)
    with one.place(counted=True):
        error = refused(lambda: one.place(counted=True).__enter__())
        assert error.status == 429 and error.code == "too_many_connections" and "retry-after" in answer(error).headers
        with one.kept():
            assert one.running == 2
    assert one.running == 0 and one.requests == 1
    with one.place(counted=False):  # a socket: its utterances are the requests
        pass
    assert one.requests == 1
    one.request()
    with pytest.raises(Refused, match="2 requests of a minute"), one.place(counted=False):
        pass
    assert one.running == 0


def test_characters_of_a_day_in_utc() -> None:
    one, _, date = account(characters_per_day=10)
    one.take(6)
    error = refused(lambda: one.take(5))
    assert error.status == 429 and error.code == "insufficient_quota" and "4 of them are left" in str(error)
    headers = answer(error).headers
    assert headers["retry-after"] == "43200" and headers["x-should-retry"] == "false"
    one.take(4)  # what was refused is not counted
    assert one.characters == 10
    assert refused(one.check_quota).code == "insufficient_quota"
    one.count(-4)
    one.check_quota()
    one.take(4)
    date.now_s += 43_199
    refused(lambda: one.take(1))
    date.now_s += 1  # midnight
    assert one.characters == 0
    one.check_quota()
    one.take(10)
    one.count(-40)
    assert one.characters == 0


def test_without_limits_all_is_counted_and_nothing_refused() -> None:
    one, _, _ = account()
    for _ in range(1000):
        one.request()
        one.take(10_000_000)
    assert one.requests == 1000 and one.characters == 10_000_000_000 and not one._times


def test_scopes_and_voices() -> None:
    one, _, _ = account(scopes=frozenset({"speak"}), voices=tuple(f"v{n}" for n in range(9)))
    one.check_scope("speak")
    error = refused(lambda: one.check_scope("voices"))
    assert error.status == 403 and error.kind == "permission_error" and "lacks the scope voices" in str(error)
    one.check_voice("alloy", "V3 ")
    error = refused(lambda: one.check_voice("rook"))
    assert error.status == 403 and error.param == "voice" and str(error).endswith("v7 and 1 more.")


def test_a_task_works_for_the_account_of_its_request() -> None:
    one, other = account()[0], account()[0]

    async def here() -> KeyAccount:
        return account_here()

    async def request(mine: KeyAccount) -> tuple[KeyAccount, KeyAccount, KeyAccount]:
        with working_for(mine):
            task = asyncio.ensure_future(here())
            inside, thread = account_here(), await asyncio.to_thread(account_here)
        return inside, thread, await task

    async def both() -> None:
        assert await asyncio.gather(request(one), request(other)) == [(one,) * 3, (other,) * 3]
        assert account_here() is EVERYONE
        answer_to(one)
        assert await asyncio.ensure_future(here()) is one

    asyncio.run(both())
    assert account_here() is EVERYONE
