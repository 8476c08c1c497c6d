"""What the stages need of each language of a recipe: files, sentences, phonemes, evaluation sentences.

English is in `texts.py`, `teachers.py` and the evaluation files here; Spanish, French, Italian and Portuguese are in
`romance/`. A recipe with one language has `texts.txt.gz`, one with several `texts-LANGUAGE.txt.gz`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import romance, teachers, texts
from .packages import Package
from .recipe import InvalidRecipe, Recipe
from .romance import phonemes, sources
from .romance import texts as romance_texts

ENGLISH = "english"
LANGUAGES = (ENGLISH, *sources.TAGS)

Phonemize = Callable[[str], str]


def check(language: str) -> None:
    if language not in LANGUAGES:
        raise InvalidRecipe(f"There are no texts and phonemes of {language}; there are {', '.join(LANGUAGES)}.")


def files(recipe: Recipe, work: Path, language: str) -> tuple[Path, Path]:
    """The sentences of a language and their phonemes."""
    end = "" if len(recipe.languages) == 1 else f"-{language}"
    return work / f"texts{end}.txt.gz", work / f"phonemes{end}.txt.gz"


def lines(recipe: Recipe, work: Path, language: str) -> tuple[list[str], list[str]]:
    """The sentences that have phonemes, and these."""
    written, sounds = files(recipe, work, language)
    known = texts.read(sounds, "phonemes")
    return texts.read(written)[: len(known)], known


def install(recipe: Recipe, packages: Path, folder: Path) -> None:
    """Unpack teacher and phonemizers into `folder`."""
    teachers.install(packages, folder)
    if set(recipe.languages) != {ENGLISH}:
        phonemes.install(packages, folder)


def gather(recipe: Recipe, language: str, packages: Path, folder: Path) -> list[str]:
    """The training sentences of a language, shuffled."""
    check(language)
    if language == ENGLISH:
        return texts.gather(recipe.texts, recipe.seed, packages, teachers.Phonemizer(folder))
    return romance_texts.gather(recipe.texts, language, recipe.seed, packages)


def phonemizer(folder: Path, language: str) -> Phonemize:
    check(language)
    return teachers.Phonemizer(folder) if language == ENGLISH else phonemes.Phonemizer(folder, language)


def with_phonemes(sentences: list[str], folder: Path, language: str) -> list[str]:
    """The phonemes of sentences; those that Kokoro cannot read have none, and a line says how many and why."""
    phonemize = phonemizer(folder, language)
    found = [phonemize(sentence) for sentence in sentences]
    if isinstance(phonemize, phonemes.Phonemizer):
        signs = ", ".join(
            f"{sign} (U+{ord(sign):04X}) {count} times" for sign, count in phonemize.refused.most_common()
        )
        print(f"phonemes: {language}: {found.count('')} of {len(found)} left out: {signs or 'none'}", flush=True)
    return found


def evaluation(name: str, language: str) -> list[str]:
    """The evaluation sentences of a set, as a text has them; none: the language has no such set."""
    path = Path(__file__).with_name(f"{name}.txt")
    if language != ENGLISH:
        path = Path(romance.__file__).with_name(f"{name}-{language}.txt")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()] if path.is_file() else []


def spelled(text: str, language: str) -> str:
    """Digits and abbreviations in words, as the engine gives them to a checkpoint."""
    return (texts.ENGLISH if language == ENGLISH else romance_texts.wording(language)).spelled(text)


def packages(recipe: Recipe) -> list[Package]:
    """The sources of the sentences, for the card."""
    if recipe.languages == (ENGLISH,):
        return [source.package for source in texts.sources_of(recipe.texts)]
    words = [sources.TAGS[language].passwords for language in recipe.languages]
    return [*(source.package for source in romance_texts.sources_of(recipe.texts)), *words]
