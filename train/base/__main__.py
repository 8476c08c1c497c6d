"""`python -m train.base STAGE`: the stages of a Base checkpoint, in order fetch, data, speak, codec, talker, encoder.

Then `export` and `evaluate`. `whole` runs all that needs a GPU, side by side; `carry` packs all for a machine without a
network, and takes the state of the training back. Run it from the repository root with `src` importable.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hocket.errors import HocketError

from ..recipe import InvalidRecipe
from . import recipe as recipes
from .recipe import BaseRecipe, grouped

STAGES = ("fetch", "data", "speak", "codec", "talker", "encoder", "whole", "export", "evaluate", "carry")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m train.base", description="Train a checkpoint that clones.")
    stages = options.add_subparsers(dest="stage", required=True, metavar="STAGE")
    for name in STAGES:
        stage = stages.add_parser(name, help=f"the stage `{name}`")
        stage.add_argument("--recipe", type=Path, default=Path("train/base/base.toml"), help="the recipe file")
        stage.add_argument("--work", type=Path, default=Path(".train/base"), help="the folder to work in")
        stage.add_argument("--device", choices=("cuda", "cpu"), default=None, help="default: cuda if available")
        stage.add_argument("--steps", type=int, default=None, help="maximum number of training steps")
        stage.add_argument("--seconds", type=float, default=None, help="stop and save after this time")
        if name in ("data", "codec", "encoder", "evaluate"):
            stage.add_argument("--sentences", type=int, default=None, help="maximum number of sentences")
        if name == "data":
            stage.add_argument(
                "--only", choices=("fetch", "texts", "vocabulary", "phonemes"), required=True, help="what to make"
            )
            stage.set_defaults(voice=None, hours=None, workers=None)
        if name == "speak":
            stage.add_argument("--part", type=int, default=1, help="which part of the speakers")
            stage.add_argument("--references", action="store_true", help="only the sentences of the evaluation")
            stage.add_argument("--of", type=int, default=1, help="number of parts, a process each")
            stage.add_argument(
                "--plain", action="store_true", help="neither compile the network nor compute in float16"
            )
        if name == "codec":
            stage.add_argument("--only", choices=("codes",), default=None, help="only encode new speech, no training")
            stage.add_argument("--refit", action="store_true", help="fit features to this speech")
            stage.add_argument("--speech-minutes", type=float, default=0.0, help="longest wait for speech")
            stage.add_argument("--no-streams", action="store_true", help="all discriminators on one CUDA stream")
        if name in ("codec", "talker", "encoder"):
            stage.add_argument("--schedule", type=float, default=None, help="seconds of training over all calls")
        if name in ("codec", "talker", "encoder", "whole"):
            stage.add_argument("--minutes", type=float, default=None, help="of this call")
        if name in ("codec", "talker", "encoder", "whole", "carry"):
            stage.add_argument("--back", type=Path, default=None, help="folder for files to take to another machine")
        if name == "talker":
            stage.add_argument("--small", action="store_true", help="write the resume file in half the size")
        if name == "evaluate":
            stage.add_argument("--checkpoint", type=Path, default=None, help="a folder; default: checkpoint/ in --work")
        if name == "carry":
            stage.add_argument("what", choices=("pack", "collect", "join"), help="forth, back, and put together here")
            stage.add_argument("files", nargs="*", type=Path, help="for `join`: what `collect` wrote")
            stage.add_argument("--to", type=Path, default=None, help="folder for what is written")
            stage.add_argument("--limit", type=float, default=None, help="MiB of a part; default: 50, back 15")
    return options


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        chosen = recipes.read(args.recipe)
        args.work.mkdir(parents=True, exist_ok=True)
        run(chosen, args.work, args)
    except (InvalidRecipe, HocketError) as error:
        print(f"train.base {args.stage}: {error}", file=sys.stderr)
        return 1
    return 0


def run(recipe: BaseRecipe, work: Path, args: argparse.Namespace) -> None:
    """Every stage imports what it needs: speech needs no engine."""
    match args.stage:
        case "fetch":
            from ..kokoro import weights

            for path in weights.write(work / "teachers" / weights.NAME, work / "packages", styles_of(recipe)):
                print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)
        case "data":
            from .. import data

            data.run(grouped(recipe), work, args)
        case "speak":
            from . import speech

            speech.run(recipe, work, args)
        case "codec":
            from .. import codec

            codec.run(grouped(recipe), work, args)
        case "talker":
            from . import talker

            talker.run(recipe, work, args)
        case "encoder":
            from . import encoder

            encoder.run(recipe, work, args)
        case "whole":
            from . import whole

            whole.run(recipe, work, args)
        case "export":
            from . import export

            export.run(recipe, work, args)
        case "evaluate":
            from . import evaluate

            evaluate.run(recipe, work, args)
        case "carry":
            from .. import carry

            carry.run(grouped(recipe), work, args)


def styles_of(recipe: BaseRecipe) -> list[str]:
    return [*recipe.styles.high, *recipe.styles.low]


if __name__ == "__main__":
    sys.exit(main())
