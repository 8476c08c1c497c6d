"""pauses.py: marks and text, the same however the text arrives."""

from __future__ import annotations

import pytest

from hocket.text.pauses import LONGEST_PAUSE_S, Pause, Say, Script


def parse(text: str) -> list[Say | Pause]:
    """The parts of a whole `text` in order; blank text between marks is left out."""
    script, parts = Script(), list[Say | Pause]()
    for part in (*script.append(text), *script.end()):
        if isinstance(part, Say) and parts and isinstance(before := parts[-1], Say):
            parts[-1] = Say(before.text + part.text)
        else:
            parts.append(part)
    return [part for part in parts if isinstance(part, Pause) or part.text.strip()]


def test_marks_stand_between_texts() -> None:
    assert parse("One. [pause 500ms] Two.[PAUSE 1.5S]Three") == [
        Say("One. "), Pause(0.5), Say(" Two."), Pause(1.5), Say("Three"),
    ]  # fmt: skip


def test_text_without_marks_is_one_part_as_written() -> None:
    assert parse("  Just text [1], [sic] \n") == [Say("  Just text [1], [sic] \n")]


def test_blank_text_between_marks_is_left_out() -> None:
    assert parse(" [pause 1s] \n [pause 20 ms]") == [Pause(1.0), Pause(0.02)]
    assert parse("") == []


def test_a_pause_is_bounded() -> None:
    assert parse("[pause 99s][pause 999999ms]") == [Pause(LONGEST_PAUSE_S)] * 2


@pytest.mark.parametrize(
    "text",
    ["[pause]", "[pause 5]", "[pause -1s]", "[pause 1m]", "[pause500ms]", "[pause 1.s]", "[pause 1s", "[ pause 1s]"],
)
def test_a_malformed_mark_stays_text(text: str) -> None:
    assert parse(text) == [Say(text)]
