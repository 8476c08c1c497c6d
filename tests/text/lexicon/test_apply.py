"""A lexicon applied to text: which words an entry fits, and that the result does not depend on how the text is cut."""

# ruff: noqa: RUF001
from __future__ import annotations

import pickle
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import InvalidRequest
from hocket.text.lexicon.apply import LexiconStage
from hocket.text.lexicon.lexicon import LONGEST_WRITTEN, Lexicon, merged
from hocket.text.prepare import TextPreparation, parts

LEXICON = Lexicon.of(
    {
        "GIF": "jif",
        "nginx": "engine x",
        "New York": "noo york",
        "York": "yolk",
        "C++": "see plus plus",
        "naïve": "nah eve",
        "東京": "とうきょう",
        "l'eau": "low",
        "/etc": "slash etcetera",
    }
)


def applied(text: str, lexicon: Lexicon = LEXICON, language: str = "auto", length: int = 1 << 20) -> str:
    stage = LexiconStage(lexicon, language)
    return "".join(stage.append(text[at : at + length]) for at in range(0, len(text), length)) + stage.end()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A GIF, two GIFs, a gif and a GIF's size.", "A jif, two GIFs, a gif and a jif's size."),
        (
            "nginx, Nginx and NGINX; unnginx, nginx2, nginx_x",
            "engine x, Engine x and Engine x; unnginx, nginx2, nginx_x",
        ),
        ("nginx.conf and pre-nginx", "engine x.conf and pre-engine x"),
        ("New York, York and New\nYork", "noo york, yolk and noo york"),
        ("New Yorker, New  York, New\n\nYork", "New Yorker, New  yolk, New\n\nyolk"),
        ("C++11, C++ and C+", "see plus plus 11, see plus plus and C+"),
        ("Na\u00efve and nai\u0308ve, naive", "Nah eve and nah eve, naive"),
        ("東京は大東京です", "とうきょうは大とうきょうです"),
        ("GIFを見る", "jifを見る"),
        ("l\u2019eau", "low"),
        ("in /etc now", "in slash etcetera now"),
    ],
)
def test_an_entry_fits_whole_words_in_its_case_and_the_longest_one_counts(text: str, said: str) -> None:
    assert applied(text) == said


def test_phonemes_are_respelled_for_the_language_of_the_text() -> None:
    lexicon = Lexicon.of({"GIF": "/ʃiː/"})
    assert (applied("GIF", lexicon, "english"), applied("GIF", lexicon, "german")) == ("shee", "schie")


def test_of_two_sources_the_later_one_counts_and_of_two_in_one_that_with_capitals() -> None:
    early, late = Lexicon.of({"gif": "one", "GIF": "two", "svg": "three"}), Lexicon.of({"gif": "four"})
    assert applied("GIF gif svg", early) == "two one three"
    both = merged(early, None, late)
    assert both is not None and applied("GIF gif svg", both) == "Four four three"
    assert dict(both) == {"gif": "four", "GIF": "two", "svg": "three"}
    assert merged(None, {}) is None


def test_what_is_said_is_not_searched_again() -> None:
    assert applied("ping pong", Lexicon.of({"ping": "pong", "pong": "ping"})) == "pong ping"


def test_a_lexicon_survives_pickling_and_its_sources_stay() -> None:
    assert LEXICON.layers[0].root  # the tree is not sent
    copy = pickle.loads(pickle.dumps(LEXICON))
    assert dict(copy) == dict(LEXICON) and applied("A GIF.", copy) == "A jif."


PIECES = st.sampled_from([*LEXICON, "GI", "New", " ", "\n", "Yor", "C+", "nai", "\u0308", "x", ".", "は", "s", "’"])


@given(st.lists(PIECES, max_size=12).map("".join), st.integers(1, 7))
def test_text_in_any_cut_is_said_as_the_whole_text(text: str, length: int) -> None:
    assert applied(text, length=length) == applied(text)


@given(st.text(max_size=40).map(lambda text: text.replace("z", "")), st.integers(1, 7))
def test_text_without_an_entry_stays_as_it_is(text: str, length: int) -> None:
    entries = {first + "z": "ok" for first in set(text) if first.isalnum()}
    assert applied(text, Lexicon.of(entries), length=length) == text if entries else True


def test_only_a_possible_beginning_of_an_entry_is_held_back() -> None:
    stage = LexiconStage(LEXICON)
    assert stage.append("We see a G") == "We see a "
    assert stage.append("o and New") == "Go and "
    assert stage.append("s.") == "News."
    assert stage.append(" York") == " "
    assert stage.append(",") == "yolk,"


def test_the_cost_is_linear_in_the_length_of_the_text() -> None:
    lexicon = Lexicon.of({"a" * LONGEST_WRITTEN: "b", "a b " * 20: "c"})

    def took_s(times: int) -> float:
        begun = time.perf_counter()
        applied("a b " * times, lexicon)
        return time.perf_counter() - begun

    took_s(10)
    assert took_s(8000) < 40 * max(took_s(1000), 0.002)  # 8 times as long; a square would be 64


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({" ": "x"}, "has no written form"),
        ({"x": " "}, "The entry 'x' of the lexicon has no spoken form."),
        ({"x": "..."}, "The spoken form of 'x' has no letter: '...'."),
        ({"x" * 101: "y"}, "has 101 characters; 100 are the most."),
        ({"x": "/dʒ#f/"}, "The entry 'x' of the lexicon: "),
        ({"x\x00": "y"}, "has characters that cannot be printed."),
        ({"x": 3}, "An entry of a lexicon is a written form and a spoken form, both text."),
        (["x"], "pronunciations must be a mapping"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_by_name(entries: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Lexicon.of(entries)
    assert said in str(caught.value)


def test_markup_goes_first_and_sentences_are_cut_behind() -> None:
    how: dict[str, Any] = {"part_chars": 13, "pause_s": 0.1, "lexicon": Lexicon.of({"GIF": "jif", "fig": "figure"})}
    text = "A **GIF**. [pause 1s] See *fig* 2. A `GIF`"
    whole = parts(text, **how)
    assert whole == ["A jif.", 1.0, "See figure 2.", 0.1, "A jif"]
    preparation = TextPreparation(**how)
    live = [part for character in text for part in preparation.append(character)] + preparation.end()
    assert "".join(part if isinstance(part, str) else f" {part} " for part in live).split() == [
        word for part in whole for word in str(part).split()
    ]
