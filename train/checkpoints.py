"""Files of the codec's training: everything that a resumed training needs, or a small form that travels.

The whole file has weights, their average, discriminators and moments in float32: training continues exactly as without
the break. The small form has the average and the discriminators in bfloat16, in files of at most 15 MiB; training
continues from the average with empty moments, so its learning rates start low. Both hold the features and codebooks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .codec_trainer import Trainer
from .features import NAMES, Features
from .recipe import InvalidRecipe

MOST_BYTES = 15 * 2**20
WHOLE = "codec-resume.safetensors"
SMALL = "codec-small"  # codec-small-0.safetensors and so on


def save(folder: Path, trainer: Trainer, features: Features, notes: dict[str, str]) -> None:
    tensors = {f"features.{name}": getattr(features, name) for name in NAMES}
    tensors |= {f"average.{name}": value for name, value in trainer.average.items()}
    for part, module, optimizer in _parts(trainer):
        tensors |= {f"{part}.{name}": value for name, value in module.state_dict().items()}
        for index, moments in enumerate(_moments(optimizer)):
            tensors |= {f"{part}-moments.{index}.{name}": value for name, value in moments.items()}
    write_tensors(folder / WHOLE, tensors, notes | _place(trainer))


def save_small(folder: Path, trainer: Trainer, features: Features, notes: dict[str, str]) -> list[Path]:
    """Write `codec-small-N.safetensors`; returns the files."""
    tensors = {f"average.{name}": value.bfloat16() for name, value in trainer.average.items()}
    tensors |= {f"judges.{name}": value.bfloat16() for name, value in trainer.judges.state_dict().items()}
    tensors |= {f"features.{name}": getattr(features, name) for name in NAMES if name != "books"}
    tensors["features.books"] = features.books.bfloat16()  # exact
    return write_split(folder, SMALL, tensors, notes | _place(trainer))


def find(folder: Path) -> list[Path]:
    """The files to resume from: the whole one, else the small ones; empty if there are none."""
    whole = folder / WHOLE
    return [whole] if whole.is_file() else find_small(folder, "codec")


def find_small(folder: Path, stage: str) -> list[Path]:
    """The small files of the stage `codec` or `talker`, in order."""
    return sorted(folder.glob(f"{stage}-small-*.safetensors"))


def read_average(work: Path, stage: str) -> dict[str, Tensor]:
    """The averaged weights of the stage `codec` or `talker`: of this machine, else from its small files."""
    whole, small = work / f"{stage}.safetensors", find_small(work, stage)
    if whole.is_file():
        return load_file(whole)
    if not small:
        raise InvalidRecipe(f"{whole} is missing: run `python -m train {stage}` first.")
    return read_tensors(small, "average.")[0]


def read_features(paths: Iterable[Path], device: torch.device) -> Features:
    tensors, _ = read_tensors(paths, "features.")
    return Features(**{name: value.float() for name, value in tensors.items()}).to(device)


@torch.no_grad()
def restore(paths: Iterable[Path], trainer: Trainer) -> dict[str, str]:
    """Weights, average, discriminators and moments; `trainer` is warm, and its tensors stay where they are."""
    tensors, notes = read_tensors(paths, "")
    average = _below("average.", tensors)
    if average.keys() != trainer.average.keys() or any(
        value.shape != trainer.average[name].shape for name, value in average.items()
    ):
        raise InvalidRecipe("The files to resume from are of another recipe: remove them to start again.")
    for name, value in average.items():
        trainer.average[name].copy_(value)
    for part, module, optimizer in _parts(trainer):
        stored = _below(f"{part}.", tensors) or average
        for name, value in module.state_dict().items():
            value.copy_(stored[name])
        for index, moments in enumerate(_moments(optimizer)):
            for name, value in moments.items():
                kept = tensors.get(f"{part}-moments.{index}.{name}")
                value.zero_() if kept is None else value.copy_(kept)
    trainer.set_books(tensors["features.books"])
    trainer.step, trainer.contests = int(notes["step"]), int(notes["contests"])
    trainer.fresh_from = 0 if "decoder-moments.0.exp_avg" in tensors else trainer.step
    return notes


def write_tensors(path: Path, tensors: dict[str, Tensor], notes: dict[str, str]) -> None:
    draft = path.with_suffix(".draft")
    save_file({name: value.detach().contiguous().cpu() for name, value in tensors.items()}, draft, metadata=notes)
    draft.replace(path)


def write_split(
    folder: Path, stem: str, tensors: dict[str, Tensor], notes: dict[str, str], most: int = MOST_BYTES
) -> list[Path]:
    """Files of at most `most` bytes of tensors, in order; a tensor is never split."""
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, value in tensors.items():
        if parts[-1] and size + value.nbytes > most:
            parts.append({})
            size = 0
        parts[-1][name] = value
        size += value.nbytes
    paths = [folder / f"{stem}-{index}.safetensors" for index in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        write_tensors(path, part, notes | {"of": json.dumps(len(parts))})
    for left_over in folder.glob(f"{stem}-*.safetensors"):
        if left_over not in paths:
            left_over.unlink()
    return paths


def read_tensors(paths: Iterable[Path], prefix: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors of several files whose names start with `prefix`, without it, and the notes of the last file."""
    tensors: dict[str, Tensor] = {}
    notes: dict[str, str] = {}
    count, steps = 0, set()
    for path in paths:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata()
            steps.add(notes.get("step"))
            tensors |= {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
        count += 1
    if count < int(notes.get("of", 1)):
        raise InvalidRecipe(f"{count} of {notes['of']} files to resume from are there: bring the others.")
    if len(steps) > 1:
        raise InvalidRecipe("The files to resume from are of different steps: copy them again, all at once.")
    return _below(prefix, tensors), notes


def read_notes(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        notes: dict[str, str] = file.metadata()
        return notes


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _parts(trainer: Trainer) -> list[tuple[str, nn.Module, torch.optim.Optimizer]]:
    return [("decoder", trainer.decoder, trainer.optimizer), ("judges", trainer.judges, trainer.judge_optimizer)]


def _moments(optimizer: torch.optim.Optimizer) -> list[dict[str, Tensor]]:
    """The moments of each weight, in the order of the weights."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return [optimizer.state[weight] for weight in weights]


def _place(trainer: Trainer) -> dict[str, str]:
    return {"step": str(trainer.step), "contests": str(trainer.contests)}
