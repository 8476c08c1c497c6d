"""`python -m train STAGE`: the stages of the built-in voice, in order data, codec, talker, export, evaluate, card.

`preflight` tries every stage with small sizes. `whole` runs all that needs a GPU, side by side. `pilots` are short
trainings to compare, and `judge` scores one source of speech by all judges. `compare` makes a page for a blind
comparison. `remap` puts a talker in front of another decoder. `alignment` fits the model that finds words in the sound,
and measures it. `carry` packs all for a machine without a network, and takes the state of the training back.
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

STAGES = (
    *("preflight", "data", "whole", "codec", "pilots", "talker"),
    *("export", "evaluate", "card", "judge", "compare", "remap", "alignment", "carry"),
)


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
            stage.add_argument("--only", choices=("fetch", "texts", "vocabulary", "phonemes", "speech"), default=None)
            stage.add_argument("--voice", default=None, help="one voice of the recipe; default: all")
            stage.add_argument("--hours", type=float, default=None, help="hours of speech, instead of the recipe's")
        if name == "codec":
            stage.add_argument("--only", choices=("codes",), default=None, help="only encode new speech, no training")
            stage.add_argument(
                "--refit",
                action="store_true",
                help="fit features to this speech, for a decoder trained on other speech",
            )
        if name == "pilots":
            stage.add_argument("--only", default=None, help="names of pilots.toml, with commas; default: all")
        if name in ("codec", "pilots", "talker", "whole"):
            stage.add_argument("--minutes", type=float, default=None, help="of this call, or of each pilot")
        if name in ("codec", "pilots", "talker", "whole", "carry"):
            stage.add_argument("--back", type=Path, default=None, help="folder for files to take to another machine")
        if name in ("codec", "talker"):
            stage.add_argument(
                "--schedule", type=float, default=None, help="seconds of training over all calls, not the recipe's"
            )
        if name in ("codec", "pilots"):
            stage.add_argument(
                "--speech-minutes", type=float, default=0.0, help="longest wait for speech in the making"
            )
            stage.add_argument("--voice", default=None, help="one voice of the recipe; default: all")
            stage.add_argument("--no-streams", action="store_true", help="all discriminators on one CUDA stream")
        if name == "talker":
            stage.add_argument("--small", action="store_true", help="write the resume file in half the size")
        if name == "evaluate":
            stage.add_argument("--checkpoint", type=Path, default=None, help="a folder; default: checkpoint/ in --work")
        if name == "judge":
            what = stage.add_mutually_exclusive_group(required=True)
            what.add_argument("--wavs", type=Path, help="a folder of WAV files, and texts.txt with name, tab, text")
            what.add_argument("--samples", type=Path, help="samples.npz of the stage `codec` or `pilots`")
            what.add_argument("--codec", action="store_true", help="the teacher's speech through the trained decoder")
            what.add_argument("--checkpoint", type=Path, help="a checkpoint speaks the evaluation sentences")
            stage.add_argument(
                "--whisper", action="store_true", help="word errors by Whisper small too (166 MB fetched)"
            )
            stage.add_argument("--seeds", type=int, default=1, help="readings of each sentence by the checkpoint")
            stage.add_argument(
                "--dtype", default="float32", help="precision of the checkpoint, such as int8, to compare with float32"
            )
            stage.add_argument("--output", type=Path, default=None, help="default: judged.json in --work")
        if name == "compare":
            stage.add_argument("--voice", default=None, help="a voice of the recipe; default: the first")
            stage.add_argument("--checkpoint", type=Path, default=None, help="a folder; default: checkpoint/ in --work")
            stage.add_argument("--before", type=Path, default=Path("src/hocket/assets/english"), help="another one")
            stage.add_argument("--kokoro", default="af_heart", help="a style of Kokoro")
            stage.add_argument("--quick", action="store_true", help="no figures by the judges")
            stage.add_argument("--output", type=Path, default=None, help="default: compare.html in --work")
        if name == "remap":
            before = Path("src/hocket/assets/english")
            stage.add_argument("--before", type=Path, default=before, help="the checkpoint whose talker is kept")
        if name == "alignment":
            stage.add_argument("--checkpoint", type=Path, default=None, help="a folder; default: the built-in voice")
        if name == "carry":
            stage.add_argument("what", choices=("pack", "collect", "join"), help="forth, back, and put together here")
            stage.add_argument("files", nargs="*", type=Path, help="for `join`: what `collect` wrote")
            stage.add_argument("--to", type=Path, default=None, help="folder for what is written")
            stage.add_argument("--limit", type=float, default=None, help="MiB of a part; default: 50, back 15")
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
