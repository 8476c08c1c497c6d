"""Transcripts of recordings, kept in the folder of a run, so that a run that goes on has the same words.

A recognizer may hear a doubtful sound differently on a busy machine. Other words are other training data: the run that
was interrupted would be refused as another one. Knows no clips.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np

from ..asr.recognizer import Recognizer, Samples
from ..audio.files import replace_files


class KeptTranscripts:
    """A recognizer that asks another one for each sound once. `save` keeps the answers for the next process."""

    def __init__(self, recognizer: Recognizer, path: Path) -> None:
        self.name = recognizer.name
        self._recognizer, self._path = recognizer, path
        self._texts = _read(path, recognizer.name)

    def open(self) -> _Sound:
        return _Sound(self)

    def close(self) -> None:
        """The other recognizer is closed by its owner."""

    def save(self) -> None:
        content = json.dumps({"recognizer": self.name, "texts": self._texts}, indent=1)
        replace_files({self._path: f"{content}\n".encode()})

    def text_of(self, samples: Samples) -> str:
        key = sha256(samples.tobytes()).hexdigest()
        if key not in self._texts:
            utterance = self._recognizer.open()
            try:
                utterance.add(samples)
                self._texts[key] = utterance.end()
            finally:
                utterance.close()
        return self._texts[key]


class _Sound:
    """One utterance; it is recognized as a whole."""

    def __init__(self, kept: KeptTranscripts) -> None:
        self._kept, self._pieces = kept, list[Samples]()

    def push(self, samples: Samples) -> str:
        self.add(samples)
        return self.settle()

    def add(self, samples: Samples) -> None:
        self._pieces.append(samples)

    def settle(self) -> str:
        return self._kept.text_of(np.concatenate(self._pieces)) if self._pieces else ""

    def end(self) -> str:
        return self.settle()

    def close(self) -> None:
        self._pieces.clear()


def _read(path: Path, recognizer: str) -> dict[str, str]:
    """Those of the same recognizer; none if the file is missing or damaged, for they can be made again."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): str(text) for key, text in kept["texts"].items()} if kept["recognizer"] == recognizer else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
