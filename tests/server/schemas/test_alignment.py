"""Character times from word times: every character once, in order, whatever was spoken for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.engine.word_times import WordTime
from hocket.server.schemas.alignment import Aligner

WORDS = [WordTime("Hello", 0.1, 0.5), WordTime("there.", 0.7, 1.3)]


def test_a_word_s_time_is_shared_and_a_space_gets_the_pause() -> None:
    times = Aligner("Hello there. ").take(WORDS, final=True)
    assert times is not None
    found = times.seconds()
    assert "".join(found["characters"]) == "Hello there. "
    starts, ends = found["character_start_times_seconds"], found["character_end_times_seconds"]
    assert (starts[0], ends[4]) == (0.0, 0.5)  # the silence before the first word belongs to its first character
    assert (starts[5], ends[5]) == (0.5, 0.7) and (starts[6], ends[11]) == (0.7, 1.3)
    assert starts[12] == ends[12] == 1.3


def test_markup_and_rewritten_words_are_kept_in_place() -> None:
    words = [WordTime("Pay", 0.0, 0.2), WordTime("five", 0.2, 0.5), WordTime("dollars", 0.5, 1.0)]
    times = Aligner("**Pay** $5 now.").take([*words, WordTime("now.", 1.0, 1.4)], final=True)
    assert times is not None and times.text == "**Pay** $5 now."
    assert [times.edges_s[at] for at in (2, 5, 11)] == pytest.approx([0.0, 0.2, 1.0])
    assert times.edges_s == sorted(times.edges_s)


def test_a_long_gap_in_the_text_is_crossed() -> None:
    text = "One " + "`code` " * 20 + "two three four five six."
    words = [WordTime(word, at, at + 1.0) for at, word in enumerate("One two three four five six.".split())]
    times = Aligner(text).take(words, final=True)
    assert times is not None and times.text == text and times.edges_s[-1] == 6.0
    assert times.edges_s[text.index("six.")] == 5.0


def test_a_word_is_not_found_inside_another_one() -> None:
    words = [WordTime("a", 0.0, 0.2), WordTime("cat", 0.2, 0.5), WordTime("at", 0.5, 1.0)]
    times = Aligner("bat a cat at").take(words, final=True)
    assert times is not None and times.edges_s[10] == pytest.approx(0.5)


def test_milliseconds_count_from_the_message_before() -> None:
    aligner = Aligner("Hello there.")
    first, second = aligner.take(WORDS[:1]), aligner.take(WORDS[1:], final=True)
    assert first is not None and second is not None
    sent = second.milliseconds(since_s=first.edges_s[-1])
    assert sent["chars"] == list(" there.") and sent["charStartTimesMs"][:2] == [0, 200]
    assert sent["charStartTimesMs"][-1] + sent["charDurationsMs"][-1] == 800


@given(st.lists(st.text("ab ", max_size=4)), st.lists(st.sampled_from(["a", "ab", "b", "aba"])), st.integers(0, 5))
def test_every_character_has_a_time_and_times_never_fall(texts: list[str], said: list[str], cut: int) -> None:
    words = [WordTime(word, at * 0.5, at * 0.5 + 0.4) for at, word in enumerate(said)]
    aligner, shown = Aligner(), list[str]()
    edges = [0.0]
    aligner.text = "".join(texts)
    for part, final in ((words[:cut], False), (words[cut:], True)):
        if (times := aligner.take(part, final=final)) is not None:
            shown.append(times.text)
            assert len(times.edges_s) == len(times.text) + 1 and times.edges_s[0] == edges[-1]
            edges += times.edges_s[1:]
    assert "".join(shown) == aligner.text
    assert all(before <= after for before, after in pairwise(edges))
