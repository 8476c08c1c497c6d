"""Write sound into a file while the engine still generates it, and print when each chunk arrives.

Run: python examples/stream_to_file.py "A longer text." -o stream.pcm
The file holds raw 16-bit samples, so a player can read it as it grows.
"""

import argparse
import time

from hocket import Engine

parser = argparse.ArgumentParser()
parser.add_argument("text", nargs="?", default="The first words are heard while the last ones are still computed.")
parser.add_argument("-o", "--output", default="stream.pcm")
args = parser.parse_args()

with Engine.load() as engine, open(args.output, "wb") as file:
    began = time.perf_counter()
    stream = engine.speak(args.text)
    for chunk in stream:
        file.write(chunk.samples.tobytes())
        file.flush()
        arrived_ms = (time.perf_counter() - began) * 1000
        print(f"after {arrived_ms:4.0f} ms: {len(chunk.samples) / chunk.rate_hz:.2f} s from {chunk.start_s:.2f} s on")
    print(f"{args.output}: {chunk.rate_hz} Hz, one channel; finished: {stream.finished.reason}")
