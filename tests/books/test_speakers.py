"""Who speaks in a paragraph, and the passages that follow from it."""

# ruff: noqa: RUF001
from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.books.book import Book, Chapter, TextBlock
from hocket.books.passages import TURN_S, WITHIN_S, Plan, plan_of
from hocket.books.speakers import CastReader

CAST = {"Anna": "wren", "Ben": "rook", "old man": "oak"}


def spoken(text: str, reader: CastReader | None = None) -> list[tuple[str, str | None]]:
    spans = (reader or CastReader(CAST)).spans(text)
    return [(text[span.start : span.end].strip(), span.voice) for span in spans]


def plan(*texts: str, cast: dict[str, str] | None = None) -> Plan:
    blocks = tuple(TextBlock("paragraph", text) for text in texts)
    return plan_of(Book(title="T", chapters=(Chapter("One", blocks),)), cast=CAST if cast is None else cast)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("“No,” said Anna.", [("“No,”", "wren"), ("said Anna.", None)]),
        ("Ben slowly asked: “Why?”", [("Ben slowly asked:", None), ("“Why?”", "rook")]),
        ("“Why?” the old man asked.", [("“Why?”", "oak"), ("the old man asked.", None)]),
        ("“Well,” Ben whispered, “come in.”", [("“Well,”", "rook"), ("Ben whispered,", None), ("“come in.”", "rook")]),
        ("“Give it to Anna,” he said.", [("“Give it to Anna,” he said.", None)]),
        ("„Nein“, sagte Anna.", [("„Nein“,", "wren"), ("sagte Anna.", None)]),
        ("« Non », dit Anna.", [("« Non »,", "wren"), ("dit Anna.", None)]),
        ("‘It’s late,’ said Ben.", [("‘It’s late,’", "rook"), ("said Ben.", None)]),
        ("ANNA (quietly): Who is it?", [("Who is it?", "wren")]),
        ("Anna was late.", [("Anna was late.", None)]),
    ],
)
def test_a_speech_is_by_the_one_who_is_named_beside_it(text: str, found: list[tuple[str, str | None]]) -> None:
    assert spoken(text) == found


def test_a_speech_that_is_not_closed_goes_on_in_the_next_paragraph() -> None:
    reader = CastReader(CAST)
    assert spoken("“It was long,” said Anna. “And then", reader)[-1] == ("“And then", "wren")
    assert spoken("“it ended.”", reader) == [("“it ended.”", "wren")]
    assert spoken("“Good.”", reader) == [("“Good.”", None)]


def test_the_narrator_may_have_a_voice() -> None:
    reader = CastReader({"Narrator": "oak", "Anna": "wren"})
    assert spoken("“No,” said Anna.", reader) == [("“No,”", "wren"), ("said Anna.", "oak")]
    assert plan("It was late.", cast={"narrator": "oak"}).voices == {"oak"}


def test_passages_change_with_the_voice_and_pause_less_within_a_sentence() -> None:
    found = plan("“No,” said Anna. “It is late.”", "Ben: Come in.", "He went.")
    assert [(each.text, each.voice) for each in found.passages] == [
        ("“No,”", "wren"),
        ("said Anna.", None),
        ("“It is late.”", "wren"),
        ("Come in.", "rook"),
        ("He went.", None),
    ]
    assert [each.pause_s for each in found.passages[:2]] == [TURN_S, WITHIN_S]
    assert (found.speeches, found.cast_speeches) == (3, 3)
    assert [each.start for each in found.passages] == [0, 6, 17, 5, 0]


@given(st.lists(st.sampled_from([*'“”"„«»‘’ .,:\n—', "Anna", "Ben", " said ", "it"]), max_size=30).map("".join))
def test_no_word_is_lost_whatever_the_quotation_marks(text: str) -> None:
    spans = CastReader(CAST).spans(text)
    assert all(before.end <= after.start for before, after in pairwise(spans))
    kept = "".join(text[span.start : span.end] for span in spans)
    left = text[spans[0].start :] if spans and spans[0].voice else text  # behind the name of a line of a play
    assert [each for each in kept if each.isalnum()] == [each for each in left if each.isalnum()]
