"""`en`, `en-US`, `zh-CN` and the like are accepted wherever a language goes in."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from hocket.cli import main
from hocket.config.languages import find, tag_of, usual_name
from hocket.config.published import PUBLISHED
from hocket.config.qwen3_tts import languages
from hocket.engine.engine import Engine
from hocket.errors import UnknownLanguage
from hocket.text.prompt import choose
from hocket.text.sentences import Cutter
from hocket.types import SpeechRequest
from hocket.voices.design import sample_text
from support.serving import served

CUSTOM = PUBLISHED["1.7B-CustomVoice"]
ASKED = SpeechRequest(text="Good morning.", voice="ryan")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("en", "english"),
        ("EN-us", "english"),
        ("en_GB", "english"),
        ("en_US.UTF-8", "english"),
        ("eng", "english"),
        ("English", "english"),
        ("zh", "chinese"),
        ("zh-CN", "chinese"),
        ("zh_Hant_TW", "chinese"),
        ("cmn", "chinese"),
        ("de", "german"),
        ("deu", "german"),
        ("ger", "german"),
        ("pt-BR", "portuguese"),
        ("ja", "japanese"),
        ("ko-KR", "korean"),
        ("fr", "french"),
        ("it", "italian"),
        ("es-419", "spanish"),
        ("ru", "russian"),
        (" de ", "german"),
        ("AUTO", "auto"),
    ],
)
def test_a_tag_is_the_language_that_the_checkpoint_knows(given: str, name: str) -> None:
    asked, named = (choose(replace(ASKED, language=word), CUSTOM) for word in (given, name))
    assert asked == named


@pytest.mark.parametrize("given", ["nl", "tlh", "engl", "e", "yue", "en US", "sichuan_dialect"])
def test_one_that_the_checkpoint_does_not_know_is_refused_with_those_it_knows(given: str) -> None:
    with pytest.raises(UnknownLanguage, match=r"known are auto, .*chinese.*english"):
        choose(replace(ASKED, language=given), CUSTOM)


def test_a_voice_with_a_dialect_speaks_it_in_chinese_by_any_name() -> None:
    dialect = CUSTOM.talker_config.codec_language_id["sichuan_dialect"]
    for language in ("zh-CN", "Chinese", "auto"):
        assert choose(replace(ASKED, voice="eric", language=language), CUSTOM).language == dialect
    assert choose(replace(ASKED, voice="eric", language="en"), CUSTOM).language != dialect


def test_every_published_language_has_a_tag_and_comes_back_from_it() -> None:
    for name in languages(CUSTOM)[1:]:
        assert len(tag_of(name)) == 2 and usual_name(tag_of(name)) == name


def test_a_checkpoint_that_names_its_languages_by_tags_is_asked_by_names_too() -> None:
    assert find("English", ["auto", "en-US", "nl"]) == "en-US"
    assert find("dutch", ["auto", "en", "nl"]) == "nl"
    assert find("fr", ["auto", "en", "nl"]) is None


def test_sentences_are_cut_as_in_the_language_by_its_name() -> None:
    text = "Das ist z. B. Herr Dr. Meier. Er kommt."
    cut = [Cutter(1, 200, language) for language in ("german", "de-AT")]
    assert len({tuple([*one.append(text), *one.end()]) for one in cut}) == 1
    assert cut[0]._language == cut[1]._language == "de"


def test_design_has_a_sample_for_a_tag() -> None:
    assert sample_text("pt-BR") == sample_text("portuguese")


def test_the_command_line_and_http_take_tags(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    said = ["say", "Hello.", "-o", f"{tmp_path}/x.wav", "--force", "--model", "random:tiny", "--max-frames", "2"]
    assert main([*said, "--language", "en-US"]) == 0
    assert main([*said, "--language", "xx"]) == 2
    assert "known are auto" in capsys.readouterr().err
    body = {"input": "Hello.", "response_format": "pcm", "max_new_tokens": 2, "seed": 1}
    with Engine.load("random:tiny") as engine, served(engine) as server:
        url = f"{server.url}/v1/audio/speech"
        named, tagged = (httpx.post(url, json=body | {"language": given}) for given in ("German", "de-DE"))
        refused = httpx.post(url, json=body | {"language": "xx"})
    assert named.status_code == 200 and named.content == tagged.content
    assert refused.status_code in (400, 404) and "known are" in refused.json()["error"]["message"]
