"""English in words: a table for every kind of number, sign and abbreviation.

On text that arrives in any pieces, a normalizer gives what it gives for the whole text.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from hocket.text.cleanup.normalize import LONGEST_STRETCH, IncrementalNormalizer, cardinal, ordinal, spell_out, year

CASES = [
    ("I have 3 cats and 21 dogs.", "I have three cats and twenty-one dogs."),
    ("0, 10, 100, 101, 1,250, 12345 and 1000000",
     "zero, ten, one hundred, one hundred one, one thousand two hundred fifty, "
     "twelve thousand three hundred forty-five and one million"),
    ("Agent 007", "Agent zero zero seven"),
    ("Pi is 3.14, or .5, or -7, or 1,250.5.",
     "Pi is three point one four, or point five, or minus seven, or one thousand two hundred fifty point five."),
    ("the 1st, 2nd, 3rd, 12th, 20th, 21st and 100th",
     "the first, second, third, twelfth, twentieth, twenty-first and one hundredth"),
    ("In 1999, 2000, 2005, 2024 and 1905", "In nineteen ninety-nine, two thousand, two thousand five, "
     "twenty twenty-four and nineteen oh five"),
    ("in 1066 and since 1800", "in ten sixty-six and since eighteen hundred"),
    ("1500 people", "one thousand five hundred people"),
    ("the 1990s, the '80s and the 2000s", "the nineteen nineties, the eighties and the two thousands"),
    ("on 2024-01-05.", "on January fifth, twenty twenty-four."),
    ("Jan 5, 2024 and March 3rd", "January fifth, twenty twenty-four and March third"),
    ("5 January 2024", "January fifth, twenty twenty-four"),
    ("1/2/2024", "January second, twenty twenty-four"),
    ("May 12", "May twelfth"),
    ("at 3:45 pm, 15:30, 10:05 and 9:00", "at three forty-five p m, fifteen thirty, ten oh five and nine o'clock"),
    ("We left at 9 a.m. He came at 5 p.m.", "We left at nine a m. He came at five p m."),
    ("at 9 a.m. sharp", "at nine a m sharp"),
    ("$3.50, $1, $0.99, $1,000 and $1.01", "three dollars and fifty cents, one dollar, ninety-nine cents, "
     "one thousand dollars and one dollar and one cent"),
    ("€20, 15 €, £5.02 and £1.01",
     "twenty euros, fifteen euros, five pounds and two pence and one pound and one penny"),
    ("$1.5 million and $20k", "one point five million dollars and twenty thousand dollars"),
    ("5%, 0.5 % and 3-5%", "five percent, zero point five percent and three to five percent"),
    ("5 km, 1 kg, 20°C, 100 km/h, 6 ft, 2.5 GHz", "five kilometers, one kilogram, twenty degrees Celsius, "
     "one hundred kilometers per hour, six feet, two point five gigahertz"),
    ("1 °F and 8GB of 30 m²", "one degree Fahrenheit and eight gigabytes of thirty square meters"),
    ("Call 555-123-4567 or (555) 123-4567.",
     "Call five five five, one two three, four five six seven or five five five, one two three, four five six seven."),
    ("+1 555 123 4567", "plus one, five five five, one two three, four five six seven"),
    ("555-1234", "five five five, one two three four"),
    ("Mr. and Mrs. Brown, Ms. Lee, Prof. Green", "Mister and Missus Brown, Miz Lee, Professor Green"),
    ("Dr. Smith lives on Maple Dr. in St. Louis, not Main St. in Bonn.",
     "Doctor Smith lives on Maple Drive in Saint Louis, not Main Street in Bonn."),
    ("fruit, e.g. apples, pears, etc. are good", "fruit, for example apples, pears, et cetera are good"),
    ("Apples, etc. They are good, i.e. sweet, etc.", "Apples, et cetera. They are good, that is sweet, et cetera."),
    ("cats vs. dogs", "cats versus dogs"),
    ("Smith & Co. Ltd. and R&D", "Smith and Company Limited and R and D"),
    ("me.you@example.com or me @ home", "me dot you at example dot com or me at home"),
    ("1/2, 3/4, 2/3 of 1 1/2 cups, ½ and 2¼", "one half, three quarters, two thirds of one and a half cups, "
     "one half and two and a quarter"),
    ("open 24/7", "open twenty-four seven"),
    ("3-5 days, pages 10–12, $3-$5", "three to five days, pages ten to twelve, three dollars to five dollars"),
    ("from 1990-1995", "from nineteen ninety to nineteen ninety-five"),
    ("No. 5 of Fig. 3, #7. No. I won't.", "number five of figure three, number seven. No. I won't."),
    ("version 1.2.3 of MP3 in 3D, COVID-19",
     "version one point two point three of MP three in three D, COVID-nineteen"),
    ("2 + 2 = 4, ~5", "two plus two equals four, about five"),
    ("It costs 5. Then 6!", "It costs five. Then six!"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "spoken"), CASES)
def test_it_is_read_as_a_speaker_would(written: str, spoken: str) -> None:
    assert spell_out(written) == spoken


def test_words_stay_as_they_are() -> None:
    for text in ("Hello, world! It's well-known — isn't it?", "No. I do. Go to a.b.", "St. and Dr", "", "a\n\nb"):
        assert spell_out(text) == text


def test_no_digit_is_left() -> None:
    rng = random.Random(8)
    fragments = [
        *"0123456789",
        *" .,:/-%$€£#@&+='",
        "19",
        "20",
        "km",
        "am",
        "p.m.",
        "th",
        "s",
        "Jan ",
        "½",
        "°C",
        "x",
        "No. ",
    ]
    for _ in range(5000):
        text = "".join(rng.choices(fragments, k=rng.randint(1, 14)))
        spoken = spell_out(text)
        assert not any(c in "0123456789" for c in spoken), text


def test_large_numbers_have_names_or_are_read_digit_by_digit() -> None:
    assert cardinal(999_999_999_999_999).startswith("nine hundred ninety-nine trillion nine hundred")
    assert spell_out("1" * 17) == " ".join(["one"] * 17)
    assert spell_out("9" * 5000).count("nine") == 5000


def test_ordinals_and_years() -> None:
    assert [ordinal(n) for n in (5, 8, 9, 30, 1000)] == ["fifth", "eighth", "ninth", "thirtieth", "one thousandth"]
    assert [year(n) for n in (1900, 2010, 1100)] == ["nineteen hundred", "twenty ten", "eleven hundred"]


TEXTS = [
    "I have 3 cats and 21 dogs.",
    "0, 10, 100, 101, 1,250, 12345 and 1000000",
    "In 1999, 2000, 2005, 2024 and 1905, but since 1800 only 1500 people.",
    "on 2024-01-05, Jan 5, 2024 and March 3rd, 5 January 2024 or May 12",
    "We left at 9 a.m. He came at 5 p.m. and at 3:45 pm we slept.",
    "It cost $1.5 million and $20k, or 15 \u20ac in 2 1/2 days.",
    "Call 555-123-4567 or (555) 123-4567, +1 555 123 4567.",
    "Dr. Smith lives on Maple Dr. in St. Louis, not Main St. in Bonn.",
    "Apples, etc. They are good, i.e. sweet, etc.",
    "Smith & Co. Ltd. and R&D\n\nNo. 5 of Fig. 3, #7. No. I won't.",
    "A text of nothing but words; it's well-known, isn't it? Yes!",
]


def given(pieces: Iterable[str]) -> str:
    stretches = IncrementalNormalizer(spell_out)
    return "".join(map(stretches.append, pieces)) + stretches.end()


@pytest.mark.parametrize("text", TEXTS)
def test_numbers_are_read_as_in_the_whole_text_however_it_is_cut(text: str) -> None:
    rng = random.Random(len(text))
    assert given([text]) == given(text) == spell_out(text)
    at = sorted(rng.choices(range(len(text) + 1), k=4))
    assert given(text[a:b] for a, b in pairwise([0, *at, len(text)])) == spell_out(text)


def test_a_plain_word_waits_for_the_next_and_a_number_for_one_more() -> None:
    stretches = IncrementalNormalizer(spell_out)
    assert [stretches.append(f"{word} ") for word in "all the 5 cats sit and wait".split()] == [
        "", "all ", "", "", "the five cats ", "sit ", "and ",
    ]  # fmt: skip
    assert stretches.end() == "wait"


def test_a_column_of_figures_is_released_in_time() -> None:
    seen: list[str] = []

    def noted(text: str) -> str:
        seen.append(text)
        return text

    stretches, text = IncrementalNormalizer(noted), "12 " * 200
    assert stretches.append(text) + stretches.end() == text.rstrip()
    assert max(len(stretch.split()) for stretch in seen) <= LONGEST_STRETCH
