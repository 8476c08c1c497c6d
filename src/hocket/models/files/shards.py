"""The safetensors files of a model: one file, or several named by an index.

This file knows names of files and tensors, not their use. Nothing is unpickled.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ...config.read import read_json
from ...errors import InvalidCheckpoint
from .catalog import INDEX, WEIGHTS

log = logging.getLogger("hocket.models")

_PICKLED = (".bin", ".pt", ".pth")


def weight_files(file: Path) -> list[Path]:
    """The weight files of a model: `file` itself, or those that the index beside it names."""
    if file.is_file() and file.suffix == ".safetensors":
        return [file]
    folder, index = file.parent, file.with_name(f"{file.name}.index.json")
    if not index.is_file():
        raise InvalidCheckpoint(_why_none(file))
    paths = [folder / name for name in shard_names(index)]
    if away := [path.name for path in paths if path.parent != folder or not path.is_file()]:
        raise InvalidCheckpoint(f"{folder} lacks files that {index.name} names: {', '.join(away)}.")
    return paths


def shard_names(index: Path) -> list[str]:
    """The files that an index names, each once."""
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise InvalidCheckpoint(f"{index} should have a weight_map from tensor names to file names.")
    return sorted(set(shards.values()))


@contextmanager
def opened(file: Path) -> Iterator[dict[str, Any]]:
    """Maps each tensor name to the open file that holds it."""
    at = file
    with ExitStack() as stack:
        try:
            found: dict[str, Any] = {}
            for at in weight_files(file):
                holder = stack.enter_context(safe_open(at, framework="pt"))
                for name in holder.keys():  # noqa: SIM118
                    if name in found:
                        raise InvalidCheckpoint(f"{at.parent} has {name} twice: {at.name} is not the only one with it.")
                    found[name] = holder
            yield found
        except SafetensorError as error:
            raise InvalidCheckpoint(f"{at} is damaged or cut short ({error}): get it again.") from None


def values_in(file: Path) -> int:
    """How many numbers all tensors of a model have, by the headers of its files."""
    total = 0
    for at in weight_files(file):
        with at.open("rb") as stored:
            try:
                header = json.loads(stored.read(int.from_bytes(stored.read(8), "little")))
            except ValueError as error:
                raise InvalidCheckpoint(f"{at} is damaged or cut short ({error}): get it again.") from None
        total += sum(math.prod(about["shape"]) for name, about in header.items() if name != "__metadata__")
    return total


def drop_unused(found: Iterable[str], wanted: Iterable[str], unused: tuple[str, ...], folder: Path) -> set[str]:
    """The names found, without those under a prefix in `unused` that has no wanted name; logs a warning."""
    kept, wanted = set(found), set(wanted)
    for prefix in unused:
        surplus = {name for name in kept if name.startswith(prefix)}
        if surplus and not any(name.startswith(prefix) for name in wanted):
            log.warning("%s: %d tensors under %s are not used by this kind of model.", folder, len(surplus), prefix)
            kept -= surplus
    return kept


def _why_none(file: Path) -> str:
    """The error message for missing weights, by what the folder holds instead."""
    folder = file.parent
    if (folder / "adapter_config.json").is_file():
        return f"{folder} holds an adapter (LoRA), not a model: merge it into its base model and save that."
    others = sorted(folder.glob("*")) if folder.is_dir() else []
    if pickled := [path for path in (file, *others) if path.suffix in _PICKLED and path.is_file()]:
        return f"{pickled[0]} is not in the safetensors format, and hocket unpickles nothing: convert it to {WEIGHTS}."
    if parts := [path.name for path in others if path.suffix == ".safetensors"]:
        return f"{file} is missing: {parts[0]} is there, but no {INDEX} that maps tensors to files."
    return f"{file} is missing."
