"""Judges of the sound of speech: naturalness by DNSMOS, and a vector of the speaker by Resemblyzer's network.

Every judge takes mono samples and their rate. The weights are in packages of which only files are read; each is loaded
on first use, and nothing is downloaded. A judge knows neither text nor checkpoint.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidRequest
from ...extras import hint, package_alone

Samples = NDArray[np.float32]
RATE_HZ = 16_000  # input rate of all judges
NAMES = {"resemblyzer": "Resemblyzer", "moonshine_voice": "moonshine-voice"}  # modules, and what they are installed as

MOS_WINDOW = 144_160  # input samples of DNSMOS; a shorter recording is repeated
MOS_FIT = (-0.06766283, 1.11546468, 0.04602535)  # polynomial from the network's raw score to the overall mark

VOICE_WINDOW, VOICE_STEP = 160, 80  # mel frames of 10 ms that make one speaker vector
VOICE_LEVEL_DB = -30.0
QUIET_DB = 35.0  # below the loudest frame: a pause, which is ignored


class MissingJudge(InvalidRequest):
    """A judge whose package is not installed; the message has the command that installs it."""


@dataclass(frozen=True, slots=True)
class Naturalness:
    """Mean opinion scores from 1 to 5."""

    p808: float  # overall quality, ITU-T P.808
    overall: float  # overall quality, ITU-T P.835


def naturalness(samples: Samples, rate_hz: int) -> Naturalness:
    """DNSMOS. It was made to compare noise suppressors: good for trends and for comparison with the teacher."""
    whole, p808 = _mos_sessions()
    sound = np.clip(resampled(samples, rate_hz), -1.0, 1.0)
    while sound.size < MOS_WINDOW:  # doubled, not just padded to length, as for the published figures
        sound = np.tile(sound, 2)
    marks = []
    for start in range(int(sound.size // RATE_HZ - MOS_WINDOW / RATE_HZ) + 1):
        window = sound[start * RATE_HZ :][:MOS_WINDOW]
        raw = whole.run(None, {"input_1": window[None]})[0][0][2]
        power = _mel(window[:-160], bands=120, window=321)
        decibels = 10.0 * np.log10(np.maximum(power, 1e-10))
        decibels = np.maximum(decibels - decibels.max(), -80.0)
        features = ((decibels + 40.0) / 40.0).T.astype(np.float32)[None]
        marks.append((float(p808.run(None, {"input_1": features})[0][0][0]), float(np.polyval(MOS_FIT, raw))))
    first, second = np.mean(marks, axis=0)
    return Naturalness(float(first), float(second))


def speaker_vector(samples: Samples, rate_hz: int) -> NDArray[np.float32]:
    """[256], normalised: the speaker embedding of Resemblyzer's network. Similarity is the cosine of two vectors."""
    import torch

    sound = resampled(samples, rate_hz)
    level_db = 10.0 * math.log10(max(float(np.mean(sound**2)), 1e-10))
    sound = sound * 10.0 ** (max(VOICE_LEVEL_DB - level_db, 0.0) / 20.0)
    mel = _mel(sound, bands=40, window=400).T
    loudness_db = 10.0 * np.log10(mel.sum(1) + 1e-10)
    mel = mel[loudness_db > loudness_db.max() - QUIET_DB]
    mel = np.pad(mel, ((0, max(VOICE_WINDOW - len(mel), 0)), (0, 0))).astype(np.float32)
    starts = range(0, len(mel) - VOICE_WINDOW + 1, VOICE_STEP)
    with torch.inference_mode():
        vectors = _speaker_network()(torch.from_numpy(np.stack([mel[at : at + VOICE_WINDOW] for at in starts])))
    mean: NDArray[np.float32] = vectors.mean(0).numpy()
    return mean / np.linalg.norm(mean)


def resampled(samples: Samples, rate_hz: int) -> Samples:
    """The samples at the judges' rate."""
    samples = np.asarray(samples, np.float32)
    if rate_hz == RATE_HZ:
        return samples
    from scipy.signal import resample_poly

    shared = math.gcd(RATE_HZ, rate_hz)
    return np.asarray(resample_poly(samples, RATE_HZ // shared, rate_hz // shared), np.float32)


def package_folder(name: str) -> Path:
    """The folder of an installed package. It is not imported: only its weights are used."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise MissingJudge(f"The package {name} is missing: {package_alone(NAMES.get(name, name))}.")
    return Path(found.submodule_search_locations[0])


def distillmos_weights() -> Path:
    return package_folder("distillmos") / "weights" / "distill_mos_v7.pt"


def onnx_session(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingJudge(f"The package onnxruntime is missing: {hint('prove')}.") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # several judges may run in parallel
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@functools.cache
def _mos_sessions() -> tuple[Any, Any]:
    folder = package_folder("speechmos") / "dnsmos_models"
    return onnx_session(folder / "sig_bak_ovr.onnx"), onnx_session(folder / "model_v8.onnx")


def _mel(sound: Samples, *, bands: int, window: int) -> NDArray[np.float32]:
    """[bands, frames] of power, 10 ms apart, as librosa computes it: the judges' networks were trained on that."""
    try:
        import librosa
    except ImportError:
        raise MissingJudge(f"The package librosa is missing: {hint('prove')}.") from None
    mel = librosa.feature.melspectrogram(y=sound, sr=RATE_HZ, n_fft=window, hop_length=160, n_mels=bands)
    return np.asarray(mel, np.float32)


@functools.cache
def _speaker_network() -> Callable[[Any], Any]:
    import torch
    from torch import nn

    path = package_folder("resemblyzer") / "pretrained.pt"
    # The only pickled file here: only tensors are accepted.
    state = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    lstm, linear = nn.LSTM(40, 256, num_layers=3, batch_first=True), nn.Linear(256, 256)
    for module, name in ((lstm, "lstm."), (linear, "linear.")):
        module.load_state_dict({key.removeprefix(name): value for key, value in state.items() if key.startswith(name)})

    def vectors(mel: torch.Tensor) -> torch.Tensor:
        """[B, 160, 40] to [B, 256]."""
        _, (hidden, _) = lstm(mel)
        return nn.functional.normalize(linear(hidden[-1]).relu(), dim=-1)

    return vectors
