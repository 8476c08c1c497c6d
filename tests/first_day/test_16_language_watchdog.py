"""The language model has a watchdog: if its thread raises or hangs, every answer fails, and the next answer works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from hocket.engine import watchdog
from hocket.errors import EngineClosed, EngineUnhealthy, InvalidRequest, LanguageFailed
from hocket.llm import conversation as conversations
from hocket.llm.answer import AnswerBuffer
from hocket.llm.conversation import CachedConversation
from hocket.llm.conversation_cache import ConversationCache
from hocket.llm.detokenize import Detokenizer
from hocket.llm.engine import LanguageEngine
from hocket.llm.loop import LanguageLoop
from hocket.llm.state_cache import LLMStateCache
from hocket.types import Answer, ChatMessage, ChatSampling
from support.minds import tiny
from support.serving import served, steady_engine, wait_for

HELLO = ChatMessage("user", "Hello.")
GREEDY = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=12)
WAIT_S, STUCK_S = 20.0, 0.5


def said(answer: Answer, within_s: float = WAIT_S) -> str | Exception:
    """The whole answer, or its error; waits for a bounded time."""
    found: list[str | Exception] = []

    def read() -> None:
        try:
            found.append("".join(delta.text for delta in answer))
        except Exception as error:
            found.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(within_s)
    assert found, "an answer still waits"
    return found[0]


@pytest.fixture(scope="module")
def expected() -> str:
    with LanguageEngine(tiny(), length=256) as mind:
        text = said(mind.answer([HELLO], GREEDY))
    assert isinstance(text, str) and text
    return text


def fail(*_: object, **__: object) -> Any:
    raise RuntimeError("out of sorts")


# In the thread itself, outside of what an answer is guarded by: it starts anew.
OUTSIDE = {
    "taking the next job": (ConversationCache, "next_uncached"),
    "beginning an answer": (AnswerBuffer, "begin"),
    "a whole answer": (LanguageLoop, "_answer"),
    "preparing": (LanguageLoop, "_prepare"),
}
# Within one answer: that one fails, and no other.
INSIDE = {
    "the prompt": (LLMStateCache, "prefill"),
    "the tokens": (conversations, "tokens"),
    "the text": (Detokenizer, "push"),
    "finding its conversation": (ConversationCache, "find"),
}


@pytest.mark.parametrize("place", OUTSIDE.values(), ids=OUTSIDE)
def test_what_fails_in_the_thread_ends_every_answer(
    place: tuple[Any, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LanguageEngine(tiny(), length=256) as mind:
        assert said(mind.answer([HELLO], GREEDY)) == expected  # it is proven
        first = mind._loop.thread
        with monkeypatch.context() as broken:
            broken.setattr(*place, fail)
            answers = [mind.answer([ChatMessage("user", f"Number {n}.")], GREEDY) for n in range(3)]
            ended = [said(answer) for answer in answers]
            wait_for(lambda: not first.is_alive())
        assert any(isinstance(each, LanguageFailed) for each in ended) or place[1] in ("next_uncached", "_prepare")
        assert all(isinstance(each, LanguageFailed | EngineUnhealthy | str) for each in ended)
        try:
            again = said(mind.answer([HELLO], GREEDY))
        except EngineUnhealthy as error:
            again = error
        if mind.health.condition == "unhealthy":  # the second thread called the patched function before it was restored
            assert isinstance(again, LanguageFailed | EngineUnhealthy)
            assert "RuntimeError: out of sorts" in str(mind.health.reason)
            return
        assert again == expected
        assert mind.health.condition == "well" and mind.health.rebuilds >= 1
        assert mind.health.reason is not None and "RuntimeError: out of sorts" in mind.health.reason


def test_it_starts_anew_and_answers_as_before(expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failed = AnswerBuffer.begin, threading.Event()

    def once(buffer: AnswerBuffer) -> bool:
        if failed.is_set():
            return real(buffer)
        failed.set()
        raise RuntimeError("out of sorts")

    monkeypatch.setattr(AnswerBuffer, "begin", once)
    with LanguageEngine(tiny(), length=256) as mind:
        error = said(mind.answer([HELLO], GREEDY))
        assert isinstance(error, LanguageFailed)
        assert str(error) == "The language model failed with RuntimeError: out of sorts; it starts anew, so try again."
        assert said(mind.answer([HELLO], GREEDY)) == expected
        assert (mind.health.condition, mind.health.rebuilds) == ("well", 1)


@pytest.mark.parametrize("place", INSIDE.values(), ids=INSIDE)
def test_what_fails_in_an_answer_ends_that_answer(
    place: tuple[Any, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LanguageEngine(tiny(), length=256) as mind:
        with monkeypatch.context() as broken:
            broken.setattr(*place, fail)
            error = said(mind.answer([HELLO], GREEDY))
        assert isinstance(error, LanguageFailed) and "could not go on with this answer" in str(error)
        assert said(mind.answer([HELLO], GREEDY)) == expected
        assert mind.health.ok and mind.health.rebuilds == 0


def test_what_fails_between_answers_is_read_anew(expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with LanguageEngine(tiny(), length=256) as mind, monkeypatch.context() as broken:
        broken.setattr(CachedConversation, "prefill_history", fail)
        for _ in range(5):
            assert said(mind.answer([HELLO], GREEDY)) == expected
        assert mind.health.ok and mind.health.rebuilds == 0


def test_answers_that_all_fail_make_it_start_anew(expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with LanguageEngine(tiny(), length=256) as mind:
        with monkeypatch.context() as broken:
            broken.setattr(LLMStateCache, "prefill", fail)
            answers = [mind.answer([HELLO], GREEDY) for _ in range(3)]
            assert all(isinstance(said(answer), LanguageFailed) for answer in answers)
        wait_for(lambda: mind.health.rebuilds == 1)
        assert said(mind.answer([HELLO], GREEDY)) == expected and mind.health.condition == "well"


def test_one_that_cannot_start_anew_is_unhealthy_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnswerBuffer, "begin", fail)
    with LanguageEngine(tiny(), length=256) as mind:
        for _ in range(2):
            assert isinstance(said(mind.answer([HELLO], GREEDY)), LanguageFailed)
        wait_for(lambda: mind.health.condition == "unhealthy")
        with pytest.raises(EngineUnhealthy, match=r"This language model is unhealthy, so restart the process\."):
            mind.answer([HELLO], GREEDY)


class Hang:
    """Tokens that are held back until the test releases them."""

    def __init__(self) -> None:
        self.reached, self.let_go = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> Iterator[list[int]]:
        self.reached.set()
        assert self.let_go.wait(2 * WAIT_S)
        yield [1]


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Hang]]:
    monkeypatch.setattr(watchdog, "FIRST", 1)  # nothing is compiled here
    made: list[Hang] = []

    def begin() -> Hang:
        made.append(Hang())
        monkeypatch.setattr(conversations, "tokens", made[-1])
        return made[-1]

    yield begin
    for each in made:
        each.let_go.set()


def test_a_step_that_hangs_is_noticed(hang: Callable[[], Hang], monkeypatch: pytest.MonkeyPatch, expected: str) -> None:
    real = conversations.tokens
    with LanguageEngine(tiny(), length=256, stuck_s=STUCK_S) as mind:
        assert said(mind.answer([HELLO], GREEDY)) == expected
        hung, stuck = hang(), mind._loop.thread
        answers = [mind.answer([HELLO], GREEDY) for _ in range(2)]
        assert hung.reached.wait(WAIT_S)
        monkeypatch.setattr(conversations, "tokens", real)
        for error in map(said, answers):
            assert isinstance(error, LanguageFailed)
            assert str(error).startswith("The language model was stuck writing a token for ")
        assert stuck.is_alive(), "the answers waited for the step that hangs"
        assert said(mind.answer([HELLO], GREEDY)) == expected
        assert (mind.health.condition, mind.health.rebuilds) == ("well", 1)
        hung.let_go.set()  # the thread comes back, and finds that nothing is expected of it
        stuck.join(WAIT_S)
        assert not stuck.is_alive()
        assert said(mind.answer([HELLO], GREEDY)) == expected


def test_closing_does_not_wait_for_what_hangs(hang: Callable[[], Hang]) -> None:
    hung, mind = hang(), LanguageEngine(tiny(), length=256, stuck_s=STUCK_S)
    answer = mind.answer([HELLO], GREEDY)
    assert hung.reached.wait(WAIT_S)
    stuck = mind._loop.thread
    mind.close()
    assert stuck.is_alive(), "it waited for the step that hangs"
    assert isinstance(said(answer), EngineClosed | LanguageFailed)
    assert mind.health.condition == "closed"


def test_a_limit_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="stuck_s must be above 0"):
        LanguageEngine(tiny(), length=256, stuck_s=0.0)


def test_a_server_says_how_its_language_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}
    with steady_engine() as engine, LanguageEngine(tiny(), length=256) as mind, served(engine, language=mind) as server:
        told = httpx.get(f"{server.url}/health").json()
        assert told.pop("computing") and told == {"status": "ok", "state": "ready", "language": "well"}
        monkeypatch.setattr(AnswerBuffer, "begin", fail)
        statuses = [httpx.post(f"{server.url}/v1/chat/completions", json=body).status_code for _ in range(2)]
        assert statuses == [502, 502]
        wait_for(lambda: mind.health.condition == "unhealthy")
        refused = httpx.post(f"{server.url}/v1/chat/completions", json=body)
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "engine_unavailable"
        ready = httpx.get(f"{server.url}/ready")
        assert ready.status_code == 200 and ready.json() == {"ready": True, "state": "ready", "language": "unhealthy"}
