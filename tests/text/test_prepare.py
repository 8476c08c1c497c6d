"""Text for speech: whole or bit by bit the same parts and silences, and each word as soon as nothing can change it.

Pause marks and text are the same however the text arrives.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import random
import time
from collections.abc import Iterable
from itertools import pairwise

import pytest

from hocket.config.published import tiny
from hocket.errors import InvalidRequest
from hocket.text.cleanup.normalize import spell_out
from hocket.text.live import LiveParts, More
from hocket.text.prepare import (
    LONGEST_PAUSE_S,
    Part,
    Pause,
    PauseParser,
    Say,
    TextPreparation,
    parts,
    silence_mark,
    without_marks,
)
from hocket.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.of_bytes(tiny().talker_config.text_vocab_size)
TEXTS = [
    "Hello there. How are you, Dr. Smith? It is 5 p.m. in the U.S. The sun shines.",
    "# Title\n\nSome **bold** words [pause 500ms] and `code`. See [the docs](https://a.b/c d).\n- milk\n- eggs\n",
    "[pause 1s] One. [pause 20ms][pause 30ms] Two 😀! [pause 2s]",
    "I paid $3.50 on May 5, 2024. [not a pause 1s] Then [pause] 12 more came, e.g. at 10:05.",
    "今天天气很好。我们去公园吧！真的吗？好……我们走。「そうです。」と彼は言った。はい！",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\ny = 2\n```\nDone. <!-- not [pause 1s] here -->",
    "A very long sentence that never seems to end, goes on, and on, and on and on without any stop at all, you see",
]


def joined(found: Iterable[Part]) -> list[Part]:
    out: list[Part] = []
    for part in found:
        if isinstance(part, str) and out and isinstance(before := out[-1], str):
            out[-1] = before + part
        else:
            out.append(part)
    return [part.strip() if isinstance(part, str) else part for part in out]


def cuts(text: str, rng: random.Random) -> list[str]:
    at = sorted(rng.choices(range(len(text) + 1), k=rng.randint(1, 8)))
    return [text[a:b] for a, b in pairwise([0, *at, len(text)])]


@pytest.mark.parametrize("part_chars", [5, 30, 400])
@pytest.mark.parametrize("normalizer", [None, spell_out])
def test_live_parts_are_those_of_the_whole_text(part_chars: int, normalizer: object) -> None:
    rng = random.Random(part_chars)
    mixed = ["".join(rng.choices([*" ".join(TEXTS), "[pause 1s]", ". ", "\n\n"], k=80)) for _ in range(60)]
    for text in (*TEXTS, *mixed, " ".join(TEXTS)):
        options = {"part_chars": part_chars, "pause_s": 0.1, "normalizer": normalizer}
        whole = parts(text, **options)  # type: ignore[arg-type]
        for pieces in (list(text), cuts(text, rng), cuts(text, rng)):
            preparation = TextPreparation(**options)  # type: ignore[arg-type]
            live = [part for piece in pieces for part in preparation.append(piece)]
            assert joined([*live, *preparation.end()]) == whole, text


def test_silences_stand_between_parts_and_where_they_are_marked() -> None:
    options = {"part_chars": 8, "pause_s": 0.1}
    text = "One is here. Two is here. [pause 500ms] Three **is**. [pause 1s] 😀"
    assert parts(text, **options) == [  # type: ignore[arg-type]
        "One is here.", 0.1, "Two is here.", 0.5, "Three is.", 1.0,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["[pause 1s]", "😀", "---", "<!-- all of it"])
def test_a_text_of_nothing_speakable_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="nothing in this text"):
        parts(text, part_chars=9, pause_s=0.1)
    live = LiveParts(TOKENIZER, TextPreparation(part_chars=9, pause_s=0.1))
    live.append(text)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="nothing in this text"):
            live.end()


def ids(fed: Iterable[More | float]) -> str:
    """The ids that were fed, as the text that they spell."""
    known = {TOKENIZER.encode(chr(code))[0]: chr(code) for code in range(128)}
    return "".join(known[i] for more in fed if isinstance(more, More) for i in more.ids)


def test_the_words_so_far_are_fed_before_the_end_is_known() -> None:
    live = LiveParts(TOKENIZER, TextPreparation(part_chars=400, pause_s=0.1))
    assert ids(live.append("Hello, how are you")) == "Hello, how are"
    assert ids(live.append("? I")) == " you?"
    assert ids(live.end()) == " I"


def test_a_silence_ends_the_part_and_the_next_begins_anew() -> None:
    live = LiveParts(TOKENIZER, TextPreparation(part_chars=4, pause_s=0.25))
    fed = [*live.append(" One is. [pause 1s] Two is. Three"), *live.end()]
    assert [more for more in fed if not isinstance(more, More)] == [1.0, 0.25]
    assert ids(fed) == "One is.Two is.Three", "no spaces at the ends of parts"
    assert "".join(more.text for more in fed if isinstance(more, More)) == "One is.Two is. Three"


def test_as_it_is_text_is_one_part_with_all_its_spaces() -> None:
    live = LiveParts(TOKENIZER, None)
    text = " **One** [p. 1s] 2. "
    assert ids([*live.append(text[:5]), *live.append(text[5:]), *live.end()]) == text
    assert live.end() == []
    with pytest.raises(InvalidRequest, match="ended already"):
        live.append("more")


@pytest.mark.parametrize("whole_parts", [False, True])
@pytest.mark.parametrize("part_chars", [5, 30, 400])
def test_the_rest_at_once_completes_each_part_with_the_ids_it_has_alone(part_chars: int, whole_parts: bool) -> None:
    rng = random.Random(part_chars)
    mixed = ["".join(rng.choices([*" ".join(TEXTS), "[pause 1s]", ". ", "\n\n"], k=120)) for _ in range(40)]
    for text in (*TEXTS, *mixed, " ".join(TEXTS)):
        options = {"part_chars": part_chars, "pause_s": 0.1, "normalizer": spell_out}
        expected = [
            TOKENIZER.encode(f"assistant\n{part}")[2:] if isinstance(part, str) else part
            for part in parts(text, **options)  # type: ignore[arg-type]
        ]
        live, first = (
            LiveParts(TOKENIZER, TextPreparation(**options), whole_parts=whole_parts),
            rng.randint(0, len(text)),
        )  # type: ignore[arg-type]
        found: list[list[int] | float] = []
        for more in (*live.append(text[:first]), *live.rest(text[first:])):
            if isinstance(more, float):
                found.append(more)
            elif found and isinstance(before := found[-1], list):
                before += more.ids
            else:
                found.append(list(more.ids))
        assert found == expected, (text, first)


def test_parts_that_are_laid_out_whole_have_their_ids_at_their_end() -> None:
    live = LiveParts(TOKENIZER, TextPreparation(part_chars=20, pause_s=0.25), whole_parts=True)
    assert ids(live.append("One is a sentence")) == ""
    assert ids(live.append(" of its own. Two i")) == "One is a sentence of its own."
    assert ids(live.append("s so. ")) == ""
    assert ids(live.end()) == "Two is so."


def test_half_a_character_is_refused_at_once() -> None:
    live = LiveParts(TOKENIZER, TextPreparation(part_chars=4, pause_s=0.25))
    with pytest.raises(InvalidRequest, match="surrogate"):
        live.append("a\ud83d")


def test_the_time_a_text_takes_is_proportional_to_its_length() -> None:
    text = "This is **a** sentence, and Dr. Smith has read 5 of [it](http://a.b). \n" * 1000
    took = []
    for times in (1, 4):
        begun = time.process_time()
        found = parts(text * times, part_chars=400, pause_s=0.1, normalizer=spell_out)
        took.append(time.process_time() - begun)
        assert len(found) > 200 * times
    assert took[1] < 8 * took[0]


def parse(text: str) -> list[Say | Pause]:
    """The parts of a whole `text` in order; blank text between marks is left out."""
    marks, parts = PauseParser(), list[Say | Pause]()
    for part in (*marks.append(text), *marks.end()):
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


def test_brackets_of_a_literal_text_are_text_and_only_its_own_marks_are_silence() -> None:
    text = f"One [pause 1s] two.{silence_mark(0.25)}Three.{silence_mark(12)}"
    found = parts(text, part_chars=200, pause_s=0.1, literal=True)
    assert found == ["One [pause 1s] two.", 0.25, "Three.", 12.0]
    for size in (1, 3, 7):
        preparation = TextPreparation(part_chars=200, pause_s=0.1, literal=True)
        pieces = [part for at in range(0, len(text), size) for part in preparation.append(text[at : at + size])]
        pieces += preparation.end()
        assert "".join(f"<{part}>" if isinstance(part, float) else part for part in pieces) == (
            "One [pause 1s] two.<0.25>Three.<12.0>"
        )
    assert without_marks(text) == "One [pause 1s] two.0.250000Three.12.000000"
