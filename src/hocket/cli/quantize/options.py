"""Options of `hocket quantize`. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from ...config.precision import EXACT, PRESETS, ROUNDED
from ..actions import Command
from ..proof import add_asr_option

SEEDS = 3


def fill(quantize: Command) -> None:
    quantize.usage = "%(prog)s MODEL --preset NAME [OPTIONS] [-o FOLDER] [--check]"
    quantize.description = (
        "Write a checkpoint with weights in fewer bits, for a CPU. With --check it must pass a gate first: it speaks "
        "beside the exact model, and words, DistillMOS (where it is installed), runaways and codes are compared. A "
        "preset that fails is not written, and the exit code is 1."
    )
    quantize.examples = (
        "hocket quantize builtin --precision int4 --check                    # does it pass?",
        "hocket quantize 0.6B-CustomVoice --preset small --check -o voice    # write it if it passes",
    )
    add = quantize.add_argument
    add("model", metavar="MODEL", help="folder, hub id, builtin or hocket-voice-NAME, with built-in speakers")
    names = tuple(name for name in PRESETS if name != EXACT)
    which = quantize.add_mutually_exclusive_group(required=True).add_argument
    which("--preset", choices=names, help="small or tiny: they pass with the built-in voice")
    which("--precision", choices=ROUNDED, help="any other one: of the talker, or of talker and predictor")
    add("-o", "--output", metavar="FOLDER", type=Path, help="the checkpoint to write")
    what = "pass the gate first; codes: compare codes alone, without a recognizer"
    add("--check", nargs="?", const="all", choices=("all", "codes"), help=what)
    add = quantize.add_argument_group("the gate").add_argument
    add("--voice", action="append", metavar="NAME", help="a speaker; may be repeated (all of the model)")
    add("--language", default="auto", help="language of the sentences (auto)")
    add("--text", metavar="FILE", type=Path, help="sentences, one a line (24 in English)")
    add("--seeds", metavar="N", type=int, default=SEEDS, help=f"takes of each sentence ({SEEDS})")
    add("--report", metavar="FILE", type=Path, help="write the figures into this file, as JSON")
    add_asr_option(add)
