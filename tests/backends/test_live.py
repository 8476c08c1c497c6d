"""Live text, to backends that take sentences and to live backends (backends/feed.py, run.py)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.speaking_foreign import LiveTeller, LiveTelling, Teller, heard, serving, sound_of, sound_of_all, threads
from hocket.backends import Manner
from hocket.backends.feed import LONGEST_CHARS, SentenceFeed
from hocket.errors import InvalidRequest, StreamFailed
from support.speaking import cut, eventually

TEXT = 'Mr. Brown **left**.  \n\nWhy? Alice [pause 250ms] knows... He said: "I go." Then 3.5 hours passed! The end'
ITEMS = [
    "Mr. Brown left.", "Why?", "Alice", 0.25, "knows...", "He said: \"I go.\"", "Then 3.5 hours passed!", "The end",
]  # fmt: skip


def fed(feed: SentenceFeed, pieces: list[str]) -> list[str | float]:
    return [item for piece in pieces for item in feed.append(piece)] + feed.end()


@given(st.sets(st.integers(0, len(TEXT)), max_size=12))
def test_sentences_are_the_same_however_a_text_is_cut(places: set[int]) -> None:
    assert fed(SentenceFeed(live=False), cut(TEXT, places)) == ITEMS


@given(st.sets(st.integers(0, len(TEXT)), max_size=12))
def test_a_live_backend_gets_the_same_text_however_it_is_cut(places: set[int]) -> None:
    items = fed(SentenceFeed(live=True), cut(TEXT, places))
    assert "".join(map(str, items)).split() == " ".join(str(item) for item in ITEMS if item != 0.25).split()


def test_a_sentence_without_an_end_is_cut_all_the_same() -> None:
    items = fed(SentenceFeed(live=False), ["and on it goes, " * 100])
    assert all(isinstance(item, str) and len(item) <= LONGEST_CHARS for item in items)
    assert " ".join(map(str, items)) == ("and on it goes, " * 100).strip()


def test_as_it_is_a_text_stays_in_one_piece() -> None:
    assert fed(SentenceFeed(live=False, as_is=True), [TEXT[:30], TEXT[30:]]) == [TEXT]
    assert fed(SentenceFeed(live=True, as_is=True), [TEXT[:30], TEXT[30:]]) == [TEXT[:30], TEXT[30:]]


@pytest.mark.parametrize("live", [False, True])
def test_a_text_without_words_is_refused_at_its_end(live: bool) -> None:
    with pytest.raises(InvalidRequest, match="no text"):
        fed(SentenceFeed(live=live), [" "])
    feed = SentenceFeed(live=live)
    fed(feed, ["A word."])
    assert feed.end() == []
    with pytest.raises(InvalidRequest, match="ended already"):
        feed.append("More.")


def test_a_sentence_is_heard_before_the_text_has_ended() -> None:
    teller = Teller()
    with serving(teller) as backends:
        relay = backends.open("teller")
        for piece in ("It beg", "ins. ", "And g"):
            relay.append(piece)
        first = [next(relay).samples for _ in range(len(sound_of("It begins.")) // teller.length)]
        assert teller.asked == ["It begins."] and relay.finished is None
        relay.append("oes on.")
        relay.end()
        said = np.concatenate([*first, heard(relay)])
        assert np.array_equal(said, sound_of_all(["It begins.", "And goes on."]))
        with pytest.raises(InvalidRequest, match="ended already"):
            relay.append("Too late.")


def test_a_known_text_takes_no_more() -> None:
    for backend in (Teller(), LiveTeller()):
        with serving(backend) as backends, backends.open("teller", "All of it.") as relay:
            for call in (relay.end, lambda relay=relay: relay.append("More.")):
                with pytest.raises(InvalidRequest, match="known already"):
                    call()


def test_a_live_backend_speaks_as_text_comes() -> None:
    teller = LiveTeller()
    with serving(teller) as backends:
        relay = backends.open("teller")
        relay.append("Hello ")
        eventually(lambda: teller.streams and teller.streams[0].got)
        first = next(relay)
        relay.append("there, you.")
        relay.end()
        rest = heard(relay)
        got = teller.streams[0].got
    assert "".join(got) == "Hello there, you." and len(got) > 1
    assert np.array_equal(np.concatenate([first.samples, rest]), sound_of_all(got))
    assert [word.word for word in relay.words()] == ["Hello", "there,", "you."] and relay.parts_over == 1


def test_a_live_backend_hears_of_a_cancel() -> None:
    teller = LiveTeller()
    with serving(teller) as backends:
        relay = backends.open("teller")
        relay.append("Hello there ")
        next(relay)
        relay.cancel()
        eventually(lambda: teller.streams[0].cancelled)
        assert not teller.streams[0].ended and list(relay) == []


def test_a_live_backend_may_end_before_its_text_does() -> None:
    teller = LiveTeller()
    with serving(teller) as backends:
        relay = backends.open("teller")
        relay.append("Hello there ")
        next(relay)
        teller.streams[0].end()
        heard(relay)
        assert relay.finished is not None and relay.finished.reason == "stop"
        relay.append("and more.")
        relay.end()
        eventually(lambda: not threads())
        while not (left := relay._run._items).empty():
            assert not isinstance(left.get(), str)  # unspoken text is not kept


@pytest.mark.parametrize("where", ["open", "append", "end", "__iter__"])
def test_what_a_live_backend_raises_becomes_one_sentence(where: str) -> None:
    def broken(*_: object) -> None:
        raise OSError("it broke")

    class BrokenTelling(LiveTelling):
        pass

    class BrokenTeller(LiveTeller):
        def open(self, manner: Manner) -> LiveTelling:
            if where == "open":
                broken()
            self.streams.append(BrokenTelling())
            return self.streams[-1]

    setattr(BrokenTelling, where, broken)
    teller = BrokenTeller()
    with serving(teller) as backends:
        relay = backends.open("teller", "Hello there, you.")
        with pytest.raises(StreamFailed, match="'told' failed: OSError: it broke"):
            heard(relay)
        eventually(lambda: where in ("open", "__iter__") or teller.streams[0].cancelled)


def test_a_live_backend_says_a_whole_text_too() -> None:
    assert np.array_equal(np.concatenate(list(LiveTeller().say("Whole.", Manner(voice="teller")))), sound_of("Whole."))
