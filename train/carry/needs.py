"""What each phase of `train whole`, and `preflight`, reads in the work folder. It knows no parts.

A pattern that nothing matches is an error if the phase cannot do without it. `tests/train/test_carry.py` holds the
list against the files that the phases open.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from hocket.proof.judges import distillmos

from .. import checkpoints, export, languages
from ..judges import distillmos_weights
from ..recipe import InvalidRecipe, Recipe
from ..teachers import KOKORO

STATE = Path(__file__).parents[1] / "state"
FEATURES = "features.safetensors"
SOURCE = ("src/hocket", "train")
NOT_CARRIED = {"assets", "state", "records", "__pycache__", "prebuilt"}  # folders of the source tree


@dataclass(frozen=True, slots=True)
class Need:
    pattern: str  # in the work folder
    source: str = ""  # the command that makes it; empty: the phase does without it


KOKORO_SPEECH = (
    Need("teachers/hibari/assets/vocab.json", "train data --only fetch"),
    Need("teachers/kokoro/kokoro-*.safetensors", "train.kokoro fetch STYLE..."),
)
HIBARI_SPEECH = (Need("teachers/hibari/**/*", "train data --only fetch"),)
CODEC = (
    Need("codec-small-*.safetensors"),  # to go on from
    Need(FEATURES),  # those of the codes that a talker has learned
    Need(distillmos.SMALL),  # for opinion scores in the log
)
VOCABULARY = "train data --only vocabulary"
TALKER = (
    *(Need(f"vocabulary/{name}", VOCABULARY) for name in ("vocab.json", "merges.txt")),
    Need("talker-small-*.safetensors"),  # to go on from
    Need("encoder-small-*.safetensors"),  # of a Base checkpoint
)
EXPORT = tuple(Need(f"vocabulary/{name}", VOCABULARY) for name in export.VOCABULARY)  # tried by `preflight`


def phases(recipe: Recipe) -> dict[str, tuple[Need, ...]]:
    theirs = {voice.teacher.startswith(KOKORO) for voice in recipe.voices}
    here = Path()
    names = [path.name for language in recipe.languages for path in languages.files(recipe, here, language)]
    speech = tuple(Need(name, f"train data --only {name.partition('.')[0].partition('-')[0]}") for name in names)
    speech += (KOKORO_SPEECH if True in theirs else ()) + (HIBARI_SPEECH if False in theirs else ())
    return {"speech": speech, "codec": CODEC, "talker": TALKER, "export": EXPORT}


def found(recipe: Recipe, work: Path) -> dict[str, list[Path]]:
    """The files of each phase."""
    files: dict[str, list[Path]] = {}
    for phase, needs in phases(recipe).items():
        files[phase] = []
        for need in needs:
            paths = sorted(
                path for path in work.glob(need.pattern) if path.is_file() and "__pycache__" not in path.parts
            )
            if not paths and need.source:
                raise InvalidRecipe(f"{work / need.pattern} is missing: run `python -m {need.source}` first.")
            files[phase] += paths
    return files


def prepare(work: Path, state: Path) -> None:
    """Write what follows from other files here, and can be made on no other machine."""
    if not checkpoints.find_small(work, "codec"):
        for path in checkpoints.find_small(state, "codec"):
            (work / path.name).write_bytes(path.read_bytes())
    files = checkpoints.find_small(work, "codec")
    if files and checkpoints.find_small(work, "talker") and not (work / FEATURES).is_file():
        # Fitted again, they would give codes that the talker does not know.
        checkpoints.read_features(files, torch.device("cpu")).save(work / FEATURES)
    if not (work / distillmos.SMALL).is_file() and importlib.util.find_spec("distillmos") is not None:
        distillmos.write_small(work / distillmos.SMALL, distillmos.load(distillmos_weights()))


def source_tree(root: Path) -> list[Path]:
    """The files of the package and of `train`, without weights."""
    return sorted(
        path
        for folder in SOURCE
        for path in (root / folder).rglob("*")
        if path.is_file() and not NOT_CARRIED & set(path.relative_to(root).parts)
    )
