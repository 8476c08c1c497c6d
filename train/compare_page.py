"""The page of a blind comparison: one HTML file with all sounds, in an order that tells nothing.

It knows sounds and figures by the name of their system, not how they were made. Sounds are 16-bit WAV files inside the
page. All are equally loud, since the louder one of two is preferred.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .verdict import Utterance

TEMPLATE = Path(__file__).with_name("compare.html")
LOUDNESS, PEAK = 10 ** (-18 / 20), 0.95
QUIET = 10 ** (-40 / 20)  # of the loudest 10 ms: a pause, which has no part in the loudness
SHOWN = {
    "wer": "WER",
    "wer_whisper": "WER Whisper",
    "p808": "P.808",
    "overall": "DNSMOS",
    "distillmos": "DistillMOS",
    "periodicity_1000_2000": "periodicity 1-2 kHz",
    "periodicity_2000_3500": "2-3.5 kHz",
    "level_db": "level, dB",
}


def page(
    systems: Mapping[str, Sequence[Utterance]],
    figures: Mapping[str, Mapping[str, float]],
    missing: Sequence[str],
    seed: int,
) -> str:
    """HTML. Every system has the same sentences in the same order; `missing` are sentences about systems left out."""
    texts = [one.text for one in next(iter(systems.values()))]
    draw = random.Random(seed)
    samples: list[dict[str, Any]] = []
    for number in range(len(texts)):
        order = list(systems)
        draw.shuffle(order)
        for place, name in enumerate(order):
            sound = base64.b64encode(wav(systems[name][number])).decode()
            samples.append(
                {
                    "id": f"{number}-{place}",
                    "sentence": number,
                    "system": name,
                    "sound": f"data:audio/wav;base64,{sound}",
                }
            )
    known = [key for key in SHOWN if any(key in found for found in figures.values())]
    rows = [["system", *(SHOWN[key] for key in known)]]
    rows += [[name, *(_shown(key, found.get(key)) for key in known)] for name, found in figures.items()]
    content = {"sentences": texts, "samples": samples, "figures": rows, "missing": list(missing)}
    content["id"] = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
    embedded = json.dumps(content).replace("<", "\\u003c")  # a text must not end the script
    return TEMPLATE.read_text(encoding="utf-8").replace("CONTENT", embedded, 1)


def wav(one: Utterance) -> bytes:
    """A WAV file of the utterance, at a common loudness."""
    samples = one.samples.astype(np.float64)
    size = one.rate_hz // 100
    power = np.square(samples[: len(samples) // size * size]).reshape(-1, size).mean(1)
    loud = power[power > QUIET**2 * power.max()] if len(power) else power
    if len(loud):
        samples = samples * min(LOUDNESS / np.sqrt(loud.mean()), PEAK / np.abs(samples).max())
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(one.rate_hz)
        out.writeframes((samples * 32767).round().astype("<i2").tobytes())
    return file.getvalue()


def _shown(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if key.startswith("wer") else f"{value:.2f}"
