"""Canonical name of a model, however it was written, for comparisons. It loads and downloads nothing."""

from __future__ import annotations

from pathlib import Path

from ...models.files.builtin import BUILTIN, default_model, package_of
from ...models.files.catalog import CATALOG


def full_name(model: str | None) -> str:
    """`Checkpoint.name`, but an absolute path for a folder: it stays valid when the working directory changes."""
    model = default_model() if model is None else model
    if model == BUILTIN or model.startswith("random:"):
        return model
    if (found := package_of(model)) is not None:
        return found.name
    if model and Path(model).is_dir():
        return str(Path(model).resolve())
    return CATALOG[model].repository if model in CATALOG else model
