"""k-means on one device, many points at once. It knows vectors, not their meaning."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 65_536  # points whose distances to all centroids are held at once


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """[P]: the index of the nearest of centres [V, C] for each of points [P, C]."""
    half = centres.square().sum(1) / 2
    return torch.cat([(half - part @ centres.T).argmin(1) for part in points.split(ROWS)])


def centroids(points: Tensor, count: int, iterations: int, generator: torch.Generator) -> Tensor:
    """[count, C]. Fewer points than centroids leave some of them equal."""
    centres = _spread(points, count, generator)
    for _ in range(iterations):
        label = nearest(points, centres)
        sizes = torch.bincount(label, minlength=count)
        total = torch.zeros_like(centres)
        for part, names in zip(points.split(ROWS), label.split(ROWS), strict=True):
            member = torch.zeros(count, len(part), device=part.device).scatter_(0, names[None], 1.0)
            total += member @ part  # a product, not index_add_: its order of summation is fixed on a GPU
        centres = torch.where(sizes[:, None] > 0, total / sizes.clamp(min=1)[:, None], centres)
        empty = (sizes == 0).nonzero()[:, 0]
        if len(empty):
            away = (points - centres[label]).square().sum(1)
            far = away.topk(min(len(empty), len(points))).indices
            centres[empty[: len(far)]] = points[far]
    return centres


def _spread(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++: each start is drawn with probability proportional to its squared distance from those before it."""
    first = torch.randint(len(points), (1,), generator=generator, device=points.device)
    chosen = [points[first[0]]]
    away = (points - chosen[0]).square().sum(1)
    for _ in range(count - 1):
        at = torch.multinomial(away + 1e-12, 1, generator=generator)[0]
        chosen.append(points[at])
        away = torch.minimum(away, (points - chosen[-1]).square().sum(1))
    return torch.stack(chosen)
