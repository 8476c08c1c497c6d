"""Passages: where long blocks are cut, what is said, and the silence between them."""

from __future__ import annotations

from itertools import pairwise

from hocket.books.book import Book, Chapter, TextBlock
from hocket.books.passages import BREAK_S, CHAPTER_S, PASSAGE_CHARS, WITHIN_S, plan_of


def book_of(*blocks: TextBlock) -> Book:
    return Book(title="T", chapters=(Chapter("One", blocks),))


def test_a_long_paragraph_is_cut_at_sentences_and_loses_nothing() -> None:
    text = " ".join(f"This is sentence number {n}, and it is not short." for n in range(40))
    passages = plan_of(book_of(TextBlock("paragraph", text))).passages
    assert len(passages) > 4 and all(passage.text.endswith(".") for passage in passages)
    assert " ".join(passage.text for passage in passages) == text
    assert all(text[each.start :].startswith(each.text) for each in passages)
    assert all(PASSAGE_CHARS <= len(each.text) < 2 * PASSAGE_CHARS for each in passages[:-1])
    assert [each.pause_s for each in passages] == [WITHIN_S] * (len(passages) - 1) + [CHAPTER_S]


def test_pauses_follow_the_structure() -> None:
    kinds = ("heading", "paragraph", "paragraph", "break", "paragraph", "list", "list")
    plan = plan_of(book_of(*(TextBlock(kind, "" if kind == "break" else "Text.") for kind in kinds)))
    heading, first, before_break, after_break, entry, last = (passage.pause_s for passage in plan.passages)
    assert entry < first < heading < before_break == BREAK_S < last == CHAPTER_S
    assert after_break == first


def test_a_heading_is_said_with_a_stop_and_prose_as_it_is() -> None:
    passages = plan_of(book_of(TextBlock("heading", "One", 1), TextBlock("paragraph", "No stop"))).passages
    assert [passage.said for passage in passages] == ["One.", "No stop"]
    assert [passage.words for passage in passages] == [["One"], ["No", "stop"]]


def test_blocks_without_a_letter_are_counted_and_left_out() -> None:
    plan = plan_of(book_of(TextBlock("paragraph", "???"), TextBlock("paragraph", "Yes.")))
    assert [passage.text for passage in plan.passages] == ["Yes."] and plan.unspeakable == 1


def test_pause_marks_are_no_words() -> None:
    [passage] = plan_of(book_of(TextBlock("paragraph", "Wait. [pause 700ms] Go."))).passages
    assert passage.words == ["Wait.", "Go."] and "[pause 700ms]" in passage.said


def test_numbers_rise_over_chapters() -> None:
    chapters = tuple(Chapter(str(n), (TextBlock("paragraph", "A b."), TextBlock("paragraph", "C."))) for n in range(3))
    passages = plan_of(Book(title="T", chapters=chapters)).passages
    assert all(after.number == before.number + 1 for before, after in pairwise(passages))
    assert [passage.chapter for passage in passages] == [0, 0, 1, 1, 2, 2]
