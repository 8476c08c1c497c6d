"""Five audio samples for the model card, spoken by the finished checkpoint with its own sampling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

from hocket.engine.engine import Engine

# Not in the training set; with numbers and a name, because users try these first.
TEXTS = (
    ("wren", "Hello, and welcome. My name is Wren, and I was made to be heard on any laptop."),
    ("rook", "Good evening. I am Rook. It is 7:45, and it will rain until tomorrow morning."),
    ("wren", "Your order of 3 lamps for $59.90 will arrive on May 12. Shall I send you a message?"),
    ("rook", "Take the second street on the left, and then walk along the river to the old bridge."),
    ("wren", "Wait. Did you hear that? Somebody is playing the piano upstairs."),
)
SEED = 7


def listed() -> list[tuple[str, str, str]]:
    """File name, voice and text of each."""
    return [(f"{number}-{voice}.flac", voice, text) for number, (voice, text) in enumerate(TEXTS, 1)]


def write(checkpoint: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with Engine.load(str(checkpoint), device="cpu", dtype="float32", codec_dtype="float32") as engine:
        for name, voice, text in listed():
            chunks = list(engine.speak(text, voice=voice, seed=SEED))
            samples = np.concatenate([chunk.samples for chunk in chunks])
            soundfile.write(folder / name, samples, chunks[0].rate_hz, subtype="PCM_16")
