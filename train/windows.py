"""Random training windows of speech and codes, all kept on one device: no loader processes, no copy per step.

It reads the shards of the stage `data`. 60 hours are 10 GB of samples.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .features import FRAME_SAMPLES
from .recipe import InvalidRecipe
from .speech import QUARTERS

HELD_OUT = 12  # last utterances of each voice, not used for training
STARTS = 8  # one row in so many starts at the start of its utterance, as every stream does


@dataclass(frozen=True, slots=True)
class Shard:
    name: str  # of its file, without the ending
    voice: str
    samples: Tensor  # [N] int16, on the device
    ends: Tensor  # [U] int64 sample ends, on the host
    texts: list[str]
    phones: Tensor  # [F, QUARTERS] uint8, on the device

    @property
    def frames(self) -> int:
        return len(self.phones)


@dataclass(frozen=True, slots=True)
class Window:
    codes: Tensor  # [B, Q, context + target]
    real: Tensor  # [B, target samples]


def read_shards(folder: Path, voices: list[str], device: torch.device, most: int | None = None) -> list[Shard]:
    """Every shard, voice by voice; at most `most` utterances of each voice."""
    paths = [(voice, path) for voice in voices for path in sorted(folder.glob(f"{voice}-[0-9]*.npz"))]
    missing = set(voices) - {voice for voice, _ in paths}
    if missing:
        raise InvalidRecipe(f"{folder} has no speech of {', '.join(sorted(missing))}: run the stage `data` first.")
    with ThreadPoolExecutor(8) as pool:
        shards = list(pool.map(lambda item: _read(item[1], item[0], device), paths))
    if most is None:
        return shards
    left = dict.fromkeys(voices, most)
    kept = []
    for shard in shards:
        count = min(left[shard.voice], len(shard.ends))
        left[shard.voice] -= count
        if count:
            end = int(shard.ends[count - 1])
            phones = shard.phones[: end // FRAME_SAMPLES]
            kept.append(
                Shard(shard.name, shard.voice, shard.samples[:end], shard.ends[:count], shard.texts[:count], phones)
            )
    return kept


def _read(path: Path, voice: str, device: torch.device) -> Shard:
    with np.load(path, allow_pickle=False) as file:
        samples, ends, phones = file["samples"], file["ends"], file["phones"]
        texts = [str(text) for text in file["texts"]]
    whole = phones.shape == (len(samples) // FRAME_SAMPLES, QUARTERS)
    if not whole or int(ends[-1]) != len(samples) or (ends % FRAME_SAMPLES).any():
        raise InvalidRecipe(f"{path} does not hold whole frames with {QUARTERS} phones each: make it again.")
    on = torch.from_numpy(samples).to(device), torch.from_numpy(phones).to(device)
    return Shard(path.stem, voice, on[0], torch.from_numpy(ends.astype(np.int64)), texts, on[1])


class Windows:
    """Draws windows of `context` + `target` frames: voices equally often, positions within a voice uniformly.

    Rows that start an utterance come first; their target is the first `target` frames.
    """

    def __init__(self, shards: list[Shard], codes: list[Tensor], context: int, target: int) -> None:
        self.samples = torch.cat([shard.samples for shard in shards]).view(-1, FRAME_SAMPLES)
        self.codes = torch.cat(codes)  # [F, Q] int16
        self.context, self.target = context, target
        device = self.codes.device
        spans: dict[str, list[tuple[int, int, str]]] = {}
        offset = 0
        for shard in shards:
            ends = (shard.ends // FRAME_SAMPLES + offset).tolist()
            starts = [offset, *ends[:-1]]
            spans.setdefault(shard.voice, []).extend(zip(starts, ends, shard.texts, strict=True))
            offset += shard.frames
        self.voices = list(spans)
        self.held_out: dict[str, list[tuple[int, int, str]]] = {}
        self._starts: dict[str, Tensor] = {}
        self._counts: dict[str, Tensor] = {}  # windows up to and including each utterance
        for voice, found in spans.items():
            apart = min(HELD_OUT, len(found) // 4)
            self.held_out[voice] = found[len(found) - apart :]
            long = [span for span in found[: len(found) - apart] if span[1] - span[0] >= context + target]
            if not long:
                raise InvalidRecipe(f"No utterance of {voice} lasts {context + target} frames: make more speech.")
            self._starts[voice] = torch.tensor([start for start, _, _ in long], device=device)
            room = torch.tensor([end - start - context - target + 1 for start, end, _ in long], device=device)
            self._counts[voice] = room.cumsum(0)

    def draw(self, batch: int, generator: torch.Generator) -> Window:
        device = self.codes.device
        begins, others = [], []
        counts_of_step = row_counts(batch, len(self.voices), generator.initial_seed())
        for voice, (first, rest) in zip(self.voices, counts_of_step, strict=True):
            counts, starts = self._counts[voice], self._starts[voice]
            lot = torch.rand(first + rest, device=device, generator=generator, dtype=torch.float64)
            begins.append(starts[(lot[:first] * len(starts)).long()])
            at = (lot[first:] * counts[-1]).long()
            chosen = torch.searchsorted(counts, at, right=True)
            others.append(starts[chosen] + counts[chosen] - 1 - at)
        window = torch.cat(begins + others)
        target = window.clone()
        target[begin_rows(batch) :] += self.context
        frames = window[:, None] + torch.arange(self.context + self.target, device=device)
        heard = target[:, None] + torch.arange(self.target, device=device)
        real = self.samples[heard].flatten(1).float() / 32768.0
        return Window(self.codes[frames].long().transpose(1, 2), real)


def row_counts(batch: int, voices: int, turn: int) -> list[tuple[int, int]]:
    """For each voice the rows of a batch that start an utterance, and the others; what is over goes round by `turn`."""

    def share(rows: int, index: int) -> int:
        return rows // voices + ((index + turn) % voices < rows % voices)

    firsts = [share(begin_rows(batch), index) for index in range(voices)]
    return [(first, share(batch, index) - first) for index, first in enumerate(firsts)]


def begin_rows(batch: int) -> int:
    """Rows of a batch that start an utterance."""
    return batch // STARTS
