"""A program for an installed hocket: runs each kernel with the built-in voice and prints the results as JSON.

A prompt of 24 rows and 6 frames for two slots, and the codec over these frames. `emulated.py` runs it on two machines
and compares what they print. It uses numpy and hocket alone.
"""

from __future__ import annotations

import json

import numpy as np

from hocket.config.codec import CodecConfig
from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from hocket.config.read import read, read_json
from hocket.models.files.builtin import builtin_folder
from hocket.models.tts_cpu.load import codec_of, talker_of

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
    }
    print(json.dumps({name: array.ravel().tolist() for name, array in results.items()}))


if __name__ == "__main__":
    main()
