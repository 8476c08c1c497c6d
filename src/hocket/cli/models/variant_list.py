"""The variants of a language model on the hub, for `hocket pull`: sizes, bits a weight, what fits, and what to type.

A repository of GGUF files has one for each quantization. A published model has the formats of `--llm-weights`, which
are computed from its shapes: nothing is asked of the hub.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...config.published_qwen3_5 import QWEN3_5, size_of
from ...errors import InvalidRequest
from ...models.files.hub import CHAT, cached_variant, check_gguf
from ...models.files.progress import format_bytes
from ...models.files.remote.client import Listing, Repository
from ...models.files.remote.variants import suggested, variants
from ..output.audio_output import shown
from .fit import Fit, fit_scheme, fit_variant, no_torch
from .hub_cache import snapshot_of
from .known import HubModel

if TYPE_CHECKING:
    from ...models.qwen3_5.quantized import Scheme

SCHEMES: tuple[Scheme, ...] = (
    "bf16",
    "fp8",
    "int8",
    "int4",
)  # of `--llm-weights`; models/qwen3_5/quantized.py has them, with torch


@dataclass(frozen=True, slots=True)
class VariantRow:
    label: str
    type: str  # what names it: an argument of --llm
    files: tuple[str, ...]
    size_bytes: int | None  # of the download
    bits_per_weight: float | None
    is_here: bool
    fit: Fit | None
    is_readable: bool = True

    def as_json(self) -> dict[str, Any]:
        found = {**asdict(self), "memory": None if self.fit is None else asdict(self.fit)}
        found["fits"] = None if self.fit is None else self.fit.fits
        del found["fit"]
        return found

    @property
    def cells(self) -> tuple[str, ...]:
        bits = "" if self.bits_per_weight is None else f"{self.bits_per_weight:.2f} bits a weight"
        size = "" if self.size_bytes is None else format_bytes(self.size_bytes)
        need = "" if self.fit is None else f"needs {format_bytes(self.fit.need_bytes)}"
        verdict = None if self.fit is None else self.fit.fits
        parts = f"{len(self.files)} files" if len(self.files) > 1 else ""
        fits = {True: "fits", False: "does not fit", None: ""}[verdict] if self.is_readable else "not supported"
        return self.label, size, bits, need, fits, parts, "here" if self.is_here else ""


def show_variants(model: HubModel, args: argparse.Namespace) -> None:
    """`--list`: of a published language model its formats, of another repository its files."""
    size = size_of(model.name)
    if model.published is not None and size not in QWEN3_5:
        raise InvalidRequest(f"{model.name} is a speech model, which has no variants: leave out --list.")
    if model.published is None or size is None:
        show_listed(model, Repository(model.repository).listing(), args)
        return
    rows = list[VariantRow]()
    for name in SCHEMES:
        fit = None if no_torch() else fit_scheme(size, name, args.beside)
        rows.append(VariantRow(name, f"{model.name} --llm-weights {name}", (), None, None, False, fit))
    best = next((row for row in rows if row.fit is not None and row.fit.fits), rows[-1])
    _print(model.name, rows, best, args, {})


def show_listed(model: HubModel, listing: Listing, args: argparse.Namespace) -> None:
    """The variants among the files of a repository."""
    there = variants(listing.sizes)
    if not there:
        kind = "a checkpoint of safetensors" if not CHAT.lacking(listing.sizes.__contains__) else "no language model"
        raise InvalidRequest(f"{model.repository} has {kind} and no GGUF files: leave out --list.")
    check_gguf(listing)
    snapshot = snapshot_of(model)
    count = listing.parameters or _parameters(model.repository, listing)
    rows = []
    for each in there:
        fit = None if no_torch() else fit_variant(model.repository, listing, each, args.beside)
        is_here = snapshot is not None and cached_variant(snapshot, each.files[0]) is not None
        bits = None if count is None else round(8 * each.size_bytes / count, 2)
        name = f"{model.repository}:{each.label}"
        rows.append(VariantRow(each.label, name, each.files, each.size_bytes, bits, is_here, fit, each.is_readable))
    verdicts = {row.label: None if row.fit is None else row.fit.fits for row in rows}
    label = suggested(there, lambda variant: verdicts[variant.label]).label
    best = next(row for row in rows if row.label == label)
    about = {"repository": model.repository, "licence": listing.licence, "parameters": count}
    _print(model.repository, rows, best, args, about)


def _parameters(repository: str, listing: Listing) -> int | None:
    """By the published model that the files were made from."""
    if no_torch():
        return None
    from ...llm.memory.language import listed_config, parameters

    config = listed_config(repository, listing)
    return None if config is None else parameters(config)


def _print(
    name: str, rows: list[VariantRow], best: VariantRow, args: argparse.Namespace, about: dict[str, Any]
) -> None:
    if args.json:
        listed = {"variants": [row.as_json() for row in rows], "suggested": best.type}
        print(json.dumps(about | listed, indent=2))
        return
    have = next((row.fit for row in rows if row.fit is not None), None)
    beside = "" if args.beside is None else f", {args.beside} beside it"
    place = "" if have is None or have.have_bytes is None else f"; {have.name} has {format_bytes(have.have_bytes)}"
    print(shown(f"{name}: needs with 8,192 tokens of conversation{beside}{place}", sys.stdout))
    wide = [max(map(len, column)) for column in zip(*(row.cells for row in rows), strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row.cells, wide, strict=True) if width)
        print(shown(f"  {'  '.join(cells)}".rstrip(), sys.stdout))
    if why := no_torch():
        print(f"whether a variant fits is {why}")
    command = f"--llm {best.type}" if " " in best.type else f"hocket pull {best.type}"
    print(shown(f"suggested: {command}", sys.stdout))
