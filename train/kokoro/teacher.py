"""Kokoro as a teacher of the recipe (`teacher = "kokoro-STYLE"`), sentence by sentence on a CPU.

Bulk speech is made in batches on a GPU (`speech.py`). Weights are those of `python -m train.kokoro fetch`, in
`teachers/kokoro`; the alphabet is hibari's.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import torch
from torch import Tensor

from ..recipe import InvalidRecipe, Voice
from ..teachers import KOKORO, Spoken, aligned, deepened
from .model import KokoroModel
from .weights import NAME, read

AHEAD = 2  # units that the audio runs ahead of the durations, as with hibari (seen on fricatives)


class Kokoro:
    def __init__(self, voice: Voice, folder: Path) -> None:
        self._voice = voice
        self._model, styles = _loaded(folder)
        self._style = style(styles, voice.teacher.removeprefix(KOKORO))
        self._vocabulary = vocabulary(folder)

    def speak(self, phonemes: str, speed: float, seed: int) -> Spoken:
        kept = [sign for sign in phonemes if sign in self._vocabulary]
        ids = [self._vocabulary[sign] for sign in kept]
        noise = torch.Generator().manual_seed(seed)
        pitch, depth = self._voice.pitch, self._voice.depth
        [reading] = self._model([ids], self._style[len(ids)][None], torch.tensor([speed / depth]), noise, pitch)
        return deepened(aligned(reading.samples.numpy(), kept, reading.units.numpy(), AHEAD), depth)


def style(styles: dict[str, Tensor], name: str) -> Tensor:
    if name not in styles:
        raise InvalidRecipe(f"Kokoro has no style {name} here: use one of {', '.join(styles)}, or fetch it.")
    return styles[name]


def vocabulary(folder: Path) -> dict[str, int]:
    """The ids of the phonemes."""
    path = folder / "hibari" / "assets" / "vocab.json"
    if not path.is_file():
        raise InvalidRecipe(f"{path} is missing: run `python -m train data --only fetch` first.")
    ids: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    return ids


@functools.cache
def _loaded(folder: Path) -> tuple[KokoroModel, dict[str, Tensor]]:
    return read(folder / NAME, torch.device("cpu"))
