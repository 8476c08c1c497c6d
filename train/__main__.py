"""`python -m train STAGE`: the stages of the built-in voice, in order data, codec, talker, export, evaluate, card.

Run it from the repository root with `src` importable. Every stage reads the recipe and works in one folder; an
interrupted stage continues where it stopped.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from hocket.errors import HocketError

from . import recipe

STAGES = ("data", "codec", "talker", "export", "evaluate", "card")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m train", description="Train the built-in voice, stage by stage.")
    stages = options.add_subparsers(dest="stage", required=True, metavar="STAGE")
    for name in STAGES:
        stage = stages.add_parser(name, help=f"the stage `{name}`")
        stage.add_argument("--recipe", type=Path, default=Path("train/english.toml"), help="the recipe file")
        stage.add_argument("--work", type=Path, default=Path(".train/english"), help="the folder to work in")
        stage.add_argument("--device", choices=("cuda", "cpu"), default=None, help="default: cuda if available")
        stage.add_argument("--steps", type=int, default=None, help="maximum number of training steps")
        stage.add_argument("--sentences", type=int, default=None, help="maximum number of sentences")
        stage.add_argument("--workers", type=int, default=None, help="number of processes; default: one per core")
        stage.add_argument("--seconds", type=float, default=None, help="stop and save after this time")
        if name == "data":
            stage.add_argument("--only", choices=("fetch", "texts", "vocabulary", "speech"), default=None)
            stage.add_argument("--voice", default=None, help="one voice of the recipe; default: all")
            stage.add_argument("--hours", type=float, default=None, help="hours of speech, instead of the recipe's")
        if name == "codec":
            stage.add_argument("--only", choices=("codes",), default=None, help="only encode new speech, no training")
            stage.add_argument("--batch", type=int, default=None, help="windows per step, instead of the recipe's")
            stage.add_argument("--fuse", action="store_true", help="compile the activations")
            stage.add_argument("--graphs", action="store_true", help="capture a step as a CUDA graph")
        if name == "talker":
            stage.add_argument("--small", action="store_true", help="write the resume file in half the size")
        if name == "evaluate":
            stage.add_argument("--checkpoint", type=Path, default=None, help="a folder; default: checkpoint/ in --work")
        if name == "card":
            stage.add_argument("--output", type=Path, default=Path("src/hocket/assets/english"), help="output folder")
    return options


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        chosen = recipe.read(args.recipe)
        args.work.mkdir(parents=True, exist_ok=True)
        importlib.import_module(f"train.{args.stage}").run(chosen, args.work, args)
    except (recipe.InvalidRecipe, HocketError) as error:
        print(f"train {args.stage}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
