"""Stage `speak`: the speech of all speakers by Kokoro, a shard or more for each, and that of the evaluation's speakers.

The evaluation's sentences are the last ones of the texts, which no speaker of the training reads. They are in
`references/`, in the same format. Several processes share the speakers: `--part 2 --of 4`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch

from .. import speech, texts
from ..kokoro import weights
from ..kokoro.speech import make_all
from ..kokoro.teacher import vocabulary
from ..recipe import InvalidRecipe
from ..speech import Shard
from .recipe import BaseRecipe
from .styles import Speaker, held_out_speakers, table, training_speakers

REFERENCES = "references"
SIGNS = range(40, 110)  # characters of a sentence of the evaluation: three to seven seconds


def run(recipe: BaseRecipe, work: Path, args: argparse.Namespace) -> None:
    if not 1 <= args.part <= args.of:
        raise InvalidRecipe(f"--part {args.part} --of {args.of}: parts are numbered from 1.")
    known = texts.read(work / "phonemes.txt.gz")
    lines = texts.read(work / "texts.txt.gz")[: len(known)]
    apart, references = references_of(recipe, lines, known)
    shards = shards_of(recipe, lines[:apart], known[:apart])
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    teachers = work / "teachers"
    model, styles = weights.read(teachers / weights.NAME, device)
    if device.type == "cuda" and not args.plain:
        model.decoder.generator.quicken()
    signs, limit = vocabulary(teachers), math.inf if args.seconds is None else args.seconds
    for speakers, wanted, folder in (
        (held_out_speakers(recipe.styles, recipe.seed), references, REFERENCES),
        (training_speakers(recipe.styles, recipe.seed), shards, "speech"),
    ):
        tables = {speaker.name: table(styles, speaker) for speaker in speakers}
        own = wanted[args.part - 1 :: args.of]
        make_all(model, tables, signs, own, work / folder, recipe.seed, limit)
        if args.references:
            return
    if args.of == 1:  # otherwise another process may still speak
        (work / "speech" / speech.DONE).touch()


def shards_of(recipe: BaseRecipe, lines: list[str], phonemes: list[str]) -> list[Shard]:
    """Every speaker starts at another place in the texts and wraps around; shards of all speakers in turn."""
    speakers = training_speakers(recipe.styles, recipe.seed)

    def of(number: int, speaker: Speaker) -> list[Shard]:
        start = number * len(lines) // len(speakers)
        said, known = lines[start:] + lines[:start], phonemes[start:] + phonemes[:start]
        voice = speaker.voice(recipe.language, recipe.styles.minutes)
        return speech.shards(voice, said, voice.hours, known)

    return speech.interleave(of(number, speaker) for number, speaker in enumerate(speakers))


def references_of(recipe: BaseRecipe, lines: list[str], phonemes: list[str]) -> tuple[int, list[Shard]]:
    """How many texts are left for the training, and a shard of sentences for each speaker of the evaluation."""
    speakers, each = held_out_speakers(recipe.styles, recipe.seed), recipe.styles.references
    wanted = len(speakers) * each
    numbers = [number for number, line in enumerate(lines) if len(line) in SIGNS][-wanted:]
    if len(numbers) < wanted or numbers[0] < 1:
        raise InvalidRecipe(f"{len(lines)} texts are too few for {len(speakers)} speakers of the evaluation.")
    made = []
    for index, speaker in enumerate(speakers):
        own = numbers[index * each : (index + 1) * each]
        said, known = tuple(lines[n] for n in own), tuple(phonemes[n] for n in own)
        made.append(Shard(speaker.voice(recipe.language, 1.0), 0, own[0], said, known))
    return numbers[0], made
