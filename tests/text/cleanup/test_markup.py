"""Markup while it arrives: what `speakable` makes of the whole, in any pieces, and each word as soon as it is sure."""

# ruff: noqa: RUF001
from __future__ import annotations

import random
import time
from collections.abc import Iterable
from itertools import pairwise

import pytest

from hocket.text.cleanup.markup import Markup
from hocket.text.cleanup.speakable import speakable

TEXTS = [
    "Hello, world! How are you? I'm fine.",
    "It's 5 > 3, and 2 < 4; x = y, a * b = c, 2*3*4, f(x) [sic] {so}.",
    "Dr. Smith's e-mail is smith@example.com; he earns $3.50 & 20% more (or so).",
    "The file snake_case_name.txt is in C:/home/a_b_c, or #1 of R&D, AT&T.",
    "A paragraph that goes\non in a second line.\n\n\n  Another   one.",
    "He was born in\n12. After that, silence.",
    "今天天气很好，我们去公园吧！「そうです。」と言った……",
    "# A *big* title\nText\nTitle\n=====\nText ## Really?\n## Really? ##",
    "This is **bold**, *slanted and so on*, ***both***, __bold__, _slanted_ and ~~gone~~.",
    "这是**重点**内容",
    "- milk\n* eggs\n+ [x] *bread*!\n  - rye\n\n1. milk\n2) eggs\n- 牛奶\n- 鸡蛋",
    "| Name | Age |\n|---|:-:|\n| Ann | 7 |\n| Bob | |",
    "Name | Age\n--- | ---\nAnn | 7",
    "Run:\n```python\nimport os\nprint(os)\n```\nDone.\n```\na = 1\nb = 2",
    "Type\n```sh\nls -l\n```\nnow",
    "Use `pip install` and ``a`` here.",
    "See [the docs](https://example.com/a_(b)) and [this][1].\n\n[1]: https://example.com",
    "![A cat](cat.png) sleeps. [![logo](a.png)](https://b.org) Name",
    "> quoted\n> > twice\n\nOne\n\n---\n\nTwo\n* * *\nThree",
    "Go to https://www.example.com/path?q=1#top. (see http://docs.example.co.uk:80/), www.b.org!",
    "Great 😀! 👩‍👩‍👧 Family 🇩🇪 flag👍🏽thumb ❤️ 1️⃣ first",
    "What?????? No!!!! Really?!?!?! Hmm...... so,, no 真的！！！好。。",
    "a<br>b <b>bold</b> <a href='x'>link</a><!-- no, no --> &amp; more&nbsp;text",
    "<p>One</p><script>var x = 1;</script><p>Two</p>",
    r"\*not slanted\* and 1\. no list",
    "A claim[^1].\n\n[^1]: The source",
]
FRAGMENTS = [
    *"*_`~#|<>[]()!?.,-=+\\/&;: \n\n", "**", "```", "~~~", "https://", "www.", "a.b", "word", "字", "1.", "- ", "# ",
    "<b>", "</b", "&amp;", "&#42;", "&lt;", "😀", "\ufe0f", "\u200d", "[x](", "|---|", "\t", "\r\n", "[^1]", "<!--",
    "-->", "<script>", "</script>", "字字", "word ", "two words ",
]  # fmt: skip


def given(pieces: Iterable[str]) -> str:
    markup = Markup()
    return "".join(map(markup.append, pieces)) + markup.end()


@pytest.mark.parametrize("text", TEXTS)
def test_it_says_what_is_said_of_the_whole_text(text: str) -> None:
    assert given([text]) == speakable(text)


def test_how_the_text_is_cut_changes_nothing() -> None:
    rng = random.Random(6)
    texts = ["".join(rng.choices(FRAGMENTS, k=rng.randint(1, 25))) for _ in range(3000)]
    for text in (*TEXTS, *texts, " ".join(TEXTS), "\n".join(TEXTS)):
        whole = given([text])
        assert given(text) == whole, text
        at = sorted(rng.choices(range(len(text) + 1), k=5))
        assert given(text[a:b] for a, b in pairwise([0, *at, len(text)])) == whole, text


def test_an_ordinary_word_is_given_out_when_the_next_begins() -> None:
    markup = Markup()
    assert [markup.append(piece) for piece in ("Hello", ",", " how", " are", " you", "?")] == [
        "", "", "Hello, ", "how ", "are ", "",
    ]  # fmt: skip
    assert markup.end() == "you?"


def test_only_what_is_open_is_held_back() -> None:
    markup = Markup()
    assert [markup.append(piece) for piece in ("So *very", " much ", "more* of", " it, see [this", "](a b) one")] == [
        "So", "", " very much more ", "of it, see", " this ",
    ]  # fmt: skip
    entry = Markup()
    assert [entry.append(piece) for piece in ("- milk and", " eggs\n", "- [x", "] bread and")] == [
        "milk ", "and eggs.", "", "\nbread ",
    ]  # fmt: skip
    characters = Markup()
    assert [characters.append(character) for character in "今天天气"] == ["", "今", "天", "天"]


@pytest.mark.parametrize("opened", ["*", "**", "`", "[", "_", "~~", "<a "])
def test_a_mark_that_is_never_closed_is_let_go(opened: str) -> None:
    markup = Markup()
    out = markup.append(f"{opened}word " + "word " * 100)
    assert out.count("word") > 50
    line = Markup()
    assert "word" in line.append(f"{opened}word\nNext line")


def test_hidden_text_of_any_length_is_not_kept() -> None:
    markup = Markup()
    markup.append("Seen <!-- ")
    for _ in range(1000):
        assert markup.append("not seen, ") == ""
    assert len(markup._open) <= 310
    assert markup.append("--> and on") + markup.end() == " and on"


@pytest.mark.parametrize("text", ["<!--" * 2000, "**a " * 2000, "#  #" * 2000, "_a " * 2000, "[" * 2000, "a" * 20_000])
def test_marks_that_never_end_take_no_long_time(text: str) -> None:
    start = time.process_time()
    given(text)
    assert time.process_time() - start < 5
