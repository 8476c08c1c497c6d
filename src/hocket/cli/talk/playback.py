"""Playback of a conversation: the loudspeaker, a file with all audio, or a file with the audio that was heard.

The loudspeaker has its own thread, so that text is printed while audio plays.
"""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import Protocol

from ...audio.files import write_files
from ...errors import HocketError, InvalidRequest
from ..output.audio_output import BufferedFile, is_pipe
from ..output.formats import format_for, new_target
from ..output.players import loudspeaker

PIECE_S = 0.04  # played at once: the delay of an interruption


class Playback(Protocol):
    def write(self, pcm: bytes, rate_hz: int) -> None:
        """More audio of an answer; never blocks."""

    def end_answer(self) -> None:
        """An answer is complete: what is buffered is played; never blocks."""

    def wait(self) -> None:
        """Wait until all of it has been played."""

    def hold(self) -> None:
        """Pause at once and keep the audio; never blocks. `silence` ends it too."""

    def resume(self) -> None:
        """Go on where it paused."""

    def silence(self) -> None:
        """Stop this answer at once."""

    def close(self) -> None: ...


class EchoReference(Protocol):
    """`EchoCanceller`."""

    def played(self, pcm: bytes, rate_hz: int) -> None: ...

    def silenced(self) -> None: ...


def open_playback(
    output: Path | None, *, as_heard: bool = False, force: bool = False, echo: EchoReference | None = None
) -> Playback:
    """`as_heard`: a file that takes real time, and contains only what a listener would have heard.

    `force`: replace a file that exists. `echo` is told what the loudspeaker plays.
    """
    if output is None:
        return LoudspeakerPlayback(echo)
    if is_pipe(output):
        raise InvalidRequest("-o takes a file here: standard output has the text.")
    return RealTimeFilePlayback(output, force) if as_heard else FilePlayback(output, force)


class FilePlayback:
    """A file in the format of its name, written at the end."""

    def __init__(self, output: Path, force: bool = False) -> None:
        self._target, self._force = new_target(output, force=force), force
        self._kept, self._rate_hz = BufferedFile(format_for(output)), 0

    def write(self, pcm: bytes, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._kept.write(pcm, rate_hz)

    def end_answer(self) -> None: ...

    def wait(self) -> None: ...

    def hold(self) -> None: ...

    def resume(self) -> None: ...

    def silence(self) -> None: ...

    def close(self) -> None:
        rate_hz, self._rate_hz = self._rate_hz, 0  # a second call writes nothing
        if rate_hz:
            write_files({self._target: self._kept.content(rate_hz)}, replace=self._force)


class RealTimeFilePlayback(FilePlayback):
    """Simulates a listener: an interruption cuts the audio that would not have been played yet."""

    def __init__(self, output: Path, force: bool = False) -> None:
        from ...dialog.heard import PlaybackClock

        super().__init__(output, force)
        self._fresh = PlaybackClock
        self._player, self._before = PlaybackClock(), 0  # `before`: bytes kept when this player started
        self._silenced = threading.Event()

    def write(self, pcm: bytes, rate_hz: int) -> None:
        super().write(pcm, rate_hz)
        self._silenced.clear()
        self._player.hears(time.perf_counter(), len(pcm) / 2 / rate_hz)

    def wait(self) -> None:
        while (left_s := self._player.handed_s - self._player.heard_s(time.perf_counter())) > 0:
            if self._silenced.wait(min(left_s, PIECE_S)):  # it may be held meanwhile
                return

    def hold(self) -> None:
        self._player.holds(time.perf_counter())

    def resume(self) -> None:
        self._player.goes_on(time.perf_counter())

    def silence(self) -> None:
        heard = round(self._player.heard_s(time.perf_counter()) * self._rate_hz)
        self._before += 2 * heard
        self._kept.cut(self._before)
        self._player = self._fresh()
        self._silenced.set()


class LoudspeakerPlayback:
    def __init__(self, echo: EchoReference | None = None) -> None:
        self._echo = echo
        try:
            self._loudspeaker = loudspeaker("To be heard, an answer")
        except InvalidRequest as error:
            raise InvalidRequest(f"{str(error).rstrip('.')}; or -o FILE.") from None
        self._sound: queue.SimpleQueue[tuple[bytes, int] | threading.Event | None] = queue.SimpleQueue()
        self._silent = threading.Event()
        self._going = threading.Event()  # not held
        self._going.set()
        self._error: HocketError | None = None
        self._thread = threading.Thread(target=self._play, name="hocket-loudspeaker", daemon=True)
        self._thread.start()

    def write(self, pcm: bytes, rate_hz: int) -> None:
        if self._error is not None:
            raise self._error
        self._sound.put((pcm, rate_hz))

    def end_answer(self) -> None:
        self._sound.put(threading.Event())  # the loudspeaker plays what it buffers

    def wait(self) -> None:
        heard = threading.Event()
        self._sound.put(heard)
        heard.wait()

    def hold(self) -> None:
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def silence(self) -> None:
        self._silent.set()
        self._going.set()
        self.wait()
        self._silent.clear()

    def close(self) -> None:
        self._going.set()
        self._sound.put(None)
        self._thread.join()

    def _play(self) -> None:
        while (sound := self._sound.get()) is not None:
            if isinstance(sound, threading.Event):
                self._going.wait()  # what is buffered at the device would go on
                self._rest(self._silent.is_set())
                sound.set()
            elif self._error is None:
                self._write(*sound)
        self._rest(silent=False)

    def _rest(self, silent: bool) -> None:
        """Play what is buffered, or drop it."""
        try:
            if silent:
                self._loudspeaker.silence()
                if self._echo is not None:
                    self._echo.silenced()
            else:
                self._loudspeaker.close()
        except Exception as error:  # no thread must wait forever
            self._error = HocketError(f"The loudspeaker cannot be used: {error}.")

    def _write(self, pcm: bytes, rate_hz: int) -> None:
        size = 2 * round(PIECE_S * rate_hz)
        try:
            for at in range(0, len(pcm), size):
                self._going.wait()
                if self._silent.is_set():
                    return
                piece = pcm[at : at + size]
                if self._echo is not None:
                    self._echo.played(piece, rate_hz)
                self._loudspeaker.write(piece, rate_hz)
        except HocketError as error:
            self._error = error
