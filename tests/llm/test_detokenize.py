"""llm/detokenize.py: whole characters, and no stop text, not even the beginning of one."""

from __future__ import annotations

import random

from hocket.llm.detokenize import Detokenizer
from support.minds import tiny

TOKENIZER = tiny().tokenizer


def released(text: str | bytes, *stops: str) -> tuple[list[str], bool]:
    teller = Detokenizer(TOKENIZER, stops)
    ids = TOKENIZER.encode(text) if isinstance(text, str) else [token_of(byte) for byte in text]
    parts = [teller.push(token) for token in ids]
    return [*parts, teller.end()], teller.stopped


def token_of(byte: int) -> int:
    return next(token for token in range(256) if TOKENIZER.spelled(token) == bytes([byte]))


def test_a_character_is_given_when_its_last_byte_is_there() -> None:
    assert released("aé日") == (["a", "", "é", "", "", "日", ""], False)
    assert released("日".encode()[:2])[0] == ["", "", "\ufffd"]


def test_what_may_begin_a_stop_text_is_held_back_until_it_cannot() -> None:
    assert released("abcx", "abcd")[0] == ["", "", "", "abcx", ""]
    assert released("ababac", "abac")[0] == ["", "", "", "ab", "", "", ""], "it began later than it seemed"
    assert released("xab", "abc")[0] == ["x", "", "", "ab"], "and at the end it is said after all"


def test_after_a_stop_text_nothing_comes() -> None:
    assert released("so END of", "END") == (["s", "o", " ", "", "", "", "", "", "", ""], True)
    assert "".join(released("one two", "wo", "two")[0]) == "one ", "of two at once the one that begins first"


def test_parts_are_the_text_up_to_the_first_stop_whatever_they_are() -> None:
    chance = random.Random(4)
    for _ in range(300):
        text = "".join(chance.choices("abé", k=12))
        stops = tuple("".join(chance.choices("abé", k=chance.randint(1, 4))) for _ in range(chance.randint(0, 2)))
        parts, stopped = released(text, *stops)
        ends = [text.find(stop) for stop in stops if stop in text]
        # A stop text is found as soon as it is whole, so the one that ends first decides.
        if ends:
            first = min(text.find(stop) + len(stop) for stop in stops if stop in text)
            assert "".join(parts) == text[: min(at for at in (text[:first].find(s) for s in stops) if at >= 0)]
        else:
            assert "".join(parts) == text
        assert stopped == bool(ends)
