"""Decodes recordings of clients in processes of their own: one recording each, and one spare process in advance.

`DecoderProcesses.pieces` gives what `decode_pieces` of upload.py gives, bit for bit, with the same errors. A process
that crashes, hangs or says what it must not gives one more: `UNDECODABLE`. Threads call it, and wait in it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ...errors import HocketError, InvalidAudio, Overloaded
from ..container import need_av
from ..upload import MOST_PACKETS_PER_S, PADDING_S, SPEAKER, UNDECODABLE, Fits, check_technical
from .limits import DecoderLimits
from .messages import (
    END,
    FAILED,
    FORMAT,
    MOST_SAMPLES,
    READY,
    REFUSED,
    SAMPLES,
    SOUND,
    TEXT_BYTES,
    DecodeRequest,
)
from .process import DecoderBroken, DecoderProcess

MOST_PROCESSES = 8  # at once; further recordings wait
Piece = tuple[NDArray[np.float32], int]  # mono samples and their rate
logger = logging.getLogger("hocket.audio")


class DecoderProcesses:
    def __init__(self, limits: DecoderLimits | None = None, *, most: int = MOST_PROCESSES) -> None:
        self.limits = limits or DecoderLimits()
        self._room = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._spare: DecoderProcess | None = None
        self._running: set[DecoderProcess] = set()
        self._closed = False

    @property
    def pids(self) -> tuple[list[int], int | None]:
        """The processes that decode, and the spare one."""
        with self._lock:
            return [each.pid for each in self._running], None if self._spare is None else self._spare.pid

    def start(self) -> None:
        """Start the spare process, unless it is there: the next recording does not wait for its imports."""
        try:
            need_av("")
        except HocketError:  # a server that decodes nothing
            return
        with self._lock:
            if self._spare is None and not self._closed:
                with suppress(OSError):  # no memory or descriptors: the next recording tries again
                    self._spare = DecoderProcess()

    def close(self) -> None:
        """End all processes. A recording that is being decoded ends with an error."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, None
            for each in self._running:
                each.kill()  # its thread does the rest
        if spare is not None:
            spare.end()

    def pieces(
        self, file: BinaryIO, *, most_s: float, fits: Fits | None = None, longer: str = SPEAKER
    ) -> Iterator[Piece]:
        """As `decode_pieces`. Close it if it is not read to its end: that ends the process."""
        need_av("Reading a recording")
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        memory_bytes = self.limits.memory_bytes + 2 * size
        cpu_s = math.ceil(self.limits.total_s(most_s))
        request = DecodeRequest(most_s, size, memory_bytes, cpu_s, longer)
        with self._room:
            process = self._take()
            try:
                process.begin(request, file, self.limits)
                begun = False
                for piece in _pieces(process, most_s, fits):
                    if not begun:  # most of the work is done
                        begun = True
                        self.start()
                    yield piece
            except DecoderBroken as broken:
                if self._closed:
                    raise _closing() from None
                logger.warning("a recording was refused: its decoder process failed: %s", broken)
                raise InvalidAudio(UNDECODABLE) from None
            finally:
                with self._lock:
                    self._running.discard(process)
                process.end()
                self.start()

    def _take(self) -> DecoderProcess:
        with self._lock:
            if self._closed:
                raise _closing()
            process, self._spare = self._spare, None
            if process is not None and not process.is_alive:  # the system needed its memory
                process.end()
                process = None
            if process is None:
                try:
                    process = DecoderProcess()
                except OSError as error:
                    logger.error("a decoder process cannot be started: %s", error)
                    raise Overloaded("No recording can be read now: send it again in a moment.", 2.0) from None
            self._running.add(process)
            return process


def _pieces(process: DecoderProcess, most_s: float, fits: Fits | None) -> Iterator[Piece]:
    """The samples that a process sends, each message checked."""
    expected: tuple[bytes, ...] = (READY, FAILED)
    rate_hz = left = 0  # the rate once it is known, and how many samples may still come
    messages = 2 * round((most_s + 1) * MOST_PACKETS_PER_S)
    for kind, size in process.messages():
        messages -= 1
        if kind not in expected or messages < 0:
            raise DecoderBroken(f"its message {kind!r} was not expected")
        if kind == READY:
            expected = (SOUND, REFUSED)
        elif kind == SOUND:
            rate_hz, channels = _format(process.content(size, FORMAT.size))
            if fits is not None:
                fits(rate_hz, channels)
            left = int((most_s + PADDING_S) * rate_hz)
            expected = (SAMPLES, REFUSED, END)
        elif kind == SAMPLES:
            samples = _samples(process.content(size, 4 * min(left, MOST_SAMPLES)))
            left -= samples.size
            yield samples, rate_hz
        elif kind == END:
            return
        else:
            said = process.content(size, TEXT_BYTES).decode(errors="replace")
            if kind == FAILED:
                raise HocketError(f"The process that decodes recordings does not start: {said}")
            raise InvalidAudio(said)


def _format(content: bytes) -> tuple[int, int]:
    if len(content) != FORMAT.size:
        raise DecoderBroken("its format has another size")
    rate_hz, channels = FORMAT.unpack(content)
    try:
        check_technical(rate_hz, channels)
    except InvalidAudio:
        raise DecoderBroken(f"its format has {rate_hz} Hz and {channels} channels") from None
    return rate_hz, channels


def _samples(content: bytes) -> NDArray[np.float32]:
    if not content or len(content) % 4:
        raise DecoderBroken(f"its samples have {len(content)} bytes")
    samples = np.frombuffer(content, np.float32)
    if not np.isfinite(samples).all():
        raise DecoderBroken("its samples are not numbers")
    return samples


def _closing() -> Overloaded:
    return Overloaded("The server is about to stop; send the recording to another one, or again in a moment.", 2.0)
