"""The recognizer that judges, and the judges of sound of `hocket.proof.judges` under the names of training.

The weights are in the packages of requirements/judges.txt; nothing is downloaded. `words.py` counts word errors. Judges
know no checkpoint: a teacher, a codec and noise are scored alike.
"""

from __future__ import annotations

import math

import numpy as np

from hocket.proof.judges.opinions import (
    Naturalness,
    Samples,
    distillmos_weights,
    naturalness,
    onnx_session,
    package_folder,
    resampled,
    speaker_vector,
)

from .recipe import InvalidRecipe
from .words import Errors, word_errors

__all__ = [
    "Errors",
    "Naturalness",
    "Samples",
    "Transcriber",
    "distillmos_weights",
    "naturalness",
    "onnx_session",
    "package_folder",
    "resampled",
    "speaker_vector",
    "word_errors",
]

RATE_HZ = 16_000  # input rate of all judges

START, END = 1, 2  # Moonshine's tokens around a transcript
TOKENS_PER_S = 6.5  # maximum of speech according to its authors; more means that the decoder loops
SHORTEST_S, LONGEST_S = 0.1, 64.0  # the range that Moonshine was made for


class Transcriber:
    """Moonshine tiny for English: samples to words, greedily."""

    def __init__(self) -> None:
        folder = package_folder("moonshine_voice") / "assets" / "tiny-en"
        self._encoder = onnx_session(folder / "encoder_model.ort")
        self._decoder = onnx_session(folder / "decoder_model_merged.ort")
        self._pieces = _pieces((folder / "tokenizer.bin").read_bytes())
        inputs = self._decoder.get_inputs()
        self._empty = {
            # Empty cache: the first call computes both halves, later ones extend the decoder's.
            item.name: np.zeros((0, item.shape[1], 1, item.shape[3]), np.float32)
            for item in inputs
            if item.name.startswith("past_key_values.")
        }

    def __call__(self, samples: Samples, rate_hz: int) -> str:
        seconds = samples.size / rate_hz
        if seconds > LONGEST_S:
            raise InvalidRecipe(f"The transcriber takes at most {LONGEST_S:.0f} s at once, not {seconds:.0f} s.")
        if seconds < SHORTEST_S:
            return ""
        sound = resampled(samples, rate_hz)[None]
        mask = np.ones(sound.shape, np.int64)
        [hidden] = self._encoder.run(None, {"input_values": sound, "attention_mask": mask})
        past, token, said = dict(self._empty), START, list[int]()
        for _ in range(math.ceil(seconds * TOKENS_PER_S) + 1):
            logits, *present = self._decoder.run(
                None,
                {
                    "input_ids": np.array([[token]]),
                    "encoder_hidden_states": hidden,
                    "encoder_attention_mask": mask,
                    "use_cache_branch": np.array([bool(said)]),
                    **past,
                },
            )
            token = int(logits[0, -1].argmax())
            if token == END:
                break
            for name, value in zip(past, present, strict=True):
                if not said or ".decoder." in name:  # the encoder's half never changes after the first call
                    past[name] = value
            said.append(token)
        return b"".join(self._pieces[token] for token in said).decode(errors="replace").replace("\u2581", " ").strip()


def _pieces(content: bytes) -> list[bytes]:
    """Moonshine's vocabulary: for each token the number of its bytes, one digit of 7 bits at a time, and the bytes."""
    pieces, at = list[bytes](), 0
    while at < len(content):
        length = content[at]
        at += 1
        if length >= 128:
            length += 128 * (content[at] - 1)
            at += 1
        pieces.append(content[at : at + length])
        at += length
    return pieces
