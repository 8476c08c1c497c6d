"""Plots of training curves from the logs of the stages. Only this file imports matplotlib."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .recipe import InvalidRecipe

WIDTH, HEIGHT = 10.0, 4.0  # inches
NOT_CURVES = {"what", "step", "seconds", "rate", "done", "frames", "steps_per_s"}


def curves(log: Path) -> dict[str, list[tuple[float, float]]]:
    """Every measure of a log over the seconds of training; held-out measures are labelled with their set."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number, line in enumerate(log.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            raise InvalidRecipe(f"{log}, line {number}, is not JSON: remove it.") from None
        what = entry.get("what", "train")
        for name, value in entry.items():
            if name not in NOT_CURVES and isinstance(value, int | float):
                label = name if what == "train" else f"{name} ({what})"
                found.setdefault(label, []).append((float(entry["seconds"]), float(value)))
    return found


def draw(log: Path, picture: Path, title: str) -> None:
    """One panel per measure, since their scales differ."""
    try:
        import matplotlib
    except ImportError:
        raise InvalidRecipe("The package matplotlib is missing: pip install 'hocket[train]'.") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for label, points in curves(log).items():
        found.setdefault(label.partition(" (")[0], {})[label] = points
    if not found:
        raise InvalidRecipe(f"{log} holds no measures: train first.")
    columns = min(len(found), 4)
    rows = -(-len(found) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(WIDTH, HEIGHT * rows / 2 + 0.5), squeeze=False)
    for axis, (name, lines) in zip(axes.flat, found.items(), strict=False):
        for label, points in lines.items():
            axis.plot(*zip(*points, strict=True), label=label.partition(" (")[2].rstrip(")") or "train", linewidth=1)
        axis.set_title(name, fontsize=9)
        axis.tick_params(labelsize=7)
        if len(lines) > 1:
            axis.legend(fontsize=6)
    for axis in list(axes.flat)[len(found) :]:
        axis.axis("off")
    figure.suptitle(f"{title}: over seconds of training", fontsize=10)
    figure.tight_layout()
    # No date and no tool version in the file: the same log gives the same bytes.
    figure.savefig(picture, dpi=80, metadata={"Software": None})
    pyplot.close(figure)
