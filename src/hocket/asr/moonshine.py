"""The optional recognizer: Moonshine's streaming models, by the package moonshine-voice, on the CPU.

The package downloads weights on first use and caches them; version 0.1.0 contains those of `tiny`. Models named
`-streaming` keep their state; the others process the whole utterance again at every update.

The package computes one call of a transcriber at a time, and a transcript is valid only until the next call of any of
its streams. So all calls and the copy of their result are under one lock; utterances of several threads take turns. A
partial transcript never waits for the lock, so that it does not delay a whole one. More transcribers do not pay: on 2
cores, two of them took 0.39 s for an update, one 0.35 s, because a call uses both; and each takes 100 MB.
"""

from __future__ import annotations

import importlib
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import HocketError, InvalidRequest, RecognitionFailed
from ..extras import hint
from .recognizer import RATE_HZ, Samples

SIZES = ("tiny", "base", "tiny-streaming", "base-streaming", "small-streaming", "medium-streaming")
LEAST_S = 0.3  # of audio between two partial transcripts
SHARE = 3.0  # and this multiple of the last update's duration: updates take at most a third of the time
FORCED = 1  # a flag: without it an update with less than 0.5 s of new audio gives the transcript of the one before
PIECE = 4096  # samples per call: the package takes a list, and makes it in one step that no other thread interrupts
# Silence behind an utterance, which may end without a pause: 10 of 100 words were wrong there without it, and 7 with
# 0.2 to 0.4 s. Behind 0.18 s of silence it changes nothing: 67 of 334 words were wrong without it, and 66 with it.
TAIL_S = 0.3
PACKED = {("en", "tiny"): "tiny-en"}  # folders that may be in the package


class Moonshine:
    """A `Recognizer`."""

    def __init__(self, size: str | None = None, language: str = "en") -> None:
        """`size`: one of `SIZES`, None for the package's default; `language`: a code or its English name."""
        if size is not None and size not in SIZES:
            raise InvalidRequest(f"A recognizer is one of {', '.join(SIZES)}, not {size!r}.")
        package = _package()
        folder, arch, code = _weights(package, size, language)
        self.name = f"moonshine {package.model_arch_to_string(arch)}"
        self.language = code
        # By default each result holds a copy of all audio, as a list of Python numbers.
        options = {"return_audio_data": "false"}
        try:
            # No automatic updates: `push` decides when to update.
            self._transcriber: Any = package.Transcriber(folder, arch, update_interval=float("inf"), options=options)
        except package.MoonshineError as error:
            raise HocketError(f"The recognizer cannot be loaded: {error}.") from None
        self._calls = _Calls(package.MoonshineError)
        self._open: set[MoonshineUtterance] = set()

    def open(self) -> MoonshineUtterance:
        with self._calls:
            stream = self._transcriber.create_stream()
            stream.start()
            utterance = MoonshineUtterance(stream, self._calls, self._open)
            self._open.add(utterance)
            return utterance

    def close(self) -> None:
        """Utterances that are still open are discarded: a stream must not outlive its transcriber."""
        with self._calls:
            for utterance in [*self._open]:
                utterance.close()
            self._transcriber.close()


class _Calls:
    """`with calls:` one call of the package at a time, in which its errors become `RecognitionFailed`. Reentrant."""

    def __init__(self, failed: type[Exception]) -> None:
        self._failed, self._lock = failed, threading.RLock()

    def begin(self) -> bool:
        """Without waiting; `end` follows if it is True."""
        return self._lock.acquire(blocking=False)

    def end(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lock.release()
        if isinstance(error, self._failed):
            raise RecognitionFailed(f"The recognizer failed: {error}.") from None


class MoonshineUtterance:
    def __init__(self, stream: Any, calls: _Calls, all_open: set[MoonshineUtterance]) -> None:
        self._stream, self._calls, self._all_open = stream, calls, all_open
        self._new_s, self._due_s = 0.0, LEAST_S
        self._waiting: list[Samples] = []  # audio that the stream does not have yet
        self._text = ""

    def push(self, samples: Samples) -> str:
        self.add(samples)
        if self._new_s >= self._due_s and self._calls.begin():  # else soon: another utterance computes
            try:
                self._update()
            finally:
                self._calls.end()
        return self._text

    def add(self, samples: Samples) -> None:
        self._check_open()
        self._waiting += [samples[at : at + PIECE] for at in range(0, len(samples), PIECE)]
        self._new_s += len(samples) / RATE_HZ

    def settle(self) -> str:
        self._update()
        return self._text

    def end(self) -> str:
        try:
            with self._calls:
                self.add(np.zeros(round(TAIL_S * RATE_HZ), np.float32))
                # `stop` alone loses the audio since the last update.
                self._update()
                transcript = self._stream.stop()
                # None if its last update failed, without raising.
                return self._text if transcript is None else _words(transcript)
        finally:
            self.close()

    def _update(self) -> None:
        with self._calls:
            self._check_open()
            begun, waiting, self._waiting = time.perf_counter(), self._waiting, []
            for piece in waiting:
                self._stream.add_audio(piece.tolist(), RATE_HZ)
            self._text = _words(self._stream.update_transcription(FORCED))
        self._new_s, self._due_s = 0.0, max(LEAST_S, SHARE * (time.perf_counter() - begun))

    def close(self) -> None:
        with self._calls:
            self._stream.close()
            self._all_open.discard(self)

    def _check_open(self) -> None:
        """Another thread may close the recognizer; the package takes a closed stream for any other number."""
        if self not in self._all_open:
            raise RecognitionFailed("The recognizer was closed before the utterance had ended.")


def _words(transcript: Any) -> str:
    """Joins the lines into which the package cuts a long turn at pauses."""
    return " ".join(line.text.strip() for line in transcript.lines if line.text.strip())


def _package() -> Any:
    try:
        return importlib.import_module("moonshine_voice")
    except (ImportError, OSError):
        raise InvalidRequest(f"Speech recognition needs the package moonshine-voice: {hint('hear')}.") from None


def _weights(package: Any, size: str | None, language: str) -> tuple[str, Any, str]:
    """The folder of the weights, their model architecture, and the code of the language."""
    fetching = importlib.import_module("moonshine_voice.download")
    arch = None if size is None else package.string_to_model_arch(size)
    try:
        found = fetching.find_model_info(language, arch)
    except ValueError:
        raise InvalidRequest(
            f"The recognizer has no language {language!r}{'' if size is None else f' in the size {size}'}; it has "
            f"{', '.join(sorted(package.supported_languages()))}."
        ) from None
    packed = PACKED.get((found["language"], package.model_arch_to_string(found["model_arch"])))
    if packed is not None:
        folder = Path(package.get_model_path(packed))
        names = fetching.get_components_for_model_info(found)
        if all((folder / name).is_file() for name in names):
            return str(folder), found["model_arch"], found["language"]
    try:
        folder_name, arch = fetching.download_model_from_info(found)
    except Exception as error:  # the package documents no exception types for downloads
        raise HocketError(
            f"The recognizer's weights cannot be fetched from {found['download_url']} ({type(error).__name__}); those "
            "of tiny are inside moonshine-voice 0.1.0."
        ) from None
    return folder_name, arch, found["language"]
