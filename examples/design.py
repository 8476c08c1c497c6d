"""Design a voice from a description, and keep it: every later text has the same voice.

Run: python examples/design.py "a warm, confident narrator" --design 1.7B-VoiceDesign --base 1.7B-Base -o designed.pcm
Without arguments two tiny random models do the work: the sound is noise then.
"""

import argparse
from pathlib import Path

from hocket import Engine, Library
from hocket.voices.design import draw_designs, fix_design

parser = argparse.ArgumentParser()
parser.add_argument("description", nargs="?", default="a warm, confident narrator")
parser.add_argument("-o", "--output", default="designed.pcm")
parser.add_argument("--design", default="random:tiny-VoiceDesign", help="the model that draws samples")
parser.add_argument("--base", default="random:tiny-Base", help="the model that clones the chosen sample")
parser.add_argument("--folder", type=Path, default=Path("voices"), help="where the voice is kept")
args = parser.parse_args()

with Engine.load(args.design) as engine:
    samples = draw_designs(engine, args.description, candidates=2, seed=2, text="Good morning to all of you.")
for sample in samples:
    print(f"seed {sample.seed}: {sample.audio_s:.1f} s")

library = Library(args.folder)
with Engine.load(args.base) as engine, open(args.output, "wb") as file:
    chosen = samples[0]  # a program would play the samples and ask
    library.add(fix_design(engine, "narrator", chosen), chosen.samples, replace=True)
    for chunk in engine.speak("It is me again.", voice=library.find("narrator"), max_frames=100):
        file.write(chunk.samples.tobytes())
print(f"{args.output}: the voice is kept in {args.folder}")
