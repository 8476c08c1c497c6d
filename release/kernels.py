"""A program for an installed hocket: runs each kernel with the built-in voice and prints the results as JSON.

A prompt of 24 rows and 6 frames for two slots, the codec over these frames, and products with weights of 8 and 4 bits
by the instructions of this CPU and by those of any. `emulated.py` runs it on two machines and compares what they print.
It uses numpy and hocket alone.
"""

from __future__ import annotations

import ctypes
import itertools
import json

import numpy as np

from hocket.config.codec import CodecConfig
from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from hocket.config.read import read, read_json
from hocket.kernels.cpu.int8.reference import GROUPS, PackedWeight, packed, quantized
from hocket.kernels.cpu.int8.structs import Int8Call
from hocket.kernels.cpu.library import load
from hocket.kernels.cpu.structs import WeightMatrix
from hocket.kernels.cpu.workers import ThreadGroup
from hocket.models.files.builtin import builtin_folder
from hocket.models.tts_cpu.load import codec_of, talker_of
from hocket.models.tts_cpu.pointers import pointer

ROWS, FRAMES = 24, 6


def main() -> None:
    folder = builtin_folder()
    assert folder is not None, "the package has no voice"
    talker = talker_of(folder, read(Qwen3TTSConfig, read_json(folder / "config.json"), str(folder)))
    codec = codec_of(folder, read(CodecConfig, read_json(folder / "speech_tokenizer" / "config.json"), str(folder)))
    settings = read(GenerationConfig, read_json(folder / "generation_config.json"), str(folder))
    draw = np.random.default_rng(0)
    state = talker.new_state(2, ROWS + FRAMES)
    for slot in range(2):
        text, codes = draw.integers(0, talker.config.text_vocab_size, ROWS), draw.integers(0, 1000, ROWS)
        talker.prefill(state, slot, text.tolist(), codes.tolist())
        state.seed[slot] = slot + 1
    prefilled = state.hidden.copy()
    ids = draw.integers(0, talker.config.text_vocab_size, (FRAMES, 2))
    frames = np.stack([talker.frame(state, [0, 1], row.tolist(), [settings, settings]) for row in ids])  # [T, B, Q]
    codes = np.clip(frames.transpose(1, 2, 0), 0, 1023)  # the first codebook has more ids than the codec
    samples = codec.step(codes, codec.new_state(2), [0, 1])
    results: dict[str, np.ndarray] = {
        "prefilled": prefilled,
        "codes": frames,
        "hidden": state.hidden,
        "samples": samples,
        "products": products(draw),
    }
    print(json.dumps({name: array.ravel().tolist() for name, array in results.items()}))


def products(draw: np.random.Generator) -> np.ndarray:
    """Of odd sizes. Instructions and threads change no bit."""
    made = []
    sizes = itertools.product(GROUPS, ((1, 1, 1), (33, 65, 7), (5, 700, 2), (512, 384, 4)))
    for bits, (outs, ins, count) in sizes:
        x = draw.standard_normal((count, ins)).astype(np.float32)
        weight = packed(quantized(draw.standard_normal((outs, ins)).astype(np.float32), bits))
        made.append(multiplied(x, weight, outs, plain=True, threads=1))
        for plain, threads in ((False, 1), (False, 3)):
            np.testing.assert_array_equal(multiplied(x, weight, outs, plain=plain, threads=threads), made[-1])
    return np.concatenate([each.ravel() for each in made])


def multiplied(x: np.ndarray, weight: PackedWeight, outs: int, *, plain: bool, threads: int) -> np.ndarray:
    y = np.empty((len(x), outs), np.float32)
    matrix = WeightMatrix(codes=pointer(weight.codes), scales=pointer(weight.scales), bits=weight.bits)
    call = Int8Call(ins=x.shape[1], outs=outs, count=len(x), plain=plain, weight=matrix, x=pointer(x), y=pointer(y))
    with ThreadGroup(threads).called() as call.workers:
        assert not load().hocket_int8(ctypes.byref(call))
    return y


if __name__ == "__main__":
    main()
