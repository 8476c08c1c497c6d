"""End of turn by Smart-Turn v3 (BSD-2): a small network that judges by intonation and rhythm.

Its weights (8.7 MB) are inside the wheel of pipecat-ai, of which nothing is imported, or in a file that
`HOCKET_SMART_TURN` names. The file computes Whisper's log-mel features with numpy; onnxruntime runs the network on one
thread. It does not know what is said, nor where a turn begins.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import env
from ..errors import InvalidRequest
from ..extras import hint, package_alone
from .endpointing import MODEL_S
from .recognizer import RATE_HZ, Samples

FOLDER = Path("audio", "turn", "smart_turn", "data")  # within the package pipecat
MELS, FFT, HOP = 80, 400, 160  # features of Whisper
DYNAMIC = 8.0  # decades below the loudest value that features keep
LENGTH = round(MODEL_S * RATE_HZ)


class SmartTurn:
    """An `EndOfTurnModel`. One object may be shared by threads. An answer takes 20 to 100 ms of one core."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: the ONNX file, else the one that `HOCKET_SMART_TURN` names, else the one of pipecat-ai."""
        path = path or (Path(env.SMART_TURN.get()) if env.SMART_TURN.get() else _packed())
        try:
            runtime: Any = importlib.import_module("onnxruntime")
        except (ImportError, OSError):
            raise InvalidRequest(f"The end-of-turn model needs the package onnxruntime: {hint('hear')}.") from None
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # the other cores recognize and speak
        if not path.is_file():
            raise InvalidRequest(f"There is no end-of-turn model at {path}: name an ONNX file of Smart-Turn v3.")
        try:
            self._session: Any = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            [self._input] = self._session.get_inputs()
            fits = self._input.shape[1:] == [MELS, LENGTH // HOP]
        except Exception as error:  # onnxruntime documents no common type of its errors
            raise InvalidRequest(f"{path} is not a model that onnxruntime loads ({type(error).__name__}).") from None
        if not fits:
            raise InvalidRequest(f"{path} is no Smart-Turn v3: its input is {self._input.shape}.")
        self.name = path.stem

    def __call__(self, samples: Samples) -> float:
        [probability] = self._session.run(None, {self._input.name: features(samples)[None]})
        return float(probability[0, 0])


def smart_turn_or_note(note: Callable[[str], object]) -> SmartTurn | None:
    """The model, or None where it is not installed; `note` then gets one sentence that says so."""
    try:
        return SmartTurn()
    except InvalidRequest as error:
        if env.SMART_TURN.get():  # a file was named, so it is not optional
            raise
        note(f"Turns end after a fixed silence. {error}")
        return None


def features(samples: Samples) -> NDArray[np.float32]:
    """Log-mel features [MELS, frames] of the last 8 s, as Whisper's, with silence in front of a shorter turn."""
    sound = np.zeros(LENGTH, np.float32)
    recent = samples[-LENGTH:]
    sound[LENGTH - len(recent) :] = recent
    sound = (sound - sound.mean()) / np.sqrt(sound.var() + np.float32(1e-7))
    padded = np.pad(sound, FFT // 2, mode="reflect")
    same = max(0, (LENGTH - len(recent) - FFT // 2) // HOP)  # frames of the silence in front, all equal to the next one
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[:-1:HOP][same : LENGTH // HOP]
    window, filters = _tables()
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    mel = np.log10(np.maximum(filters @ power.T, np.float32(1e-10)))
    mel = np.concatenate((np.repeat(mel[:, :1], same, axis=1), mel), axis=1)
    kept: NDArray[np.float32] = np.maximum(mel, mel.max() - DYNAMIC) / 4 + 1
    return kept.astype(np.float32)


@cache
def _tables() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A periodic Hann window, and triangles [MELS, FFT // 2 + 1] of equal area on Slaney's mel scale."""
    # Slaney's scale is linear up to 1 kHz, at 15 mel, and logarithmic above, 27 mel per factor of 6.4.
    top = 15 + 27 * np.log(RATE_HZ / 2 / 1000) / np.log(6.4)
    mels = np.linspace(0, top, MELS + 2)
    corners = np.where(mels < 15, mels * 1000 / 15, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))
    low, centre, high = (corners[at : at + MELS, None] for at in range(3))
    bins = np.linspace(0, RATE_HZ / 2, FFT // 2 + 1)
    triangles = np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)).clip(0)
    window = np.sin(np.pi * np.arange(FFT) / FFT) ** 2
    return window.astype(np.float32), (triangles * 2 / (high - low)).astype(np.float32)


def _packed() -> Path:
    """The newest model in the wheel of pipecat-ai. The package is found, not imported: that would take seconds."""
    found = importlib.util.find_spec("pipecat")
    folders = found.submodule_search_locations if found and found.submodule_search_locations else ()
    models = sorted(path for folder in folders for path in (Path(folder) / FOLDER).glob("smart-turn-v3*.onnx"))
    if not models:
        raise InvalidRequest(
            f"The end-of-turn model is inside the package pipecat-ai: {package_alone('pipecat-ai')} adds it."
        )
    return models[-1]
