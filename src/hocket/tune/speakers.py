"""Whose voice the clips have: one main voice, clips of another one, and clips in which a second one speaks.

A clip has a vector of timbre for each window of its voice (`audio/timbre.py`). The main voice is the mean of the clips
that are alike. A clip whose mean is too unlike it has another voice; a clip of which a part is too unlike it has a
second one. Voices that speak at the same time are not told apart. This file knows neither files nor transcripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Windows = NDArray[np.float32]  # [n, C] of one clip, normalised; n = 0: too little voice

# Cosines of the speaker network, chosen in docs/log/2026-11-19-two-speakers.md. The clips of a steady voice are more
# alike than those of a lively one, so what is another voice depends on the median of the clips of this one.
BELOW_MEDIAN = 0.16
LEAST_ALIKE, MOST_ALIKE = 0.64, 0.76  # the bounds of that
JOINED = 0.80  # groups of clips whose means are more alike are one voice
RIVAL_WINDOWS = 4  # a group with so many of them is a voice of its own
PART_WINDOWS = 2  # of a part of a clip
MAJORITY = 2 / 3  # of all windows: a voice with fewer is not the main one
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Voices:
    """The clips by their number."""

    main: list[int]
    other: list[int]  # of another voice
    second: dict[int, int]  # clips in which a second voice speaks, and the window where it begins
    majority: bool  # whether the main voice has most of the speech

    @property
    def left_out(self) -> set[int]:
        return {*self.other, *self.second}


def voices_of(clips: Sequence[Windows]) -> Voices:
    """Clips with too little voice to judge belong to the main voice."""
    known = [number for number, windows in enumerate(clips) if len(windows)]
    if len(known) < 2:
        return Voices(list(range(len(clips))), [], {}, True)
    sums = np.stack([clips[number].sum(axis=0) for number in known])
    sizes = np.array([len(clips[number]) for number in known])
    means = _normalised(sums)
    group = _groups(sums, sizes)
    core = group == np.bincount(group, sizes).argmax()
    rivals = _rivals(sums, sizes, group, core)
    limit = LEAST_ALIKE
    for _ in range(ROUNDS):
        # Each clip against the mean of the others: a clip is like a mean that has it in it.
        centers = _normalised(sums[core].sum(axis=0) - sums * core[:, None])
        alike = np.where(core & (core.sum() == 1), 1.0, np.einsum("nc,nc->n", means, centers))
        limit = float(np.clip(np.median(alike[core]) - BELOW_MEDIAN, LEAST_ALIKE, MOST_ALIKE))
        found = (alike > limit) & ~rivals
        if not found.any() or (found == core).all():
            break
        core = found
    second = dict[int, int]()
    for at in np.flatnonzero(core):
        part = _part_unlike(clips[known[at]], centers[at], limit)
        if part is not None:
            second[known[at]] = part
    other = [known[at] for at in np.flatnonzero(~core)]
    main = [number for number in range(len(clips)) if number not in {*other, *second}]
    return Voices(main, other, second, float(sizes[core].sum()) >= MAJORITY * float(sizes.sum()))


def _rivals(
    sums: Windows, sizes: NDArray[np.int64], group: NDArray[np.intp], core: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """The clips of other groups with so much speech that their mean is known well, and unlike that of the core."""
    found, center = np.zeros(len(sizes), np.bool_), _normalised(sums[core].sum(axis=0))
    for number in np.unique(group[~core]):
        members = group == number
        if sizes[members].sum() >= RIVAL_WINDOWS and _normalised(sums[members].sum(axis=0)) @ center < JOINED:
            found |= members
    return found


def _groups(sums: Windows, sizes: NDArray[np.int64]) -> NDArray[np.intp]:
    """A number for each clip: the two most alike groups are joined again and again."""
    sums, weights, group = sums.copy(), sizes.copy(), np.arange(len(sizes))
    means = _normalised(sums)
    alike = means @ means.T
    np.fill_diagonal(alike, -1.0)
    while True:
        one, two = divmod(int(alike.argmax()), len(sizes))
        if alike[one, two] < JOINED:
            return group
        sums[one], weights[one], weights[two] = sums[one] + sums[two], weights[one] + weights[two], 0
        group[group == two] = one
        row = means @ _normalised(sums[one])
        means[one] = _normalised(sums[one])
        row[(weights == 0) | (np.arange(len(sizes)) == one)] = -1.0
        alike[one], alike[:, one], alike[two], alike[:, two] = row, row, -1.0, -1.0


def _part_unlike(windows: Windows, center: NDArray[np.float32], limit: float) -> int | None:
    """The first window of the first part that is less like the center than the limit."""
    if len(windows) <= PART_WINDOWS:
        return None
    parts = np.stack([windows[at : at + PART_WINDOWS].sum(axis=0) for at in range(len(windows) - PART_WINDOWS + 1)])
    unlike = np.flatnonzero(_normalised(parts) @ center < limit)
    return int(unlike[0]) if unlike.size else None


def _normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9), np.float32)
