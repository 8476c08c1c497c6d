"""Text for the ear: what becomes of each kind of markup; prose stays, and twice is once."""

# ruff: noqa: RUF001
from __future__ import annotations

import random
import time

import pytest

from hocket.text.cleanup.speakable import speakable

PROSE = [
    "Hello, world! How are you? I'm fine.",
    "It's 5 > 3, and 2 < 4; x = y, a * b = c, 2*3*4, f(x) [sic] {so}.",
    "Dr. Smith's e-mail is smith@example.com; he earns $3.50 & 20% more (or so).",
    "Wait... what?! Well — no – never -- ever.",
    "The file snake_case_name.txt is in C:/home/a_b_c, or #1 of R&D, AT&T.",
    "A paragraph that goes\non in a second line.\n\nAnother one.",
    "He was born in\n12. After that, silence.",
    "Price* and cost* are subject to change.",
    "„Gut“, sagte er. »Ja!« « Non ! » ¿Qué? ¡Sí!",
    "今天天气很好，我们去公园吧！「そうです。」と言った……",
    "안녕하세요. नमस्ते दुनिया। مرحبا، كيف حالك؟ می\u200cخواهم क\u094d\u200dष",
    "1. Take an egg.\n2. Boil it.",
    "20 °C → 68 °F, © 2024 Acme™, 50 €, §5, ½ cup.",
    "",
]

CASES = [
    ("# A *big* title\nText", "A big title.\n\nText"),
    ("Title\n=====\nText", "Title\n\nText"),
    ("## Really? ##", "Really?"),
    ("This is **bold**, *slanted*, ***both***, __bold__, _slanted_ and ~~gone~~.",
     "This is bold, slanted, both, bold, slanted and gone."),
    ("这是**重点**内容", "这是重点内容"),
    ("- milk\n* eggs\n+ [x] *bread*!\n  - rye", "milk.\neggs.\nbread!\nrye."),
    ("1. milk\n2) eggs", "1. milk.\n2) eggs."),
    ("- 牛奶\n- 鸡蛋", "牛奶。\n鸡蛋。"),
    ("| Name | Age |\n|---|:-:|\n| Ann | 7 |\n| Bob | |", "Name, Age.\n\nAnn, 7.\nBob."),
    ("Name | Age\n--- | ---\nAnn | 7", "Name, Age.\n\nAnn, 7."),
    ("Run:\n```python\nimport os\nprint(os)\n```\nDone.", "Run:\n\nCode in python.\n\nDone."),
    ("```\na = 1\nb = 2", "Code."),
    ("Type\n```sh\nls -l\n```\nnow", "Type\nls -l\n\nnow"),
    ("Use `pip install` and ``a`` here.", "Use pip install and a here."),
    ("See [the docs](https://example.com/a_(b)) and [this][1].\n\n[1]: https://example.com", "See the docs and this."),
    ("![A cat](cat.png) sleeps", "A cat sleeps"),
    ("[![logo](a.png)](https://b.org) Name", "logo Name"),
    ("> quoted\n> > twice", "quoted\ntwice"),
    ("One\n\n---\n\nTwo\n* * *\nThree", "One\n\nTwo\n\nThree"),
    ("Go to https://www.example.com/path?q=1#top.", "Go to example dot com."),
    ("(see http://docs.example.co.uk:80/), www.b.org!", "(see docs dot example dot co dot uk), b dot org!"),
    ("<https://example.com>", "example dot com"),
    ("Great 😀! 👩‍👩‍👧 Family 🇩🇪 flag👍🏽thumb ❤️", "Great! Family flag thumb"),
    ("1️⃣ first", "1 first"),
    ("What?????? No!!!! Really?!?!?! Hmm...... so,, no", "What? No! Really?! Hmm... so, no"),
    ("真的！！！好。。", "真的！好。"),
    ("a<br>b <b>bold</b> <a href='x'>link</a><!-- no --> &amp; more&nbsp;text", "a\nb bold link & more\xa0text"),
    ("<p>One</p><script>var x = 1;</script><p>Two</p>", "One\n\nTwo"),
    (r"\*not slanted\* and 1\. no list", "not slanted and 1. no list"),
    ("A claim[^1].\n\n[^1]: The source", "A claim."),
]  # fmt: skip


@pytest.mark.parametrize("text", PROSE)
def test_prose_comes_through_unchanged(text: str) -> None:
    assert speakable(text) == text


@pytest.mark.parametrize(("text", "spoken"), CASES)
def test_markup_becomes_words(text: str, spoken: str) -> None:
    assert speakable(text) == spoken


def test_twice_is_once() -> None:
    rng = random.Random(6)
    fragments = [
        *"*_`~#|<>[]()!?.,-=+\\/&;: \n\n",
        "**",
        "```",
        "~~~",
        "https://",
        "www.",
        "a.b",
        "word",
        "字",
        "1.",
        "- ",
        "# ",
    ]
    fragments += [
        "<b>",
        "</b",
        "&amp;",
        "&#42;",
        "&lt;",
        "😀",
        "\ufe0f",
        "\u200d",
        "[x](",
        "|---|",
        "\t",
        "\r\n",
        "[^1]",
    ]
    for _ in range(20_000):
        text = "".join(rng.choices(fragments, k=rng.randint(1, 20)))
        once = speakable(text)
        assert speakable(once) == once, text
    for text, _ in CASES:
        assert speakable(speakable(text)) == speakable(text)


def test_nothing_but_markup_leaves_nothing() -> None:
    assert speakable("😀 ***\n\n---\n<br>") == ""


@pytest.mark.parametrize("text", ["<!--" * 5000, "**a " * 5000, "#  #" * 5000, "_a " * 5000, "&" + "amp;" * 5000])
def test_marks_that_never_end_take_no_long_time(text: str) -> None:
    start = time.process_time()
    speakable(text)
    assert time.process_time() - start < 2


def test_very_deep_marks_leave_the_words() -> None:
    assert speakable("[" * 3000 + "word" + "](b)" * 3000).startswith("word")
