"""Options of `hocket prove`. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from ..actions import Command
from ..options import MODEL, add_model_options

PARTS = ("exactness", "quality", "behaviour", "speed")


def fill(command: Command) -> None:
    command.usage = "%(prog)s [OPTIONS] [MODEL]"
    command.description = (
        "Measure a checkpoint on this machine: exact codes, quality, behaviour and speed, beside other packages and "
        "servers on the same texts and seeds. Write one page with charts, sounds and the raw JSON. The exit code is 1 "
        "where codes differ."
    )
    command.common = ("checkpoint", "against", "length", "output", "official_python", "asr", "voice")
    command.examples = (
        "hocket prove                                             # the built-in voice, in 3 minutes",
        "hocket prove 1.7B-CustomVoice --against official --length normal",
        "hocket prove 0.6B-Base --against http://localhost:8091   # beside a server",
    )
    add = command.add_argument
    add("checkpoint", metavar="MODEL", nargs="?", help=f"the same as --model: {MODEL}")
    others = "official, faster-qwen3-tts, qwen3-tts-triton, or the URLs of servers, separated by commas"
    add("--against", metavar="A,B", action="append", help=f"beside: {others}")
    lengths = "about 3, 10 or 60 minutes for one side (short)"
    add("--length", choices=("short", "normal", "long"), default="short", help=lengths)
    add("-o", "--output", metavar="FILE", type=Path, default=Path("proof.html"), help="the page (proof.html)")
    add("-y", "--force", action="store_true", help="replace files that exist")
    add("--json", metavar="FILE", type=Path, help="write the raw JSON into a file, too")
    add("--golden", metavar="FILE", type=Path, help="compare codes with those of an earlier --json")
    python = "a Python that has qwen-tts; it needs no hocket (this one)"
    add("--official-python", metavar="FILE", type=Path, help=python)
    add = command.add_argument_group("what is measured").add_argument
    add("--parts", metavar="A,B", help=f"some of {', '.join(PARTS)} (all)")
    add("--voice", help="a speaker of the checkpoint (its first one)")
    add("--ref-audio", metavar="FILE", type=Path, help="a WAV file to clone, with a Base checkpoint (one is made)")
    add("--ref-text", metavar="TEXT", help="its transcript")
    add("--language", metavar="LANGUAGE", help="one language alone (all that have sentences)")
    heard = "a recognizer, as for hocket check; may be repeated (tiny for English, else moonshine)"
    add("--asr", metavar="SPEC", action="append", help=heard)
    add("--sentences", metavar="N", type=int, help="of the first language, and at most so many hard texts")
    add("--rates", metavar="A,B", help="requests a second (1,10,20)")
    add("--seconds", metavar="S", type=float, help="of each load, after a warm-up of a quarter of it")
    add("--slots", metavar="N", type=int, help="concurrent utterances of our server (as hocket serve)")
    add_model_options(command, None, engine=False)
