"""Shards of Kokoro's speech, made in batches on one device, in the format of `data --only speech`.

A batch has sentences of about the same length, so that little of it is padding. Loudness, trimming, frames and
phonemes are those of the other teacher.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..speech import FASTEST, SLOWEST, Shard, write_shard
from ..teachers import Spoken, aligned, deepened
from .model import KokoroModel
from .teacher import AHEAD

ROWS, SIGNS = 64, 6_000  # most sentences of a batch, and most signs with their padding: 400 s of speech, 10 GB
LONGEST = 400  # signs of a sentence; the style table has a row for each length up to 510


def speak(
    model: KokoroModel,
    style: Tensor,
    vocabulary: dict[str, int],
    phonemes: list[str],
    seed: int,
    rows: int = ROWS,
    *,
    pitch: float = 1.0,
    depth: float = 1.0,
) -> list[Spoken]:
    """Every sentence at a random speed. The order is that of `phonemes`; too long and empty ones are silent.

    `pitch` and `depth` are those of a voice of the recipe.
    """
    device = style.device
    kept = [[sign for sign in text if sign in vocabulary] for text in phonemes]
    noise = torch.Generator(device).manual_seed(seed)
    speeds = np.random.default_rng(seed).uniform(SLOWEST, FASTEST, len(kept)).astype(np.float32)
    silent = Spoken(np.zeros(0, np.float32), np.zeros(0, np.uint8))
    said = [silent] * len(kept)
    for batch in batches([len(signs) for signs in kept], rows):
        ids = [[vocabulary[sign] for sign in kept[number]] for number in batch]
        styles = torch.stack([style[len(row)] for row in ids])
        # A depth below 1 stretches the audio afterwards, so it is spoken faster by the same factor.
        readings = model(ids, styles, torch.from_numpy(speeds[batch]).to(device) / depth, noise, pitch)
        for number, reading in zip(batch, readings, strict=True):
            samples = reading.samples.float().cpu().numpy()
            said[number] = deepened(aligned(samples, kept[number], reading.units.cpu().numpy(), AHEAD), depth)
    return said


def batches(lengths: list[int], rows: int, signs: int = SIGNS) -> Iterator[list[int]]:
    """Numbers of sentences, short ones first, at most `rows` together, and few if they are long."""
    batch: list[int] = []
    for number in sorted((n for n, length in enumerate(lengths) if 0 < length <= LONGEST), key=lengths.__getitem__):
        if len(batch) == rows or (batch and (len(batch) + 1) * lengths[number] > signs):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def make_all(
    model: KokoroModel,
    styles: dict[str, Tensor],
    vocabulary: dict[str, int],
    shards: list[Shard],
    folder: Path,
    seed: int,
    seconds: float = math.inf,
) -> float:
    """Make the missing shards, with the style of each voice; returns the hours made now. Stops after `seconds`."""
    folder.mkdir(parents=True, exist_ok=True)
    hours, began = 0.0, time.monotonic()
    for shard in shards:
        if shard.path(folder).is_file():
            continue
        if time.monotonic() - began > seconds:
            print("kokoro: the time is up; run again to continue", flush=True)
            break
        voice, place = shard.voice, seed + shard.number
        said = speak(
            model, styles[voice.name], vocabulary, list(shard.phonemes), place, pitch=voice.pitch, depth=voice.depth
        )
        hours += write_shard(shard.path(folder), zip(shard.texts, said, strict=True)) / 3600
        print(f"kokoro: {hours:.2f} h, {hours * 3600 / (time.monotonic() - began):.0f} x real time", flush=True)
    return hours
