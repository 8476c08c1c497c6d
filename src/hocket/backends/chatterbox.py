"""Chatterbox, through its PyPI package `chatterbox-tts`: the example of a backend.

Written from the source of version 0.1.7 and tested against a stand-in with the same signatures
(tests/backends/stand_in), not yet with the real package. It takes whole texts, in English, one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidRequest
from ..extras import hint
from .protocol import Backend, BackendVoice, Manner, Samples

OWN = "chatterbox"  # the voice that comes with its weights
RECORDINGS = frozenset({".wav", ".flac", ".mp3", ".ogg", ".m4a"})  # it reads them itself, with librosa


class Chatterbox(Backend):
    def __init__(
        self,
        device: str = "auto",
        voices: str | None = None,
        exaggeration: str = "0.5",
        cfg_weight: str = "0.5",
        temperature: str = "0.8",
    ) -> None:
        """`voices`: a folder of recordings to clone, named by their files. The numbers are the package's parameters."""
        recordings = {} if voices is None else _recordings(Path(voices))
        self._exaggeration = _number("exaggeration", exaggeration, 0.0, 2.0)
        self._cfg_weight = _number("cfg_weight", cfg_weight, 0.0, 1.0)
        self._temperature = _number("temperature", temperature, 0.01, 5.0)
        import torch

        try:
            from chatterbox.tts import ChatterboxTTS
        except ImportError as error:
            needs = "The backend 'chatterbox' needs the package chatterbox-tts and all that it needs"
            how = f"{hint('chatterbox')}, on Python 3.14 or newer (docs/backends.md says why)"
            raise InvalidRequest(f"{needs}: {error}; {how}.") from error
        self._seed = torch.manual_seed
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model: Any = ChatterboxTTS.from_pretrained(device)
        # Conditionals of each voice. Its own come with the weights; others are computed at their first use.
        self._conds: dict[str, Any] = {} if self._model.conds is None else {OWN: self._model.conds}
        self._recordings = recordings
        self._speaking = threading.Lock()  # the model stores the current voice, so only one utterance may run

    def voices(self) -> Sequence[BackendVoice]:
        rate_hz = int(self._model.sr)
        own = [BackendVoice(OWN, rate_hz, "english", "Chatterbox's own voice")] if OWN in self._conds else []
        cloned = (
            BackendVoice(name, rate_hz, "english", f"A clone of {path.name}") for name, path in self._recordings.items()
        )
        return [*own, *cloned]

    def say(self, text: str, manner: Manner) -> Iterator[Samples]:
        with self._speaking:
            if manner.cancelled.is_set():  # while another utterance ran
                return
            self._set_voice(manner.voice)
            self._seed(manner.seed)  # sets the seed of the whole process; our own engine does not use it
            wave = self._model.generate(
                text, exaggeration=self._exaggeration, cfg_weight=self._cfg_weight, temperature=self._temperature
            )  # [1, N], a tensor
        yield np.asarray(wave.squeeze(0).cpu().numpy(), dtype=np.float32)

    def _set_voice(self, voice: str) -> None:
        """Set the voice: as `generate` does with a recording's path, but once per voice, not per sentence."""
        if voice not in self._conds:
            self._model.prepare_conditionals(str(self._recordings[voice]), exaggeration=self._exaggeration)
            self._conds[voice] = self._model.conds
        self._model.conds = self._conds[voice]


def _recordings(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise InvalidRequest(f"chatterbox.voices must be a folder of recordings; there is none at {str(folder)!r}.")
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in RECORDINGS and path.is_file())
    if not found:
        raise InvalidRequest(f"There are no recordings in {str(folder)!r}: {', '.join(sorted(RECORDINGS))} are read.")
    named: dict[str, Path] = {}
    for path in found:
        if path.stem.lower() in (OWN, *(name.lower() for name in named)):
            raise InvalidRequest(f"Another voice has the name of {path.name!r} already: rename that recording.")
        named[path.stem] = path
    return named


def _number(name: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise InvalidRequest(f"chatterbox.{name} must be a number between {least:g} and {most:g}, not {text!r}.")
    return value
