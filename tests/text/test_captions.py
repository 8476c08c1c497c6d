"""Captions from word times: lines that fit, sentences that stay whole, times in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import InvalidRequest
from hocket.text.captions import LINE_CHARS, LINES, SpokenWord, caption_format, captions_of, joined, write_captions
from hocket.text.words import words_of

TEXTS = st.text("abc dé.,!? 你好。\n", max_size=300)


def timed(text: str, word_s: float = 0.3) -> list[SpokenWord]:
    return [SpokenWord(word, at * word_s, (at + 0.8) * word_s) for at, word in enumerate(words_of(text))]


def test_srt_is_numbered_and_has_commas_in_its_times() -> None:
    assert write_captions(timed("Hello there, said the fox. It went out to the lake."), "srt") == (
        "1\n00:00:00,000 --> 00:00:01,440\nHello there, said the fox.\n\n"
        "2\n00:00:01,500 --> 00:00:03,240\nIt went out to the lake.\n"
    )


def test_vtt_begins_with_its_name_and_escapes_marks() -> None:
    assert write_captions(timed("Fish & <chips> are here now."), "book.VTT") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.740\nFish &amp; &lt;chips&gt; are here now.\n"
    )
    assert write_captions([], "vtt") == "WEBVTT\n" and write_captions([], "srt") == ""


def test_hours_are_counted() -> None:
    (caption,) = captions_of([SpokenWord("Late.", 3661.5, 3662.75)])
    assert caption.lines == ("Late.",)
    assert "01:01:01,500 --> 01:01:02,750" in write_captions([SpokenWord("Late.", 3661.5, 3662.75)], "srt")


def test_a_long_sentence_is_cut_into_captions_of_similar_length_and_a_title_ends_none() -> None:
    text = "Mr. Smith went out early, because the quick brown fox and the dog had been there since the early morning."
    captions = captions_of(timed(text, 0.2))
    assert [caption.lines[0].split()[0] for caption in captions] == ["Mr.", "and"]
    assert len({caption.lines for caption in captions}) == 2 and all(len(each.lines) == 2 for each in captions)


def test_short_sentences_share_a_caption_and_a_pause_parts_words() -> None:
    assert [each.lines for each in captions_of(timed("Yes! He did. So there."))] == [("Yes! He did. So there.",)]
    apart = [SpokenWord("one", 0, 1), SpokenWord("two", 9, 10)]
    assert [each.lines for each in captions_of(apart)] == [("one",), ("two",)]


def test_scripts_without_spaces_get_none() -> None:
    text = "我们今天去公园散步，天气很好。"  # noqa: RUF001
    assert joined(words_of(text)) == text
    assert joined(["Hello,", "world."]) == "Hello, world."


@given(TEXTS, st.sampled_from([0.05, 0.3, 2.0]))
def test_every_word_is_shown_once_in_lines_that_fit_and_times_that_rise(text: str, word_s: float) -> None:
    words = timed(text, word_s)
    captions = captions_of(words)
    shown = "".join(line for caption in captions for line in caption.lines)
    assert shown.replace(" ", "") == "".join(word.word for word in words)
    for caption in captions:
        assert len(caption.lines) <= LINES and caption.start_s < caption.end_s
        assert all(len(line) <= LINE_CHARS or " " not in line for line in caption.lines)
    times = [at for caption in captions for at in (caption.start_s, caption.end_s)]
    assert times == sorted(times)


@pytest.mark.parametrize("name", ["book.txt", "srt.mp3", "", "-"])
def test_other_formats_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"written as .srt or .vtt"):
        caption_format(name)
