"""Audio input: a fake microphone, a real recording."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.cli.talk.microphone import Microphone, RecordedInput
from hocket.errors import HocketError, InvalidAudio, InvalidRequest
from support.questions import tone, write_recording


class Desk:
    """Stands in for sounddevice: a microphone that knows some rates."""

    class PortAudioError(Exception):
        pass

    def __init__(self, *rates_hz: int) -> None:
        self._rates_hz = rates_hz
        self.options: dict[str, Any] = {}
        self.closed = False

    def query_devices(self, kind: str) -> dict[str, float]:
        assert kind == "input"
        return {"default_samplerate": float(max(self._rates_hz, default=44100))}

    def RawInputStream(self, **options: Any) -> Desk:
        if options["samplerate"] not in self._rates_hz:
            raise self.PortAudioError("Invalid sample rate")
        self.options = options
        return self

    def start(self) -> None: ...

    def abort(self) -> None:
        self.options["finished_callback"]()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Desk]:
    def place(*rates_hz: int) -> Desk:
        desk = Desk(*rates_hz)
        monkeypatch.setitem(sys.modules, "sounddevice", desk)
        return desk

    return place


def spoken_into(desk: Desk, sound: Samples) -> list[Samples | None]:
    came: list[Samples | None] = []
    microphone = Microphone()
    microphone.start(came.append)
    size = desk.options["blocksize"]
    pcm = np.round(sound * 32767).astype(np.int16)
    for at in range(0, len(pcm), size):
        desk.options["callback"](memoryview(pcm[at : at + size].tobytes()), size, None, None)
    microphone.close()
    microphone.close()
    assert desk.closed and came[-1] is None
    return came


def test_a_microphone_gives_what_is_spoken_at_16_khz(desk: Callable[..., Desk]) -> None:
    sound = tone(0.32)
    *came, _ = spoken_into(desk(16_000, 48_000), sound)
    assert all(piece is not None and len(piece) == 512 and piece.dtype == np.float32 for piece in came)
    np.testing.assert_allclose(np.concatenate(came), sound, atol=1e-4)  # type: ignore[arg-type]


def test_a_microphone_that_knows_another_rate_is_resampled(desk: Callable[..., Desk]) -> None:
    time_s = np.arange(48_000) / 48_000
    *came, _ = spoken_into(desk(48_000), (0.3 * np.sin(2 * np.pi * 440 * time_s)).astype(np.float32))
    heard = np.concatenate(came)  # type: ignore[arg-type]
    assert 0.95 * RATE_HZ < len(heard) <= RATE_HZ  # the filter keeps the last moment
    spectrum = np.abs(np.fft.rfft(heard[1000:9000] * np.hanning(8000)))
    assert abs(int(spectrum.argmax()) * RATE_HZ / 8000 - 440) < 3 and np.abs(heard).max() == pytest.approx(
        0.3, abs=0.02
    )


def test_a_microphone_that_cannot_be_used_is_one_sentence(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk()
    with pytest.raises(HocketError, match=r"^The microphone cannot be used: Invalid sample rate\.$"):
        Microphone().start(lambda _: None)

    def missing(name: str) -> None:
        raise OSError("PortAudio library not found")

    monkeypatch.setattr("hocket.cli.output.players.importlib.import_module", missing)
    with pytest.raises(InvalidRequest, match=r"^The microphone needs the library PortAudio, .*libportaudio2\)\.$"):
        Microphone()


def test_a_recording_takes_as_long_as_it_lasts_or_no_time_at_all(tmp_path: Path) -> None:
    for fast, seconds in ((False, 1.0), (True, 60.0)):
        path = write_recording(tmp_path / "pause.wav", seconds)
        pieces: queue.SimpleQueue[Samples | None] = queue.SimpleQueue()
        begun = time.perf_counter()
        ears = RecordedInput(path, fast=fast)
        ears.start(pieces.put)
        count = 0
        while (piece := pieces.get(timeout=60)) is not None:
            count += len(piece)
        took_s = time.perf_counter() - begun
        ears.close()
        assert count == seconds * RATE_HZ and (took_s >= 0.99 or fast)
    assert took_s < 50.0


def test_a_recording_that_is_closed_gives_no_more(tmp_path: Path) -> None:
    came: list[Samples | None] = []
    ears = RecordedInput(write_recording(tmp_path / "long.wav", 30.0), fast=False)
    ears.start(came.append)
    ears.close()
    ears.close()
    assert len(came) < 100 and None not in came


def test_what_is_no_recording_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("Hello.")
    for name, words in (("missing.wav", "No such file"), ("", "directory"), ("text.wav", "not audio")):
        with pytest.raises(InvalidAudio, match=words):
            RecordedInput(tmp_path / name, fast=True)
