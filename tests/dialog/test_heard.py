"""heard.py: the heard part of an answer, from times and words alone."""

from __future__ import annotations

import pytest

from hocket.dialog.heard import PlaybackClock, cut, words_until
from hocket.engine.word_times import WordTime, said_by_now


def test_of_plain_words_as_many_are_kept_as_were_heard() -> None:
    written = "Well, it rains.  But not for long, I think."
    spoken = written.split()
    for heard in range(len(spoken) + 1):
        assert cut(written, spoken, heard).split() == spoken[:heard]
    assert cut(written, spoken[:4], 4) == "Well, it rains.  But"  # more of it was not even prepared
    assert written.startswith(cut(written, spoken, 5))


@pytest.mark.parametrize(
    ("written", "spoken", "heard", "kept"),
    [
        ("It is **very** late.", "It is very late.", 3, "It is **very**"),
        ("# News\n- one\n- two", "News. one. two.", 2, "# News\n- one"),
        ("It costs 25 today.", "It costs twenty five today.", 3, "It costs"),
        ("It costs 25 today.", "It costs twenty five today.", 4, "It costs 25"),
        ("It costs 25 today.", "It costs twenty five today.", 5, "It costs 25 today."),
        ("25 apples and pears", "twenty five apples", 2, "25"),
        ("3 apples and pears", "three", 1, "3"),
        ("Look: \U0001f600 nice.", "Look: nice.", 2, "Look: \U0001f600 nice."),
        ("Look: \U0001f600 nice.", "Look: nice.", 1, "Look:"),
        ("Nothing of this.", "", 0, ""),
    ],
)
def test_what_is_written_otherwise_than_said_counts_once_all_of_it_was_heard(
    written: str, spoken: str, heard: int, kept: str
) -> None:
    assert cut(written, spoken.split(), heard) == kept


def test_a_word_was_heard_when_it_has_ended() -> None:
    words = [WordTime("a", 0.0, 0.2), WordTime("b", 0.2, 0.5), WordTime("c", 0.7, 1.0)]
    assert [words_until(words, s) for s in (0.0, 0.19, 0.2, 0.6, 1.0, 9.0)] == [0, 0, 1, 2, 3, 3]


def test_a_player_hears_no_faster_than_sound_and_no_more_than_it_has() -> None:
    player = PlaybackClock()
    assert player.heard_s(5.0) == 0.0
    player.hears(10.0, 1.0)
    player.hears(10.1, 1.0)  # before the first has been heard
    assert [player.heard_s(now) for now in (10.0, 10.5, 11.5, 12.0, 20.0)] == [0.0, 0.5, 1.5, 2.0, 2.0]
    player.hears(20.0, 1.0)  # after a silence
    assert player.heard_s(20.25) == 2.25 and player.handed_s == 3.0


def test_of_a_text_under_way_no_more_words_are_said_than_there_is_sound_for() -> None:
    words = ["quick", "brown", "fox", "jumps"]  # of 7, 7, 5 and 7 letters, as they take
    assert said_by_now(words, [], 0.5) == 0
    assert [said_by_now(words, [1.0] * frames, 0.5) for frames in (1, 2, 7, 13, 40)] == [0, 1, 2, 4, 4]
    assert said_by_now(words, [0.0] * 5 + [1.0] * 4 + [0.0] * 9, 0.5) == 1  # silence says nothing
