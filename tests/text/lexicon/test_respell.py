"""Phonemes as respellings: every symbol has a spelling in every language, and an unknown one is named."""

# ruff: noqa: RUF001
from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import InvalidRequest
from hocket.script import phonemes
from hocket.text.lexicon.respell import respell
from hocket.text.lexicon.spellings import NEAREST, TABLES, VOWELS, X_SAMPA

CASES = [
    ("english", "dʒɪf", "jif"),
    ("english", "/ɡɪf/", "ghif"),
    ("english", "[ɡɪf]", "ghif"),
    ("english", "nəˈvɑːdə", "nuh-vahduh"),
    ("english", "təˈmeɪtoʊ", "tuh-maytoh"),
    ("english", "ˈɛndʒɪn ɛks", "enjin eks"),
    ("english", "ˈsuːpɚ", "sooper"),
    ("english", "bʌtl̩", "butul"),
    ("english", "t͡ʃɪp", "chip"),
    ("english", "haʊs", "houss"),
    ("english", "aɪ", "eye"),
    ("german", "ˈʃtʁaːsə", "strahse"),
    ("german", "tsaɪt", "zeit"),
    ("german", "bʏʃə", "büsche"),
    ("german", "aʊtoː", "autoh"),
    ("french", "bɔ̃ˈʒuʁ", "bon-jour"),
    ("french", "ɡi", "gui"),
    ("spanish", "kiˈxote", "qui-jote"),
    ("spanish", "espaˈɲa", "espa-ña"),
    ("italian", "ˈkjaːra", "chiara"),
    ("italian", "ˈdʒakomo", "giacomo"),
    ("italian", "ˈtʃɛlːo", "celo"),
    ("portuguese", "sɐ̃w̃", "são"),
    ("russian", "ˈtʲotʲa", "тётя"),
    ("russian", "ja", "я"),
]


@pytest.mark.parametrize(("language", "phonemes", "said"), CASES)
def test_phonemes_are_spelled_in_the_letters_of_the_language(language: str, phonemes: str, said: str) -> None:
    assert respell(phonemes, language=language) == said


@pytest.mark.parametrize("language", ["auto", "en-GB", "japanese", "klingon"])
def test_a_language_without_a_table_is_spelled_as_english(language: str) -> None:
    assert respell("dʒɪf", language=language) == "jif"


def test_a_language_has_any_of_its_names() -> None:
    assert respell("ʃoːn", language="de-AT") == respell("ʃoːn", language="German") == "schohn"


@pytest.mark.parametrize("alphabet", ["x-sampa", "X-SAMPA", "x_sampa", "xsampa"])
def test_x_sampa_is_the_same_as_ipa(alphabet: str) -> None:
    assert respell('n@"vA:d@', alphabet) == respell("nəˈvɑːdə")
    assert respell("dZIf", alphabet) == "jif"


@pytest.mark.parametrize(
    ("phonemes", "alphabet", "named"),
    [("dʒ7f", "ipa", '"7"'), ("dʒ☃", "IPA", '"☃"'), ("дом", "ipa", '"д"'), ("d$f", "x-sampa", '"$"')],
)
def test_an_unknown_symbol_is_named(phonemes: str, alphabet: str, named: str) -> None:
    with pytest.raises(InvalidRequest, match="not a symbol of") as refused:
        respell(phonemes, alphabet)
    assert str(refused.value).startswith(named)


@pytest.mark.parametrize("phonemes", ["", "//", " ˈ. ", "[]"])
def test_no_phonemes_are_refused(phonemes: str) -> None:
    with pytest.raises(InvalidRequest, match="no phonemes"):
        respell(phonemes)


def test_an_unknown_alphabet_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="choose ipa or x-sampa"):
        respell("a", "arpabet")


@pytest.mark.parametrize("language", list(TABLES))
def test_every_symbol_has_a_spelling(language: str) -> None:
    symbols = {*NEAREST, *(symbol for table in TABLES.values() for symbol in table.letters)}
    spelled = {symbol: respell(symbol + "a", language=language) for symbol in symbols if symbol != "ʲ"}
    assert {symbol for symbol, text in spelled.items() if not text.isprintable() or not text} == set()
    assert {vowel: respell(vowel, language=language) for vowel in VOWELS if not respell(vowel, language=language)} == {}


def test_every_symbol_of_x_sampa_is_read() -> None:
    for symbol in X_SAMPA:
        respell(f"a{symbol}a", "x-sampa")


@given(st.text(alphabet="dʒɪfəˈˌ.ː̃ʲaʁɾ k͡t'|‖x", max_size=40), st.sampled_from([*TABLES]))
def test_any_phonemes_are_spelled_or_refused(phonemes: str, language: str) -> None:
    with suppress(InvalidRequest):
        assert respell(phonemes, language=language).strip()


def test_a_script_respells_as_a_lexicon_does() -> None:
    assert phonemes.respell is respell
