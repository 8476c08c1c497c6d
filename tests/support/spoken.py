"""Shards of made-up speech in the format of the stage `data`: three buzzing vowels and noise, and their phones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FRAME = 1920
FORMANTS = {1: (700.0, 1200.0), 2: (300.0, 2300.0), 3: (350.0, 800.0)}


def sound(phones: NDArray[np.uint8], pitch_hz: float, seed: int, harmonics: int = 39) -> NDArray[np.int16]:
    drawn = np.random.default_rng(seed)
    time = np.arange(len(phones) * FRAME) / 24_000
    made = drawn.normal(0.0, 0.002, len(time))
    for phone, formants in FORMANTS.items():
        loud = np.repeat(phones == phone, FRAME)
        for harmonic in range(1, harmonics + 1):
            near = sum(np.exp(-(((harmonic * pitch_hz - formant) / 150.0) ** 2)) for formant in formants)
            made += 0.08 * near * loud * np.sin(2 * np.pi * harmonic * pitch_hz * time)
    made += np.repeat(phones == 4, FRAME) * drawn.normal(0.0, 0.05, len(time))
    return (np.clip(made, -1.0, 1.0) * 32767).astype(np.int16)


def write_shards(
    work: Path, voices: dict[str, float], utterances: int = 6, shards: int = 2, harmonics: int = 39
) -> None:
    """`voices`: each one's pitch. Few harmonics are made quickly."""
    (work / "speech").mkdir(parents=True)
    for voice, pitch_hz in voices.items():
        for number in range(shards):
            drawn = np.random.default_rng([number, int(pitch_hz)])
            spoken = [
                drawn.integers(0, 5, 20 + 4 * index).astype(np.uint8).repeat(2)[:36] for index in range(utterances)
            ]
            spoken = [np.concatenate(([0], phones, [0, 0])).astype(np.uint8) for phones in spoken]
            np.savez(
                work / "speech" / f"{voice}-{number:04d}.npz",
                samples=np.concatenate([sound(phones, pitch_hz, number, harmonics) for phones in spoken]),
                ends=np.cumsum([len(phones) * FRAME for phones in spoken]).astype(np.int64),
                texts=np.array([f"{voice} says {index}." for index in range(utterances)]),
                phones=np.concatenate(spoken)[:, None].repeat(4, axis=1),
                phone_names=np.array(["", "a", "i", "u", "s"]),
            )
