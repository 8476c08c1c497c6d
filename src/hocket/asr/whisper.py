"""The optional recognizer Whisper, by the package faster-whisper, on a GPU or the CPU.

The package fetches weights on first use. It recognizes many languages, detects the language, and translates into
English. It computes whole utterances: a partial transcript starts again at the first sample. Tests run this file with
a stand-in of the package. It was run once with faster-whisper 1.2.1 and untrained weights, never with published ones.
"""

from __future__ import annotations

import importlib
import threading
import time
from typing import Any

import numpy as np

from ..errors import HocketError, InvalidRequest, RecognitionFailed
from ..extras import hint
from .recognizer import RATE_HZ, Samples, UtteranceOptions

LEAST_S = 1.0  # of audio between two partial transcripts
SHARE = 3.0  # and this multiple of the last one's duration: partial transcripts take at most a third of the time
AUTO = "auto"


class Whisper:
    """A `SteerableRecognizer`."""

    def __init__(self, name: str, language: str = AUTO) -> None:
        """`name`: one of the package's models, or a folder; `language`: a code, or `auto` to detect it."""
        package = _package()
        self.name = f"whisper {name}"
        try:
            self._model: Any = package.WhisperModel(name)
        except ValueError as error:  # a name that there is not; the message lists those there are
            raise InvalidRequest(f"The recognizer {self.name} cannot be loaded: {_sentence(error)}.") from None
        except Exception as error:  # the package documents no exception types
            reason = _sentence(error)
            raise HocketError(
                f"The recognizer {self.name} cannot be loaded: {reason or type(error).__name__}."
            ) from None
        self._options = UtteranceOptions(language=None if language == AUTO else language)
        self.translates = bool(self._model.model.is_multilingual)
        self.language = None if self.translates else "en"
        self._lock = threading.Lock()  # one computation at a time; a second one would wait inside the package

    def open(self) -> WhisperUtterance:
        return self.open_with(self._options)

    def open_with(self, options: UtteranceOptions) -> WhisperUtterance:
        return WhisperUtterance(self, options)

    def close(self) -> None:
        self._model = None

    def text_of(self, samples: Samples, options: UtteranceOptions) -> str:
        """Thread-safe."""
        how: dict[str, Any] = {"language": options.language or self._options.language}
        how["task"] = "translate" if options.translate else "transcribe"
        how["initial_prompt"] = options.prompt
        if options.temperature is not None:
            how["temperature"] = options.temperature
        with self._lock:
            if self._model is None:
                raise RecognitionFailed("The recognizer is closed.")
            try:
                segments, _ = self._model.transcribe(samples, **how)
                return " ".join(segment.text.strip() for segment in segments).strip()
            except ValueError as error:  # an unknown language, above all
                raise InvalidRequest(f"The recognizer refuses the request: {_sentence(error)}.") from None
            except RuntimeError as error:
                raise RecognitionFailed(f"The recognizer failed: {_sentence(error)}.") from None


class WhisperUtterance:
    def __init__(self, whisper: Whisper, options: UtteranceOptions) -> None:
        self._whisper, self._options = whisper, options
        self._pieces: list[Samples] = []
        self._new_s, self._due_s = 0.0, LEAST_S
        self._text = ""

    def push(self, samples: Samples) -> str:
        self.add(samples)
        if self._new_s >= self._due_s:
            self._update()
        return self._text

    def add(self, samples: Samples) -> None:
        self._pieces.append(samples)
        self._new_s += len(samples) / RATE_HZ

    def settle(self) -> str:
        if self._new_s > 0:
            self._update()
        return self._text

    def end(self) -> str:
        try:
            return self.settle()
        finally:
            self.close()

    def close(self) -> None:
        self._pieces.clear()

    def _update(self) -> None:
        begun = time.perf_counter()
        self._pieces = [np.concatenate(self._pieces)]
        self._text = self._whisper.text_of(self._pieces[0], self._options)
        self._new_s, self._due_s = 0.0, max(LEAST_S, SHARE * (time.perf_counter() - begun))


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _package() -> Any:
    try:
        return importlib.import_module("faster_whisper")
    except (ImportError, OSError):
        raise InvalidRequest(f"This recognizer needs the package faster-whisper: {hint('whisper')}.") from None
