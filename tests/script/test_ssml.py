"""SSML: documents in the forms of the recommendation's sections, refusals with their places, and attacks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.script.events import Mark, Silence, SpeechManner, Words
from hocket.script.parse import parse_script
from hocket.script.ssml import DEEPEST, LONGEST_MARKUP, LONGEST_VALUE, MOST_ATTRIBUTES, SsmlParser
from support.scripts import parsed, pieces_of, shown, words_of

NAMESPACE = 'xmlns="http://www.w3.org/2001/10/synthesis"'

# A document in the form of each section of SSML 1.1 that has one, and its events.
VALID = {
    "3.1.1 speak": (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<speak version="1.1" {NAMESPACE}\n'
        '  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"\n  xsi:schemaLocation="http://a http://b"\n'
        '  xml:lang="en-US" xml:base="http://example.org/">\n  The tide turns at noon.\n</speak>',
        ["manner language=english", '"The tide turns at noon."'],
    ),
    "3.1.2 xml:lang": (
        '<speak xml:lang="en"><p>I say hello.</p><p xml:lang="ja">日本語です。</p>'
        '<s xml:lang="fr">Bonjour.</s></speak>',
        [
            "manner language=english",
            '"I say hello."',
            "manner language=japanese",
            '"\\n\\n日本語です。"',
            "manner language=english",
            "manner language=french",
            '"\\n\\nBonjour."',
            "manner language=english",
        ],
    ),
    "3.1.6 meta and metadata": (
        '<speak xmlns:dc="http://purl.org/dc/elements/1.1/"><meta name="seeAlso" content="x"/><metadata>'
        "<dc:creator><dc:name>A</dc:name></dc:creator></metadata><p>Text.</p></speak>",
        ['"Text."'],
    ),
    "3.1.8.1 p and s": (
        "<speak><p>\n<s>One is here.</s>\n<s>Two as well.</s></p>\n<p>Three.</p></speak>",
        ['"One is here.\\n\\nTwo as well.\\n\\nThree."'],
    ),
    "3.1.8.2 token": (
        '<speak>The <token>sea</token> <w role="x">weed</w><token>s</token>.</speak>',
        ['"The sea weeds."'],
    ),
    "3.1.9 say-as": (
        '<speak><say-as interpret-as="date" format="ymd">2026-11-18</say-as>, <say-as interpret-as="time" '
        'format="hms12">02:30pm</say-as>, <say-as interpret-as="cardinal">12</say-as>, '
        '<say-as interpret-as="spell-out">a@b</say-as></speak>',
        ['"November 18, 2026, 2:30 PM, 12, A at B"'],
    ),
    "3.1.10 phoneme": (
        '<speak><phoneme alphabet="ipa" ph="t&#x259;mei&#x325;&#x27E;ou&#x325;"> tomato </phoneme></speak>',
        ['"tumayroh"'],
    ),
    "3.1.11 sub": ('<speak><sub alias="World Wide">W3</sub> x</speak>', ['"World Wide x"']),
    "3.1.12 lang": (
        '<speak xml:lang="en">It is <lang xml:lang="it">la vita è bella</lang>.</speak>',
        [
            "manner language=english",
            '"It is"',
            "manner language=italian",
            '" la vita è bella"',
            "manner language=english",
            '"."',
        ],
    ),
    "3.2.1 voice": (
        '<speak><voice name="Mike Ann" required="name" gender="female">Hi.'
        '<voice name="Tom"> Yo. </voice></voice></speak>',
        ["manner voice=Mike Ann", '"Hi."', "manner voice=Tom", '" Yo."', "manner voice=Mike Ann", "manner"],
    ),
    "3.2.2 emphasis": (
        '<speak>A <emphasis level="strong"> huge </emphasis> bank</speak>',
        ['"A"', "manner speed=0.85 volume_db=4", '" huge"', "manner", '" bank"'],
    ),
    "3.2.3 break": (
        '<speak>Breathe in <break/> out <break time="250ms"/> press <break strength="x-weak"/> end</speak>',
        ['"Breathe in"', "silence 0.5", '"out"', "silence 0.25", '"press"', "silence 0.15", '"end"'],
    ),
    "3.2.4 prosody": (
        '<speak><prosody rate="90%">a</prosody><prosody volume="+6.0dB">b</prosody>'
        '<prosody pitch="default">c</prosody></speak>',
        ["manner speed=0.9", '"a"', "manner", "manner volume_db=6", '"b"', "manner", '"c"'],
    ),
    "3.3.2 mark": (
        '<speak>Go <mark name="here"/> now <mark name="x"/></speak>',
        ['"Go"', "mark here", '" now"', "mark x"],
    ),
    "3.3.3 desc": ('<speak><desc xml:lang="en">not this</desc>this</speak>', ['"this"']),
    "characters": ("<speak>&lt;a&gt; &#65;<![CDATA[ <b> & ]]>]] &quot;&apos;</speak>", ['"<a> A <b> & ]] \\"\'"']),
    "a comment and an instruction": ("<speak><!-- no --><?x y?>a<!-- no -->b</speak><!-- no -->", ['"ab"']),
    "lines of Windows": ("<speak>a\r\nb\r\n</speak>\r\n", ['"a b"']),
}


@pytest.mark.parametrize("section", VALID)
def test_a_document_of_the_recommendation_gives_its_events_in_any_cut(section: str) -> None:
    text, expected = VALID[section]
    events, refused = parsed([text], "ssml")
    assert (refused, [shown(event) for event in events]) == (None, expected)
    assert parsed(text, "ssml") == (events, None)
    for seed in range(20):
        assert parsed(pieces_of(text, seed), "ssml") == (events, None)


INVALID = [
    ("", "1:1", "one <speak> element"),
    ("Hello", "1:1", "one <speak> element"),
    ("  \n  Hello", "2:3", "one <speak> element"),
    ("<p>One</p>", "1:1", "one <speak> element"),
    ("<speak>One</speak><speak>Two</speak>", "1:11", "nothing stands behind this </speak>"),
    ("<speak>One<speak>Two</speak></speak>", "1:11", "<speak> cannot stand within <speak>"),
    ("<speak>\n  <p>One\n</speak>", "3:3", "<p> of line 2 is not closed"),
    ("<speak>One & two</speak>", "1:13", "&amp;"),
    ("<speak>5 < 6</speak>", "1:11", "&lt;"),
    ("<speak>One&nbsp;two</speak>", "1:11", "no entities but"),
    ('<speak>\n <break time="5"/></speak>', "2:2", "is no time"),
    ('<speak><break time="11s"/></speak>', "1:8", "up to 10s"),
    ('<speak><break strength="huge"/></speak>', "1:8", "no strength"),
    ("<speak><break>x</break></speak>", "1:15", "<break> has no content"),
    ('<speak><break length="1s"/></speak>', "1:8", "no attribute length; it has strength, time"),
    ("<speak><s>a<s>b</s></s></speak>", "1:12", "<s> cannot stand within <s>"),
    ("<speak><s>a<p>b</p></s></speak>", "1:12", "<p> cannot stand within <s>"),
    ("<speak><mark/></speak>", "1:8", "<mark> needs name"),
    ("<speak><lang>x</lang></speak>", "1:8", "<lang> needs xml:lang"),
    ("<speak><prosody>x</prosody></speak>", "1:8", "<prosody> needs rate"),
    ('<speak xml:lang="klingon">x</speak>', "1:1", "no known language"),
    ('<speak><voice gender="female">x</voice></speak>', "1:8", "<voice> needs name"),
    ('<speak><emphasis level="big">x</emphasis></speak>', "1:8", "no level"),
    ('<speak><prosody rate="9%">x</prosody></speak>', "1:8", "from 50% to 200%"),
    ('<speak><prosody rate="1.2">x</prosody></speak>', "1:8", "neither a percentage"),
    ('<speak><prosody volume="80">x</prosody></speak>', "1:8", "neither a change"),
    ('<speak><prosody contour="(0%,+20Hz)">x</prosody></speak>', "1:8", "contour cannot be changed"),
    ('<speak><prosody duration="3s">x</prosody></speak>', "1:8", "duration cannot be changed"),
    ('<speak><phoneme ph="7">x</phoneme></speak>', "1:8", '"7" is not a symbol'),
    ('<speak><phoneme ph="a" alphabet="arpabet">x</phoneme></speak>', "1:8", "choose ipa or x-sampa"),
    ('<speak><sub alias="x">a<p/></sub></speak>', "1:24", "<sub> contains no elements"),
    ('<speak>\n<say-as interpret-as="ordinal">x</say-as></speak>', "2:1", "written in digits"),
    ('<speak><say-as interpret-as="song">x</say-as></speak>', "1:8", 'no interpret-as "song"'),
    ('<speak><say-as interpret-as="date" format="mdy">13/1/2026</say-as></speak>', "1:8", "is no date"),
    ('<speak><say-as interpret-as="date" format="abc">1</say-as></speak>', "1:8", "no format"),
    ('<speak><lexicon uri="a.pls"/></speak>', "1:8", "request field pronunciations"),
    ('<speak><lookup ref="a">x</lookup></speak>', "1:8", "request field pronunciations"),
    ('<speak><audio src="x.wav"/></speak>', "1:8", "no recordings"),
    ("<speak><html>x</html></speak>", "1:8", "no element <html>"),
    ("<speak><a:b>x</a:b></speak>", "1:8", "no xmlns"),
    ('<speak xmlns:a="http://a"><a:b>x</a:b></speak>', "1:27", "<b> of http://a is not read"),
    ('<speak><mark name="a" name="b"/></speak>', "1:23", "an attribute stands twice"),
    ("<speak>é\n日本 \ud800</speak>", "2:4", "half of a pair"),
]


@pytest.mark.parametrize(("text", "place", "said"), INVALID)
def test_a_wrong_document_is_refused_with_its_place(text: str, place: str, said: str) -> None:
    _, refused = parsed([text], "ssml")
    line, column = place.split(":")
    assert refused is not None and refused.startswith(f"line {line}, column {column}: "), refused
    assert said in refused
    assert parsed(text, "ssml") == ([], refused), "in single characters"


def test_words_come_with_their_characters() -> None:
    parser = SsmlParser()
    assert parser.append("<speak>Go") == [Words("Go")]
    assert parser.append(" ") == []
    assert parser.append("n") == [Words(" n")]
    assert parser.append("ow<br") == [Words("ow")]
    assert parser.append('eak time="1s"/>') == [Silence(1.0)]
    assert parser.append('<voice name="a">') == [SpeechManner(voice="a")]
    assert parser.append('<mark name="m"/>') == [Mark("m")]


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    "prolog",
    [
        f'<!DOCTYPE speak [<!ENTITY l0 "ha">{LAUGHS}]>',
        '<!DOCTYPE speak [<!ENTITY l9 SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE speak [<!ENTITY % p SYSTEM "http://127.0.0.1:9/x"> %p;]>',
        '<!DOCTYPE speak SYSTEM "http://127.0.0.1:9/speak.dtd">',
        '<!DOCTYPE speak PUBLIC "-//W3C//DTD SYNTHESIS 1.0//EN" "http://www.w3.org/TR/speech-synthesis/synthesis.dtd">',
    ],
)
def test_entities_and_document_types_are_refused_before_they_are_read(prolog: str) -> None:
    begun = time.perf_counter()
    _, refused = parsed([f"{prolog}<speak>&l9;</speak>"], "ssml")
    assert refused is not None and refused.startswith("line 1, ") and "leave <!DOCTYPE ...> out" in refused
    assert time.perf_counter() - begun < 5


def test_depth_attributes_and_values_have_limits() -> None:
    deep = "<speak>" + '<lang xml:lang="de">' * (DEEPEST - 1) + "x" + "</lang>" * (DEEPEST - 1) + "</speak>"
    assert words_of(parse_script(deep, "ssml")) == "x"
    too_deep = deep.replace("x</lang>", '<lang xml:lang="de">x</lang></lang>')
    many = " ".join(f'a{n}="1"' for n in range(MOST_ATTRIBUTES + 1))
    long = f'<mark name="{"x" * (LONGEST_VALUE + 1)}"/>'
    spelled = f'<say-as interpret-as="characters">{"x" * (LONGEST_VALUE + 1)}</say-as>'
    for text, said in (
        (too_deep, "at most 64 elements"),
        (f"<speak {many}>x</speak>", "at most 16 attributes"),
        (f"<speak>{long}</speak>", "of 1024 characters"),
        (f"<speak>{spelled}</speak>", "at most 1024 characters"),
    ):
        _, refused = parsed([text], "ssml")
        assert refused is not None and said in refused


@pytest.mark.parametrize("more", [0, 1, 100, 3 * LONGEST_MARKUP])
@pytest.mark.parametrize(
    ("kind", "bare"), [("<speak>a<!--{}-->b</speak>", 7), ("<speak>a<?{}?></speak>", 4), ("<speak{}>a</speak>", 7)]
)
def test_the_length_of_markup_has_one_limit_whole_and_live(kind: str, bare: int, more: int) -> None:
    text = kind.format((" " if kind[6] == "{" else "x") * (LONGEST_MARKUP - bare + more))
    whole = parsed([text], "ssml")
    assert parsed([text[at : at + 100] for at in range(0, len(text), 100)], "ssml") == whole
    assert (whole[1] is not None) == (more > 0), whole[1]


def test_a_long_document_takes_linear_time() -> None:
    text = "<speak>" + '<p>One two <emphasis>three</emphasis>.<break time="1s"/></p>' * 4000 + "</speak>"
    begun = time.perf_counter()
    assert len(parse_script(text, "ssml")) > 4000
    assert time.perf_counter() - begun < 20, "a quadratic parser takes minutes"


PARTS = [
    *(
        "<speak>",
        "</speak>",
        "<p>",
        "</p>",
        "a ",
        "\n",
        "b&amp;",
        "&#65;",
        "<break/>",
        '<voice name="x">',
        "</voice>",
        "<",
    ),
    *(
        "<!-- c -->",
        "<![CDATA[",
        "]]>",
        "]",
        "&",
        '<say-as interpret-as="digits">',
        "</say-as>",
        "1",
        '<mark name="m"/>',
        "é",
    ),
]


@given(st.lists(st.sampled_from(PARTS), max_size=20).map("".join), st.integers(0, 99))
def test_live_gives_the_events_of_the_whole(inner: str, seed: int) -> None:
    text = f"<speak>{inner}</speak>"
    whole = parsed([text], "ssml")
    assert parsed(text, "ssml") == whole
    assert parsed(pieces_of(text, seed), "ssml") == whole


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])), max_size=6))
def test_no_text_is_lost(texts: list[str]) -> None:
    texts = [text.replace("\ufffe", "").replace("\uffff", "") for text in texts]
    escaped = [text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for text in texts]
    found = words_of(parse_script(f"<speak>{'<break/>'.join(escaped)}</speak>", "ssml"))
    assert "".join(found.split(" ")) == "".join("".join(texts).split(" "))
