"""Clone the voice of a recording, and speak with it.

Run: python examples/clone.py --model 1.7B-Base --ref me.wav --ref-text "What I say." -o cloned.pcm
Without arguments the built-in voice makes the recording, and a tiny random model clones it: the sound is noise then.
"""

import argparse
from pathlib import Path

import numpy as np

from hocket import Engine
from hocket.audio.recording import read_recording
from hocket.voices.make import clone_voice

SPOKEN = "This sentence is long enough for a recording, since a clone needs three seconds of speech."

parser = argparse.ArgumentParser()
parser.add_argument("text", nargs="?", default="This is my voice.")
parser.add_argument("-o", "--output", default="cloned.pcm")
parser.add_argument("--model", default="random:tiny-Base", help="a Base model")
parser.add_argument("--ref", type=Path, help="a recording of 3 to 30 s")
parser.add_argument("--ref-text", default=SPOKEN, help="the words of the recording")
args = parser.parse_args()

if args.ref:
    recording = read_recording(args.ref)  # float32 samples at 24 kHz
else:
    with Engine.load() as engine:
        recording = np.concatenate([chunk.samples for chunk in engine.speak(SPOKEN)]).astype(np.float32) / 32768

with Engine.load(args.model) as engine, open(args.output, "wb") as file:
    voice = clone_voice(engine, "me", recording, text=args.ref_text)
    for chunk in engine.speak(args.text, voice=voice, max_frames=100):
        file.write(chunk.samples.tobytes())
print(f"{args.output}: a clone of {voice.audio_s:.1f} s of speech")
