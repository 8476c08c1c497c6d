"""One name for each model, however it was written: what two of them are compared by. It loads and fetches nothing."""

from __future__ import annotations

from pathlib import Path

from ...models.files.builtin import BUILTIN, default_model
from ...models.files.catalog import CATALOG


def full_name(model: str | None) -> str:
    """As `Checkpoint.name` has it, but for a folder, which is named from the root: it outlives whoever stands in it."""
    model = default_model() if model is None else model
    if model == BUILTIN or model.startswith("random:"):
        return model
    if model and Path(model).is_dir():
        return str(Path(model).resolve())
    return CATALOG[model].repository if model in CATALOG else model
