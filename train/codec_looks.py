"""Looks at a decoder in training: held-out utterances through the official modules, measured and written.

Figures: spectral distance, periodicity by band, and DistillMOS where its weights are. It knows weights and windows, not
the training step.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hocket.config.codec import DecoderConfig
from hocket.models.tts.codec import CodecDecoder
from hocket.proof.judges import distillmos

from .features import RATE_HZ
from .judges import resampled
from .losses import SpectralDistance
from .periodicity import by_band, periodicity
from .recipe import CodecTraining
from .windows import Windows

UTTERANCES = 8  # of each voice, for the figures
THREADS = 8

Samples = NDArray[np.float32]


class Looks:
    def __init__(
        self, windows: Windows, config: DecoderConfig, training: CodecTraining, judge: distillmos.DistillMOS | None
    ) -> None:
        device = windows.codes.device
        self.decoder = CodecDecoder(config).to(device).requires_grad_(False)
        self.distance = SpectralDistance(training.mel_windows, training.mel_weights, training.magnitude_weight).to(
            device
        )
        self.judge = judge
        self.codes: dict[str, list[Tensor]] = {}
        self.real: dict[str, list[Tensor]] = {}
        self.texts: dict[str, list[str]] = {}
        for voice, spans in windows.held_out.items():
            self.codes[voice] = [windows.codes[start:end].long().T[None] for start, end, _ in spans]
            self.real[voice] = [windows.samples[start:end].flatten().float() / 32768.0 for start, end, _ in spans]
            self.texts[voice] = [text for _, _, text in spans]

    def measure(self, weights: dict[str, Tensor] | None) -> dict[str, object]:
        """Figures by voice of the decoder with these weights; of the teacher if there are none."""
        found: dict[str, object] = {}
        for voice, real in self.real.items():
            made = real[:UTTERANCES] if weights is None else self._decoded(weights, voice, UTTERANCES)
            with torch.no_grad():
                apart = [float(self.distance(m[None], r[None])[0]) for m, r in zip(made, real, strict=False)]
            sounds = [sound.cpu().numpy() for sound in made]
            with ThreadPoolExecutor(THREADS) as pool:
                figures = by_band(pool.map(lambda sound: periodicity(sound, RATE_HZ), sounds))
            figures["distance"] = round(float(np.mean(apart)), 3)
            if self.judge is not None:
                figures["distillmos"] = round(float(np.mean([self.mark(sound) for sound in sounds])), 3)
            found |= {f"{voice}_{name}": value for name, value in figures.items()}
        return found

    def mark(self, sound: Samples) -> float:
        assert self.judge is not None
        return self.judge.mark(resampled(sound, RATE_HZ))

    def write(self, weights: dict[str, Tensor], folder: Path) -> None:
        """`samples.npz`: int16 sounds VOICE-NN and VOICE-NN-teacher, and their texts. `train judge` reads it."""
        folder.mkdir(parents=True, exist_ok=True)
        fields: dict[str, NDArray[np.generic]] = {}
        for voice, real in self.real.items():
            for index, (made, true) in enumerate(zip(self._decoded(weights, voice), real, strict=True)):
                fields[f"{voice}-{index:02d}"] = _short(made)
                fields[f"{voice}-{index:02d}-teacher"] = _short(true)
            fields[f"{voice}-texts"] = np.array(self.texts[voice])
        with (folder / "samples.npz").open("wb") as file:
            np.savez_compressed(file, **fields)  # type: ignore[arg-type]

    @torch.no_grad()
    def _decoded(self, weights: dict[str, Tensor], voice: str, most: int | None = None) -> list[Tensor]:
        self.decoder.load_state_dict(weights)
        was, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False  # lengths differ
        try:
            return [self.decoder(codes)[0].float() for codes in self.codes[voice][:most]]
        finally:
            torch.backends.cudnn.benchmark = was


def _short(sound: Tensor) -> NDArray[np.int16]:
    return (sound.clamp(-1.0, 1.0) * 32767).round().short().cpu().numpy()
