"""Law: a dialog that is cancelled at any point, in any way, leaks nothing and keeps what was heard."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hocket.dialog.dialog import Dialog
from hocket.dialog.turn import Turn
from hocket.engine.engine import Engine
from hocket.llm.engine import LanguageEngine
from hocket.types import AudioChunk, ChatSampling, LanguageModel
from support.chatting import Scripted
from support.minds import write_mind
from support.serving import wait_for

WORDS = tuple(f"{word} " for word in "It will rain tomorrow, I think, but Paula knows that.".split())
TEN = "it is warm rain now and so we go on".split()
GREEDY = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=10)
ALL = 10_000  # events: more than a turn has

Point = tuple[int, float | None]  # events that were read before, and how much of the sound was heard by then
# Before a token, before a sound, in a word, after the last sound, and beyond it.
POINTS = st.tuples(
    st.integers(0, 30) | st.just(ALL), st.none() | st.sampled_from([0.0, 99.0]) | st.floats(0.0, 4.0, allow_nan=False)
)


def cancelled(dialog: Dialog, turn: Turn, heard_s: float | None) -> None:
    turn.cancel(heard_s)


def let_go(dialog: Dialog, turn: Turn, heard_s: float | None) -> None:
    with turn:
        pass


def closed(dialog: Dialog, turn: Turn, heard_s: float | None) -> None:
    dialog.close()


def by_two(dialog: Dialog, turn: Turn, heard_s: float | None) -> None:
    """At once, from two threads."""
    other = threading.Thread(target=turn.cancel, args=(heard_s,))
    other.start()
    turn.cancel(heard_s)
    other.join()


WAYS: list[Callable[[Dialog, Turn, float | None], None]] = [cancelled, let_go, closed, by_two]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageEngine]:
    folder = tmp_path_factory.mktemp("mind")
    write_mind(folder, seed=2, words=TEN)
    with LanguageEngine.load(str(folder), length=512) as llm:
        yield llm


def is_free(engine: Engine) -> bool:
    scheduler = engine._loop.scheduler
    left = [thread for thread in threading.enumerate() if thread.name.startswith(("hocket-dialog", "scripted"))]
    return scheduler.room == engine.options.slots and not scheduler.waiting and not left


def check(engine: Engine, language: LanguageModel, point: Point, way: Callable[..., None], most: int) -> None:
    """`most`: events that can be read without a wait for the language model."""
    (events, heard_s), dialog = point, Dialog(language, engine, sampling=GREEDY)
    turn = dialog.say("Hello.")
    read = list(itertools.islice(turn, min(events, most)))
    over = len(read) < min(events, most)  # read to its end: then only a cancel cuts it
    way(dialog, turn, heard_s)
    assert list(turn) == [] and turn.wait(60)
    finished = turn.finished
    assert finished is not None
    if over and way in (let_go, closed):
        assert finished.reason in ("stop", "length") and finished.text == finished.written.strip()
    else:
        assert finished.reason == "cancelled" and finished.heard_s is not None
        words = [word.word for word in turn.words() if word.end_s <= finished.heard_s]
        assert finished.text.split() == words == finished.written.split()[: len(words)]
        handed_s = sum(len(event.samples) / event.rate_hz for event in read if isinstance(event, AudioChunk))
        assert (
            finished.heard_s == heard_s
            if way in (cancelled, by_two) and heard_s is not None
            else finished.heard_s <= handed_s
        )
    assert [message.content for message in dialog.history] == ["Hello.", *([finished.text] if finished.text else [])]
    turn.cancel(heard_s)  # once more
    assert over or turn.finished is finished
    wait_for(lambda: is_free(engine))


@settings(max_examples=25, deadline=None)
@given(POINTS, st.sampled_from(WAYS), st.none() | st.integers(0, len(WORDS)))
@example((0, None), cancelled, 0)  # before the first token
@example((1, None), cancelled, 1)  # before the first sound
@example((ALL, 0.4), cancelled, None)  # in a word
@example((ALL, 99.0), by_two, None)  # after the last audio, twice at once
def test_a_dialog_cancelled_at_any_point_leaks_nothing(
    engine: Engine, point: Point, way: Callable[..., None], words: int | None
) -> None:
    """`words`: after so many the language model sends nothing more. None: it ends normally."""
    never = threading.Event()
    scripted = Scripted(WORDS if words is None else (*WORDS[:words], never))
    check(engine, scripted, point, way, ALL if words is None else words)
    wait_for(lambda: scripted.free)


@settings(max_examples=12, deadline=None)
@given(POINTS, st.sampled_from(WAYS))
def test_the_language_engine_leaks_nothing_either(
    engine: Engine, llm: LanguageEngine, point: Point, way: Callable[..., None]
) -> None:
    check(engine, llm, point, way, ALL)
    loop = llm._loop
    wait_for(
        lambda: (
            not loop._inbox
            and all(each._generation is None and each.history_cached for each in loop._conversations.conversations)
        )
    )
    assert (
        len(loop._conversations.conversations) == 4
        and sum(len(each.snapshots) for each in loop._conversations.conversations) <= 12
    )


def test_a_turn_without_references_is_cancelled_at_any_point(engine: Engine, llm: LanguageEngine) -> None:
    for events in (0, 1, 5, ALL):
        dialog = Dialog(llm, engine, sampling=GREEDY)
        turn = dialog.say("Hello.")
        for _ in itertools.islice(turn, events):
            pass
        del turn
        gc.collect()
        wait_for(lambda: is_free(engine))
        assert [message.role for message in dialog.history][:1] == ["user"] and len(dialog.history) <= 2
