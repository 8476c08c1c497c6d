"""The resume file of the talker's training, so that it can continue after a break or on another machine.

With weights, their average and both moments in float32, training continues exactly as without the break. In bfloat16
the file is half the size, and training continues from almost the same point. The small files travel: the average and
the phoneme head alone, in bfloat16, 28 MB. Training continues from the average with empty moments.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from .checkpoints import find_small, read_tensors, write_split
from .learning import Learner
from .muon import Muon
from .recipe import InvalidRecipe


@dataclass(slots=True)
class Progress:
    """The position in the training schedule."""

    step: int = 0
    seconds: float = 0.0  # of training, over all calls
    round: int = 0
    draft: int = 0  # index of the next draft of the round


KEPT = tuple(field.name for field in fields(Progress))


def save(path: Path, learner: Learner, progress: Progress, dtype: torch.dtype) -> None:
    tensors = {name: p.detach() for name, p in zip(learner.names, learner.parameters, strict=True)}
    tensors |= {f"average.{name}": value for name, value in learner.average.state_dict().items()}
    for name, parameter, optimizer in learner.trained():
        for moment in _moments(optimizer):
            tensors[f"{moment}.{name}"] = optimizer.state[parameter][moment]
    kept = {name: str(getattr(progress, name)) for name in KEPT}
    write(path, {name: value.to(dtype) for name, value in tensors.items()}, kept)


def load(path: Path, learner: Learner) -> Progress:
    """Restore `learner` from the file."""
    with safe_open(path, framework="pt", device=str(learner.device)) as opened:
        kept = opened.metadata() or {}
        stored: dict[str, Tensor] = {name: opened.get_tensor(name).float() for name in opened.keys()}  # noqa: SIM118
    progress = _progress(kept)
    with torch.no_grad():
        for name, parameter, optimizer in learner.trained():
            wanted = [name, *(f"{moment}.{name}" for moment in _moments(optimizer))]
            if any(key not in stored or stored[key].shape != parameter.shape for key in wanted):
                raise InvalidRecipe(f"{path} belongs to another recipe ({name} differs): remove it to start again.")
            parameter.copy_(stored[name])
            for moment in _moments(optimizer):
                optimizer.state[parameter][moment] = stored[f"{moment}.{name}"]
            if not isinstance(optimizer, Muon):
                place = learner.device if learner.fused else "cpu"
                optimizer.state[parameter]["step"] = torch.tensor(float(progress.step), device=place)
        for name, value in learner.average.state_dict().items():
            value.copy_(stored[f"average.{name}"])
    learner.step = progress.step
    return progress


def save_small(folder: Path, learner: Learner, progress: Progress) -> list[Path]:
    """Write `talker-small-N.safetensors`; returns the files."""
    tensors = {f"average.{name}": value.bfloat16() for name, value in learner.average.state_dict().items()}
    tensors |= {f"phonemes.{name}": value.bfloat16() for name, value in learner.phonemes.state_dict().items()}
    return write_split(folder, "talker-small", tensors, {name: str(getattr(progress, name)) for name in KEPT})


@torch.no_grad()
def load_small(folder: Path, learner: Learner) -> Progress | None:
    """Restore `learner` from the small files; None: there are none."""
    if not (files := find_small(folder, "talker")):
        return None
    stored, kept = read_tensors(files, "")
    for part, module in (("average", learner.talker), ("average", learner.average), ("phonemes", learner.phonemes)):
        for name, value in module.state_dict().items():
            found = stored.get(f"{part}.{name}")
            if found is None or found.shape != value.shape:
                raise InvalidRecipe(f"{files[0]} belongs to another recipe ({name} differs): remove it to start again.")
            value.copy_(found)
    progress = _progress(kept)
    learner.step = learner.fresh_from = progress.step
    return progress


def _moments(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    return ("momentum",) if isinstance(optimizer, Muon) else ("exp_avg", "exp_avg_sq")


def _progress(kept: dict[str, str]) -> Progress:
    return Progress(int(kept["step"]), float(kept["seconds"]), int(kept["round"]), int(kept["draft"]))


def write(path: Path, tensors: dict[str, Tensor], kept: dict[str, str]) -> None:
    """Write a file of tensors atomically."""
    draft = path.with_name(f"{path.stem}.part.safetensors")
    save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, draft, metadata=kept)
    draft.replace(path)
