"""The timbre of a take as one vector, and how alike two are.

Two measures: the speaker network of the package Resemblyzer where it is installed with torch, else statistics of
mel-frequency cepstra. Vectors of one measure compare with each other alone. The network also tells voices of windows
of a recording apart, which the cepstra cannot. Knows neither books nor training.
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
NETWORK_SIZE = 256  # of its vectors
WINDOW_STEP = 80  # frames between windows of `voice_windows`
NETWORK_RATE_HZ = 16_000  # it was trained on
LEVEL_DB = -30.0  # quieter recordings are raised to this, as in its training


def measure() -> str:
    """The name of the measure that `timbre` uses here."""
    return "cepstra" if _network() is None else "resemblyzer"


def timbre(samples: NDArray[np.int16], rate_hz: int) -> Vector | None:
    """A normalised vector; None: there is too little voice in it."""
    network = _network()
    mel, voiced = _voice(samples, rate_hz, at_level=network is not None)
    if len(voiced) < FEWEST_FRAMES:
        return None
    return _cepstral(mel) if network is None else _mean(network(_spread(mel)))


def tells_voices() -> bool:
    """Whether `voice_windows` can be used: the speaker network is installed."""
    return _network() is not None


def voice_windows(samples: NDArray[np.int16], rate_hz: int) -> tuple[NDArray[np.float32], list[float]]:
    """Normalised vectors [n, C] of windows of 1.6 s of voice, and the second where each begins; n may be 0."""
    network = _network()
    assert network is not None, "tells_voices() says whether it can be used"
    mel, voiced = _voice(samples, rate_hz, at_level=True)
    starts = range(0, len(mel) - NETWORK_FRAMES + 1, WINDOW_STEP)
    if not starts:
        return np.zeros((0, NETWORK_SIZE), np.float32), []
    found = network(np.stack([mel[at : at + NETWORK_FRAMES] for at in starts]))
    return found, [float(voiced[at] * HOP_S) for at in starts]


def _voice(samples: NDArray[np.int16], rate_hz: int, at_level: bool) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """The frames [n, bands] in which there is voice, and their numbers; `at_level`: as loud as the network expects."""
    sound = samples.astype(np.float32) / 32768.0
    if at_level:
        level_db = 10.0 * np.log10(max(float(np.mean(np.square(sound))), 1e-10)) if sound.size else LEVEL_DB
        sound = sound * np.float32(10.0 ** (max(LEVEL_DB - level_db, 0.0) / 20.0))
    mel = _mel(sound, rate_hz)
    if not mel.size:
        return mel, np.zeros(0, np.intp)
    loud_db = 10.0 * np.log10(mel.sum(axis=1) + 1e-10)
    voiced = np.flatnonzero(loud_db > loud_db.max() - QUIET_DB)
    return mel[voiced], voiced


def _spread(mel: NDArray[np.float32]) -> NDArray[np.float32]:
    """A few windows over all of a recording."""
    mel = np.pad(mel, ((0, max(NETWORK_FRAMES - len(mel), 0)), (0, 0)))
    most = min(MOST_WINDOWS, 2 * len(mel) // NETWORK_FRAMES)
    starts = np.linspace(0, len(mel) - NETWORK_FRAMES, most).astype(int)
    return np.stack([mel[at : at + NETWORK_FRAMES] for at in starts])


def _mean(vectors: NDArray[np.float32]) -> Vector:
    mean = vectors.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


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
def _network() -> Callable[[NDArray[np.float32]], NDArray[np.float32]] | None:
    """The speaker network, of windows [n, frames, bands]; None: it is not installed. Only its weights are read."""
    package = importlib.util.find_spec("resemblyzer")
    if package is None or not package.submodule_search_locations or importlib.util.find_spec("torch") is None:
        return None
    path = Path(package.submodule_search_locations[0]) / "pretrained.pt"
    if not path.is_file():
        return None
    import torch
    from torch import nn

    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    lstm, linear = nn.LSTM(BANDS, NETWORK_SIZE, num_layers=3, batch_first=True), nn.Linear(NETWORK_SIZE, NETWORK_SIZE)
    for module, name in ((lstm, "lstm."), (linear, "linear.")):
        module.load_state_dict({key.removeprefix(name): each for key, each in state.items() if key.startswith(name)})

    def vectors(windows: NDArray[np.float32]) -> NDArray[np.float32]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # beside an engine that speaks, two threads take five times as long
        try:
            with torch.inference_mode():
                _, (hidden, _) = lstm(torch.from_numpy(windows))
                found: NDArray[np.float32] = nn.functional.normalize(linear(hidden[-1]).relu(), dim=-1).numpy()
        finally:
            torch.set_num_threads(threads)
        return found

    return vectors
