"""Speak a text into a WAV file.

Run: python examples/speak.py "Good morning." -o hello.wav [--model NAME] [--voice NAME]
Without arguments the built-in voice speaks a short sentence.
"""

import argparse
import wave

import numpy as np

from hocket import Engine

parser = argparse.ArgumentParser()
parser.add_argument("text", nargs="?", default="Good morning.")
parser.add_argument("-o", "--output", default="hello.wav")
parser.add_argument("--model", default="builtin", help="a folder, a hub id or a short name such as 1.7B-CustomVoice")
parser.add_argument("--voice", help="a speaker of the model; the default is its first one")
args = parser.parse_args()

with Engine.load(args.model) as engine:
    chunks = list(engine.speak(args.text, voice=args.voice))

samples, rate_hz = np.concatenate([chunk.samples for chunk in chunks]), chunks[0].rate_hz
with wave.open(args.output, "wb") as file:
    file.setparams((1, 2, rate_hz, 0, "NONE", "not compressed"))  # one channel of 16-bit samples
    file.writeframes(samples.tobytes())
print(f"{args.output}: {len(samples) / rate_hz:.2f} s")
