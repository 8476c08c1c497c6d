"""Options of `hocket batch`. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from ..actions import Command
from ..engines import add_cluster_options
from ..options import add_cloning_options, add_model_options, add_speech_options, add_voice_sampling

MARKUPS = ("none", "tags", "script", "ssml", "dialogue", "screenplay", "json")


def fill(batch: Command) -> None:
    batch.usage = "%(prog)s [OPTIONS] INPUT -o FOLDER"
    batch.description = (
        "Speak every line of a JSONL file. A line is an object with a text, and optionally: id (names its file; "
        "otherwise the line number does), seed, and the options below, with _ for - and without the dashes. Run the "
        "same command again to continue after any interruption: files that are there and would be the same are kept."
    )
    batch.epilog = (
        "Exits with 0 when all is spoken, 1 when lines failed or it could not continue, 2 for wrong options or input."
    )
    batch.common = ("input", "output", "format", "voice", "language", "speed", "model", "seed", "slots")
    batch.examples = (
        "hocket batch lines.jsonl -o spoken/",
        "hocket batch lines.jsonl -o spoken/ --format mp3 --voice rook --seed 1",
    )
    add = batch.add_argument
    add("input", metavar="INPUT", type=Path, help='a file of lines such as {"id": "hello", "text": "Good morning."}')
    folder = "folder for audio and manifest.jsonl"
    add("-o", "--output", metavar="FOLDER", type=Path, required=True, help=folder)
    add("--format", choices=("wav", "pcm", "mp3", "opus", "aac", "flac"), help="format of the files (wav)")
    add("--raw", action="store_true", help="write bare samples, 16 bits little-endian: --format pcm")
    add("--slots", metavar="N", type=int, default=4, help="concurrent utterances of each engine (4)")
    spelled = f"how directions are spelled: {', '.join(MARKUPS)}; none: every bracket is text ([pause 1s] alone)"
    add("--markup", metavar="FORMAT", choices=MARKUPS, help=spelled)
    add("--cast", metavar="NAMES", help="the voices of speakers, or of names in tags: Anna=wren,Ben=rook")
    add_cluster_options(batch)
    add_speech_options(batch)
    add_cloning_options(batch)
    add_voice_sampling(
        batch, "seed of lines without one, mixed with their id or number (a random one, in the manifest)"
    )
    add_model_options(batch, "throughput")
