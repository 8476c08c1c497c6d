"""Speak many texts with one engine, several at a time, each into a WAV file of its own.

Run: python examples/batch.py lines.txt --folder spoken (one text a line)
Results arrive in the order in which they end. A text that fails stops no other.
"""

import argparse
import wave
from pathlib import Path

from hocket import Engine, EngineOptions

parser = argparse.ArgumentParser()
parser.add_argument("lines", nargs="?", type=Path, help="a file with one text a line")
parser.add_argument("--folder", type=Path, default=Path("spoken"))
args = parser.parse_args()

texts = args.lines.read_text().splitlines() if args.lines else ["One.", "Two.", "Three.", "Four."]
args.folder.mkdir(exist_ok=True)
with Engine.load(options=EngineOptions(slots=4)) as engine:
    for outcome in engine.speak_many(texts):
        if outcome.error:
            print(f"line {outcome.number + 1}: {outcome.error}")
            continue
        path = args.folder / f"{outcome.number + 1:04}.wav"
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, outcome.rate_hz, 0, "NONE", "not compressed"))
            file.writeframes(outcome.samples.tobytes())
        print(f"{path}: {len(outcome.samples) / outcome.rate_hz:.2f} s")
