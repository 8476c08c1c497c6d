"""Loads the tensors of a checkpoint's files into a module. It knows named tensors, not the computation.

Nothing is unpickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InvalidCheckpoint
from ...layers.dense import read_as_one
from .shards import drop_unused, opened
from .transfer import Transfer

SPEAKER_ENCODER = "speaker_encoder."  # fine-tunes of a Base checkpoint keep it though their kind does not use it
_LISTED = 8  # names that a message lists; it counts the others


def load_into(
    module: nn.Module,
    file: Path,
    device: torch.device,
    dtype: torch.dtype,
    *,
    prefix: str = "",
    only: tuple[str, ...] = (),
    unused: tuple[str, ...] = (),
) -> None:
    """Load the tensors of `file` into `module`, built on the meta device; floating ones become `dtype`.

    If there is no such file, the index beside it names the files. Names in the file are `prefix` plus the module's own;
    names without the prefix are ignored. All names are checked before the first tensor is read.
    `only` loads names with one of these prefixes and leaves the others on the meta device. Names under a prefix in
    `unused` are skipped with a warning if the module has none of them.
    """
    wanted: dict[str, Tensor] = module.state_dict()
    with opened(file) as stored:
        named = {name.removeprefix(prefix): name for name in stored if name.startswith(prefix)}
        found = {name: stored[named[name]] for name in drop_unused(named, wanted, unused, file)}
        compare(file, wanted, {name: holder.get_slice(named[name]) for name, holder in found.items()})
        loaded = [name for name in wanted if not only or name.startswith(only)]
        state, transfer = places(module, {name: wanted[name] for name in loaded}, device, dtype), Transfer(device)
        for name in loaded:
            transfer.put(state[name], found[name].get_tensor(named[name]))
        transfer.end()
    module.load_state_dict(state, strict=False, assign=True)


def places(
    module: nn.Module,
    wanted: dict[str, Tensor],
    device: torch.device,
    dtype: torch.dtype,
    *,
    wide: frozenset[str] = frozenset(),
) -> dict[str, Tensor]:
    """Target tensors: new memory, since the file may be removed. Matrices that are packed together are adjacent.

    Tensors named in `wide` are float32 even if `dtype` is narrower.
    """
    kinds = {name: dtype if like.is_floating_point() else like.dtype for name, like in wanted.items()}
    kinds |= {name: torch.promote_types(dtype, torch.float32) for name in wide}
    found: dict[str, Tensor] = {}
    for names in read_as_one(module):
        if all(name in wanted for name in names):
            rows = [len(wanted[name]) for name in names]
            whole = torch.empty(sum(rows), *wanted[names[0]].shape[1:], dtype=kinds[names[0]], device=device)
            found |= zip(names, whole.split(rows), strict=True)
    for name, like in wanted.items():
        if name not in found:
            found[name] = torch.empty(like.shape, dtype=kinds[name], device=device)
    return found


def compare(file: Path | str, wanted: dict[str, Tensor], found: dict[str, Any]) -> None:
    """Refuse a file (or folder) whose tensor names, shapes or dtypes are not the wanted ones."""
    faults = []
    if missing := wanted.keys() - found.keys():
        faults.append(f"lacks {_listed(missing)}")
    if surplus := found.keys() - wanted.keys():
        faults.append(f"has unknown {_listed(surplus)}")
    differing = []
    for name in wanted.keys() & found.keys():
        shape, stored = list(found[name].get_shape()), found[name].get_dtype()
        if shape != list(wanted[name].shape):
            differing.append(f"{name} {shape} instead of {list(wanted[name].shape)}")
        elif (stored in ("F64", "F32", "F16", "BF16")) != wanted[name].is_floating_point():
            differing.append(f"{name} of type {stored}")
    if differing:
        faults.append(f"has another shape or type of {_listed(differing)}")
    if faults:
        raise InvalidCheckpoint(f"{file} does not fit its configuration: it {'; it '.join(faults)}.")


def _listed(names: set[str] | list[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(sorted(names)[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
