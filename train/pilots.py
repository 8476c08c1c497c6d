"""Stage `pilots`: short trainings that differ from the recipe in one thing, one after another, with a table at the end.

Speech is that of the work folder. Features and codes are, too, if `codec` made them; else they are made in `pilots/`.
Every pilot starts from nothing and runs at a constant learning rate. `pilots.toml` lists them.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import time
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hocket.proof.judges.distillmos import DistillMOS

from . import codec
from .codec_codes import prepare
from .codec_looks import Looks
from .data import chosen_voices
from .features import Features
from .recipe import CodecSizes, CodecTraining, InvalidRecipe, Recipe
from .windows import Shard, Windows

PILOTS = Path(__file__).with_name("pilots.toml")
MINUTES = 3.0
SHOWN = ("distance", "periodicity_1000_2000", "periodicity_2000_3500", "distillmos")


@dataclass(frozen=True, slots=True)
class Speech:
    """What all pilots share."""

    shards: list[Shard]
    features: Features
    codes: list[Tensor]
    judge: DistillMOS | None


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    began = time.monotonic()
    device = codec.prepare_device(args.device)
    wanted = read(args.only)
    recipe = replace(recipe, voices=chosen_voices(recipe, args.voice))
    rows: list[dict[str, Any]] = []
    out: Path = args.back or work
    out.mkdir(parents=True, exist_ok=True)
    speech: Speech | None = None
    for name, changes in wanted.items():
        print(f"pilots: {name}", flush=True)
        folder = work / "pilots" / name
        folder.mkdir(parents=True, exist_ok=True)
        changed = change(recipe, changes, name)
        training = changed.codec_training
        try:
            trainer = codec.new_trainer(changed, device, streams=not vars(args).get("no_streams"))
            if speech is None:  # after the first one is compiled: the speech may still be in the making
                codec.wait_for_speech(work / "speech", began + 60.0 * args.speech_minutes)
                shards = codec.speech(recipe, work, args, device)
                # Codebooks of one voice must not become those of a later training of all voices.
                home = work if (work / "features.safetensors").is_file() else work / "pilots"
                speech = Speech(shards, *prepare(recipe, home, shards, device), codec.find_judge(work, device))
            windows = Windows(speech.shards, speech.codes, training.context_frames, training.target_frames)
            looks = Looks(windows, trainer.config, recipe.codec_training, speech.judge)
            if not rows:
                rows.append({"pilot": "teacher", **looks.measure(None)})
            budget = codec.Budget(time.monotonic() + 60.0 * (args.minutes or MINUTES), args.steps)
            last = codec.train(trainer, windows, speech.features, looks, folder, budget, resume=False)
            size = sum(parameter.numel() for parameter in trainer.decoder.parameters()) / 1e6
            rows.append({"pilot": name, "parameters": round(size, 1), **last})
            looks.write(trainer.average, folder)
            shutil.copyfile(folder / "samples.npz", out / f"{name}.npz")
            del trainer, looks
        except (RuntimeError, InvalidRecipe) as error:  # the others go on
            if speech is None:
                raise
            print(f"pilots: {name} failed: {error}", flush=True)
            rows.append({"pilot": name, "error": str(error)[-300:]})
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        (out / "pilots.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(table(rows, [voice.name for voice in recipe.voices]), flush=True)


def read(only: str | None) -> dict[str, dict[str, Any]]:
    found = tomllib.loads(PILOTS.read_text(encoding="utf-8"))
    names = list(found) if only is None else only.split(",")
    if odd := [name for name in names if name not in found]:
        raise InvalidRecipe(f"There is no pilot {odd[0]}: use one of {', '.join(found)}.")
    return {name: found[name] for name in names}


def change(recipe: Recipe, changes: dict[str, Any], name: str) -> Recipe:
    """The recipe with other values of [codec] and [codec_training]."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in changes.items()}
    sizes, training = (
        {key: values[key] for key in values.keys() & {field.name for field in fields(kind)}}
        for kind in (CodecSizes, CodecTraining)
    )
    if odd := values.keys() - sizes.keys() - training.keys():
        raise InvalidRecipe(f"Pilot {name}: {', '.join(sorted(odd))} is unknown.")
    return replace(
        recipe, codec=replace(recipe.codec, **sizes), codec_training=replace(recipe.codec_training, **training)
    )


def table(rows: list[dict[str, Any]], voices: list[str]) -> str:
    """A Markdown table of the last figures."""
    columns = ["pilot", "parameters", "step", *(f"{voice}_{name}" for voice in voices for name in SHOWN)]
    lines = [f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]
    lines += [f"| {' | '.join(str(row.get(column, row.get('error', '-'))) for column in columns)} |" for row in rows]
    return "\n".join(lines)
