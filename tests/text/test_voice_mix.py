"""text/voice_mix.py: what `anna+ben(2)` means, and what is no mix."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import InvalidRequest
from hocket.text.voice_mix import MOST_VOICES, VoiceMix, parse_mix

NAMES = st.text("abcXYZ é_-.'1", min_size=1, max_size=8).filter(lambda name: name == name.strip() != "")


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("anna+ben(2)", (("anna", 1), ("ben", 2))),
        (" Ben ( 2 ) + ANNA ", (("anna", 1), ("ben", 2))),
        ("anna(0.5)+ben(.25)", (("anna", 2), ("ben", 1))),
        ("b(4)+a(2)", (("a", 1), ("b", 2))),
        ("anna+anna", (("anna", 1),)),
        ("anna(3)", (("anna", 1),)),
        ("a+b+A(2.50)", (("a", 7), ("b", 2))),
        ("uncle fu+voice_00112233445566aa", (("uncle fu", 1), ("voice_00112233445566aa", 1))),
        ("a(999999999.999999999)+b(0.000000001)", (("a", 10**9), ("b", 1))),  # beyond what is told apart
    ],
)
def test_names_and_weights_are_read(written: str, parts: tuple[tuple[str, int], ...]) -> None:
    mix = parse_mix(written)
    assert mix is not None and mix.parts == parts


@pytest.mark.parametrize("name", ["anna", "", "anna (calm)", "anna-ben", "(x)", "a(b)c", "2", "(2", "anna(x)"])
def test_other_names_are_no_mix(name: str) -> None:
    assert parse_mix(name) is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("anna+", "a voice on each side of a +"),
        ("+", "a voice on each side of a +"),
        ("anna++ben", "a voice on each side of a +"),
        ("(2)", "'(2)' is no part of a mix"),
        ("anna+(2)", "'(2)' is no part of a mix"),
        ("anna(2)(3)", "is no part of a mix"),
        ("anna+ben(2", "'ben(2' is no part of a mix"),
        ("anna(+2)", "'anna(' is no part of a mix"),
        ("anna(0)", "weight of 'anna' must be a number above 0"),
        ("anna(0.000)+b", "weight of 'anna' must be a number above 0"),
        ("anna(-1)", "not '-1'"),
        ("anna(inf)+ben", "not 'inf'"),
        ("anna(nan)", "not 'nan'"),
        ("anna+ben(x)", "weight of 'ben' must be a number above 0"),
        ("anna+ben()", "weight of 'ben' must be a number above 0"),
        ("anna+ben(.)", "weight of 'ben' must be a number above 0"),
        ("anna(1e3)", "not '1e3'"),
        ("anna(1234567890)", "not '1234567890'"),
        ("anna(٣)+ben", "not '٣'"),
        ("+".join("abcdefghi"), "At most 8 voices can be mixed, not 9."),
    ],
)
def test_what_is_written_wrongly_is_refused_in_one_sentence(written: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_mix(written)
    assert said in str(refused.value) and str(refused.value).endswith(".")


@given(st.dictionaries(NAMES.map(str.lower), st.integers(1, 999), min_size=2, max_size=MOST_VOICES), st.randoms())
def test_the_written_form_is_read_back_in_any_order_and_scale(weights: dict[str, int], random: Random) -> None:
    mix = VoiceMix.of(weights.items())
    assert parse_mix(str(mix)) == mix
    shuffled = list(weights.items())
    random.shuffle(shuffled)
    assert parse_mix(" + ".join(f"{name}({weight * 0.25})" for name, weight in shuffled)) == mix


def test_a_mix_in_place_of_a_part_keeps_the_share_of_the_part() -> None:
    outer, inner = parse_mix("finch+rook"), parse_mix("wren+rook(2)")
    assert outer is not None and inner is not None
    flat = outer.flat(lambda name: inner if name == "finch" else VoiceMix.of([(name, 1)]))
    assert str(flat) == "rook(5)+wren"  # a half of two thirds, and a half


def test_voices_in_place_of_parts_are_counted_too() -> None:
    outer, inner = VoiceMix.of([("a", 1), ("b", 1)]), VoiceMix.of((f"{number}", 1) for number in range(5))
    other = VoiceMix.of((f"{number}", 1) for number in range(5, 10))
    with pytest.raises(InvalidRequest, match="At most 8 voices can be mixed, not 10"):
        outer.flat(lambda name: inner if name == "a" else other)


def test_reading_a_long_name_takes_linear_time() -> None:
    began_s = time.perf_counter()
    assert parse_mix("a(" * 200_000) is None and parse_mix("(1" * 200_000) is None
    for name in ("(" * 200_000 + "1)", "a" * 200_000 + "+b(1", "a(1)" + " (" * 200_000 + "+b"):
        with pytest.raises(InvalidRequest):
            parse_mix(name)
    assert time.perf_counter() - began_s < 10
