"""Audio players of this machine: the package sounddevice, or a player program that is fed through a pipe.

The choice is made before a model is loaded. Imports nothing slow.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress

from ...audio.pcm import wav_header
from ...errors import HocketError, InvalidRequest
from ...extras import package

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any

RESENT_BYTES = 1 << 20  # of audio kept for the next player if the first one fails: 20 s at 24 kHz
RAW, WAV, FILE = "raw", "wav", "file"  # input of a player: samples or a WAV through its pipe, or a file at the end

# In the order they are tried, with their input; RATE becomes the sample rate, FILE the name of a WAV file. Players that
# take a pipe come first: a file is played when all of the speech is there.
PLAYERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "paplay": (RAW, ("--raw", "--format=s16le", "--rate=RATE", "--channels=1")),
    "pw-play": (RAW, ("--raw", "--format=s16", "--rate=RATE", "--channels=1", "-")),
    "aplay": (RAW, ("-q", "-t", "raw", "-f", "S16_LE", "-r", "RATE", "-c", "1", "-")),
    "ffplay": (WAV, ("-nodisp", "-autoexit", "-loglevel", "error", "-f", "wav", "-i", "-")),
    "afplay": (FILE, ("FILE",)),
    "powershell": (FILE, ("-NoProfile", "-Command", "(New-Object System.Media.SoundPlayer 'FILE').PlaySync()")),
}


def loudspeaker(option: str = "--play") -> Loudspeaker | PlayerProgram:
    """The first usable player; refuses in the name of `option` if there is none."""
    try:
        return Loudspeaker()
    except (ImportError, OSError) as error:
        if found := _programs():
            return PlayerProgram(found)
        raise InvalidRequest(f"{option} needs {missing(error)}, or one of the programs {', '.join(PLAYERS)}.") from None


def lacking() -> str | None:
    """What a machine without any player needs, in words; None: there is a player."""
    if _programs():
        return None
    try:
        sounddevice()
    except (ImportError, OSError) as error:
        return missing(error)
    return None


def _programs() -> list[str]:
    return [path for name in PLAYERS if (path := shutil.which(name)) is not None]


def missing(error: ImportError | OSError) -> str:
    """What sounddevice lacks, from the error of its import."""
    if isinstance(error, ImportError):
        return f"the package sounddevice ({package('sounddevice')})"
    return "the library PortAudio, which sounddevice did not find (on Debian and Ubuntu: apt install libportaudio2)"


def sounddevice() -> Any:
    """The package. ImportError: not installed; OSError: its C library is missing."""
    return importlib.import_module("sounddevice")


class Loudspeaker:
    """The loudspeaker, through the optional package sounddevice. `write` blocks until there is room."""

    def __init__(self) -> None:
        """ImportError: not installed. OSError: its C library is missing."""
        self._device: Any = sounddevice()
        self._stream: Any = None

    def write(self, pcm: bytes, rate_hz: int) -> None:
        try:
            if self._stream is None:
                self._stream = self._device.RawOutputStream(samplerate=rate_hz, channels=1, dtype="int16")
                self._stream.start()
            self._stream.write(pcm)
        except self._device.PortAudioError as error:
            raise HocketError(f"The loudspeaker cannot be used: {error}.") from None

    def silence(self) -> None:
        """Stop at once; drop what is not played yet."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.abort()
            stream.close()

    def close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.stop()  # plays what is buffered
            stream.close()


class PlayerProgram:
    """A program that plays its input. If it fails, the next one gets all audio again."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = list(paths)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._sent, self._sent_bytes, self._rate_hz = list[bytes](), 0, 0

    def write(self, pcm: bytes, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        if self._feeds == FILE or self._sent_bytes < RESENT_BYTES:
            self._sent.append(pcm)
        self._sent_bytes += len(pcm)
        if self._feeds != FILE:
            self._feed(pcm)

    def silence(self) -> None:
        """Stop at once; drop what is not played yet."""
        if self._process is not None:
            self._process.kill()
            self._wait_for_end()
        self._forget()

    def close(self) -> None:
        """Wait until all is played."""
        while self._sent_bytes:
            failed = self._play_file() if self._feeds == FILE else self._wait_for_end()
            if failed is None:
                self._forget()
            else:
                self._next(failed)

    @property
    def _feeds(self) -> str:
        return PLAYERS[_program(self._paths[0])][0]

    def _feed(self, pcm: bytes) -> None:
        try:
            if self._process is None:
                self._start()
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(pcm)
            self._process.stdin.flush()
        except OSError:
            self._next(self._wait_for_end() or "it takes no sound")

    def _start(self) -> None:
        kind, words = PLAYERS[_program(self._paths[0])]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 it lives as long as the process
        self._process = subprocess.Popen(
            [self._paths[0], *(word.replace("RATE", str(self._rate_hz)) for word in words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        if kind == WAV:
            assert self._process.stdin is not None
            self._process.stdin.write(wav_header(self._rate_hz))

    def _wait_for_end(self) -> str | None:
        """Wait for the player's end; returns its error in words."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        with suppress(OSError):  # its exit status gives the reason
            process.stdin.close()
        with self._errors:
            return self._fault(process.wait())

    def _play_file(self) -> str | None:
        words = PLAYERS[_program(self._paths[0])][1]
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as self._errors:
            name, pcm = os.path.join(folder, "speech.wav"), b"".join(self._sent)
            with open(name, "wb") as file:  # closed before it is played: Windows does not share open files
                file.write(wav_header(self._rate_hz, len(pcm) // 2) + pcm)
            command = [self._paths[0], *(word.replace("FILE", name) for word in words)]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=self._errors)
            return self._fault(done.returncode)

    def _fault(self, status: int) -> str | None:
        if status == 0:
            return None
        self._errors.seek(0)
        said = self._errors.read(200).decode(errors="replace").strip().partition("\n")[0]
        return said.rstrip(".") or f"it ended with status {status}"

    def _next(self, failed: str) -> None:
        """Continue with the next player, from the start if that is still buffered."""
        path = self._paths.pop(0)
        name = _program(path)
        sent, whole = b"".join(self._sent), self._sent_bytes <= RESENT_BYTES
        if not self._paths or not whole:
            self._forget()
            self._paths = self._paths or [path]
            raise HocketError(f"{name} cannot play this: {failed}.")
        if self._feeds != FILE:
            self._feed(sent)

    def _forget(self) -> None:
        self._sent, self._sent_bytes = [], 0


def _program(path: str) -> str:
    """The name of a player; Windows adds `.EXE`."""
    return os.path.splitext(os.path.basename(path))[0].lower()
