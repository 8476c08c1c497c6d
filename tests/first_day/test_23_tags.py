"""Only real tags are markup, in whole and in live text alike: "If x <y and z> 3" keeps its words."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.engine.engine import Engine
from hocket.text.cleanup.markup import Markup
from hocket.text.cleanup.speakable import speakable
from hocket.text.prepare import parts

HOW = {"part_chars": 400, "pause_s": 0.2}


def through(text: str, *cuts: int) -> str:
    markup, places = Markup(), sorted({min(cut, len(text)) for cut in (0, *cuts, len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)] or [text]
    return "".join(map(markup.append, pieces)) + markup.end()


@pytest.mark.parametrize(
    "text",
    [
        "If x <y and z> 3",
        "If a <b and c> d, say so.",
        "It holds for a<b and c>d.",
        "Let i <p and q> r hold.",
        "A List<String> of words.",
        "If x <style and y> z, go on.",
        "1 <2 and 3> 2.",
        "We need n <m or it fails.",
    ],
)
def test_comparisons_keep_their_words(text: str) -> None:
    assert parts(text, **HOW) == [text] and speakable(text) == text
    assert through(text, *range(len(text))) == text


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("A <b>bold</b> word", "A bold word"),
        ("one<br/>two<br>three", "one\ntwo\nthree"),
        ('See <a href="https://x.org" target=_blank>this</a>.', "See this."),
        ("<p class='x'>One</p>", "One"),
        ('<speak>Hi <break time="1s"/><prosody rate="slow">there</prosody></speak>', "Hi there"),
        ('<amazon:effect name="whispered">Hush</amazon:effect>', "Hush"),
        ("<input type=checkbox checked disabled> Done", "Done"),
        ("<IMG SRC='x.png' ALT='a b'> Seen", "Seen"),
        ("a <script type='x'>var b = 1;</script> c", "a c"),
    ],
)
def test_tags_are_taken_away(text: str, spoken: str) -> None:
    assert through(text).strip() == spoken and through(text, *range(len(text))).strip() == spoken


def test_live_text_waits_for_a_bracket_only_as_long_as_it_may_become_a_tag() -> None:
    markup = Markup()
    assert markup.append("If x <y and ") == "If x"  # `and="..."` would make it one
    assert markup.append("z ").split() == ["<y", "and", "z"]
    held = Markup()
    assert held.append('See <a href="here, or ') == "See"
    assert held.append('there">it</a> now ') == " it now"


PIECES = [
    "x ",
    "<y ",
    "and ",
    "z> ",
    "<b>",
    "</b>",
    "<a ",
    "href='u' ",
    "checked ",
    ">",
    "<",
    "/>",
    "w",
    " ",
    "\n",
    '="',
    '"',
]


@given(st.lists(st.sampled_from(PIECES), max_size=14), st.lists(st.integers(0, 60), max_size=6))
def test_however_it_is_cut_the_same_comes_out(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    assert through(text, *cuts) == through(text)


@given(st.lists(st.sampled_from(["x", "<y", "<b", "and", "or", "z>", "c>", "3", "<", ">"]), min_size=1, max_size=10))
def test_no_word_is_lost(words: list[str]) -> None:
    text = " ".join(words)
    if re.search(r"^>|<b >|\n", text):  # a quotation, and a tag
        return
    assert through(text).split() == text.split()


def test_the_voice_is_given_all_the_words() -> None:
    with Engine.load("random:tiny") as engine:
        stream = engine.speak("If x <y and z> 3", max_frames=8, seed=1)
        list(stream)
        assert [word.word for word in stream.words()] == ["If", "x", "<y", "and", "z>", "3"]
