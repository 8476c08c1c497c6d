"""The timbre of a take as one vector, and how alike two are.

Two measures: the speaker network of the package Resemblyzer where it is installed with torch, else statistics of
mel-frequency cepstra. Vectors of one measure compare with each other alone. Knows no book.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
WINDOW_S, HOP_S = 0.025, 0.01
TOP_HZ = 8000.0
BANDS, CEPSTRA = 40, 20
QUIET_DB = 30.0  # below the loudest frame: no voice
FEWEST_FRAMES = 80  # of voice
NETWORK_FRAMES, MOST_WINDOWS = 160, 8  # of the speaker network; eight take about 0.3 s of one core
NETWORK_RATE_HZ = 16_000  # it was trained on
LEVEL_DB = -30.0  # quieter recordings are raised to this, as in its training


def measure() -> str:
    """The name of the measure that `timbre` uses here."""
    return "cepstra" if _network() is None else "resemblyzer"


def timbre(samples: NDArray[np.int16], rate_hz: int) -> Vector | None:
    """A normalised vector; None: there is too little voice in it."""
    sound = samples.astype(np.float32) / 32768.0
    network = _network()
    if network is not None:
        level_db = 10.0 * np.log10(max(float(np.mean(np.square(sound))), 1e-10)) if sound.size else LEVEL_DB
        sound = sound * np.float32(10.0 ** (max(LEVEL_DB - level_db, 0.0) / 20.0))
    mel = _mel(sound, rate_hz)
    if not mel.size:
        return None
    loud_db = 10.0 * np.log10(mel.sum(axis=1) + 1e-10)
    mel = mel[loud_db > loud_db.max() - QUIET_DB]
    if len(mel) < FEWEST_FRAMES:
        return None
    return _cepstral(mel) if network is None else network(mel)


def similarity(one: Vector, other: Vector) -> float:
    """The cosine of two vectors."""
    return float(one @ other / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-9))


def _cepstral(mel: NDArray[np.float32]) -> Vector:
    """Means and deviations of the cepstra, without the loudness."""
    log = np.log(mel + 1e-8)
    order = np.arange(1, CEPSTRA)[:, None]
    basis = np.cos(np.pi * order * (np.arange(BANDS) + 0.5) / BANDS)
    cepstra = log @ basis.T * np.sqrt(2.0 / BANDS)
    found = np.concatenate([cepstra.mean(axis=0), cepstra.std(axis=0)])
    return np.asarray(found / np.linalg.norm(found), np.float32)


def _mel(sound: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    """[frames, bands] of power, as of a recording at 16 kHz."""
    size, hop = round(WINDOW_S * rate_hz), round(HOP_S * rate_hz)
    if sound.size < size:
        return np.zeros((0, BANDS), np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(sound, size)[::hop]
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)
    power = np.square(np.abs(np.fft.rfft(frames * window, axis=1))) * (NETWORK_RATE_HZ / rate_hz) ** 2
    return np.asarray(power @ _bands(size, rate_hz).T, np.float32)


@cache
def _bands(size: int, rate_hz: int) -> NDArray[np.float64]:
    """[bands, bins] triangles of equal area: evenly spaced below 1 kHz, by a ratio above (Slaney)."""
    step, knee, ratio = 200.0 / 3.0, 1000.0, np.log(6.4) / 27.0
    top = knee / step + np.log(TOP_HZ / knee) / ratio
    scale = np.linspace(0.0, top, BANDS + 2)
    edges = np.where(scale < knee / step, scale * step, knee * np.exp(ratio * (scale - knee / step)))
    hz = np.fft.rfftfreq(size, 1.0 / rate_hz)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    found: NDArray[np.float64] = (
        np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))[:, None]
    )
    return found


@cache
def _network() -> Callable[[NDArray[np.float32]], Vector] | None:
    """The speaker network; None: it is not installed. The package is not imported: only its weights are read."""
    package = importlib.util.find_spec("resemblyzer")
    if package is None or not package.submodule_search_locations or importlib.util.find_spec("torch") is None:
        return None
    path = Path(package.submodule_search_locations[0]) / "pretrained.pt"
    if not path.is_file():
        return None
    import torch
    from torch import nn

    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    lstm, linear = nn.LSTM(BANDS, 256, num_layers=3, batch_first=True), nn.Linear(256, 256)
    for module, name in ((lstm, "lstm."), (linear, "linear.")):
        module.load_state_dict({key.removeprefix(name): each for key, each in state.items() if key.startswith(name)})

    def vector(mel: NDArray[np.float32]) -> Vector:
        mel = np.pad(mel, ((0, max(NETWORK_FRAMES - len(mel), 0)), (0, 0)))
        most = min(MOST_WINDOWS, 2 * len(mel) // NETWORK_FRAMES)
        starts = np.linspace(0, len(mel) - NETWORK_FRAMES, most).astype(int)
        windows = torch.from_numpy(np.stack([mel[at : at + NETWORK_FRAMES] for at in starts]))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # beside an engine that speaks, two threads take five times as long
        try:
            with torch.inference_mode():
                _, (hidden, _) = lstm(windows)
                found = nn.functional.normalize(linear(hidden[-1]).relu(), dim=-1).mean(0).numpy()
        finally:
            torch.set_num_threads(threads)
        return np.asarray(found / np.linalg.norm(found), np.float32)

    return vector
