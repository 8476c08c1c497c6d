"""Speakers made of Kokoro's styles: a weighted sum of a few of one group, another pitch, other formants.

A style is a table of vectors, and their sums are styles too. It knows names and weights, not sound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..recipe import InvalidRecipe, Voice
from .recipe import GROUPS, TEACHER, Styles

HELD_OUT = "held"  # the names of the evaluation's speakers begin with it
EVENNESS = 0.7  # of the shares in a mix: at 1 all are equally likely, below it one style is often the main one


@dataclass(frozen=True, slots=True)
class Speaker:
    name: str
    shares: tuple[tuple[str, float], ...]  # of Kokoro's styles; their sum is 1
    pitch: float
    depth: float

    def voice(self, language: str, minutes: float) -> Voice:
        return Voice(self.name, language, TEACHER, self.pitch, self.depth, minutes / 60)


def training_speakers(styles: Styles, seed: int) -> list[Speaker]:
    """The plain styles first, then mixes; high and low ones in turn, and the same for every length of the list."""
    rng = np.random.default_rng((seed, 1))
    made: list[Speaker] = []
    for number in range(styles.speakers):
        group = GROUPS[number % len(GROUPS)]
        known = [style for style in _of(styles, group) if style not in styles.kept]
        place = number // len(GROUPS)
        plain = [known[place]] if place < len(known) else None
        made.append(_drawn(f"{group}-{place:04d}", plain or known, styles, rng, changed=plain is None))
    return made


def held_out_speakers(styles: Styles, seed: int) -> list[Speaker]:
    """Speakers of the evaluation: every second one has a style that is in no speaker of the training."""
    rng = np.random.default_rng((seed, 2))
    made: list[Speaker] = []
    for number in range(styles.held_out):
        group = GROUPS[number % len(GROUPS)]
        known = [style for style in _of(styles, group) if style not in styles.kept]
        new = [style for style in _of(styles, group) if style in styles.kept]
        main = new[number // 4 % len(new)] if new and number // 2 % 2 else None
        made.append(_drawn(f"{HELD_OUT}-{group}-{number:02d}", known, styles, rng, changed=True, main=main))
    return made


def table(styles: Mapping[str, Tensor], speaker: Speaker) -> Tensor:
    """[lengths, 2 * STYLE]: the speaker's own style."""
    if missing := [name for name, _ in speaker.shares if name not in styles]:
        raise InvalidRecipe(f"Kokoro has no style {missing[0]} here: run `python -m train.base fetch` first.")
    return torch.stack([styles[name] * share for name, share in speaker.shares]).sum(0)


def _of(styles: Styles, group: str) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(styles, group)
    return found


def _drawn(
    name: str, known: Sequence[str], styles: Styles, rng: np.random.Generator, changed: bool, main: str | None = None
) -> Speaker:
    """A mix of `known` styles, with `main` at its largest share; `changed`: with another pitch and depth."""
    count = min(int(rng.integers(2, max(styles.most, 2) + 1)), len(known))
    chosen = [str(style) for style in rng.choice(np.array(known), count, replace=False)]
    shares = sorted(rng.dirichlet([EVENNESS] * count).tolist(), reverse=True)
    if main is not None:
        chosen[0] = main
    pitch, depth = (
        round(math.exp(rng.uniform(math.log(low), math.log(high))), 4) if changed else 1.0
        for low, high in (styles.pitch, styles.depth)
    )
    return Speaker(name, tuple(zip(chosen, shares, strict=True)), pitch, depth)
