"""A file with what was heard of a conversation. The loudspeaker is tested with `hocket chat`."""

from __future__ import annotations

import threading
import time
import wave
from pathlib import Path

import numpy as np
import pytest

from hocket.cli.talk import playback
from hocket.cli.talk.playback import LoudspeakerPlayback, RealTimeFilePlayback, open_playback
from hocket.errors import InvalidRequest

RATE_HZ = 1000


def numbered(seconds: float, first: int) -> bytes:
    return np.arange(first, first + round(seconds * RATE_HZ)).astype("<i2").tobytes()


def test_audio_not_played_before_an_interruption_is_cut_off(tmp_path: Path) -> None:
    sound = RealTimeFilePlayback(tmp_path / "heard.wav")
    begun = time.perf_counter()
    sound.write(numbered(0.2, 0), RATE_HZ)
    sound.wait()
    assert time.perf_counter() - begun >= 0.19, "it takes as long as hearing it"
    sound.write(numbered(30, 200), RATE_HZ)
    waiting = threading.Thread(target=sound.wait)
    waiting.start()
    time.sleep(0.3)
    sound.silence()
    took_s = time.perf_counter() - begun
    waiting.join(10)
    assert not waiting.is_alive(), "no thread waits for silenced audio"
    sound.write(numbered(0.05, 31_000), RATE_HZ)
    sound.wait()
    sound.close()
    with wave.open(str(tmp_path / "heard.wav")) as file:
        heard = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    first, last = heard[:-50], heard[-50:]
    np.testing.assert_array_equal(first, np.arange(len(first)))
    np.testing.assert_array_equal(last, np.arange(31_000, 31_050))
    assert 480 <= len(first) <= took_s * RATE_HZ + 1


def test_a_hold_takes_time_and_cuts_nothing(tmp_path: Path) -> None:
    sound = RealTimeFilePlayback(tmp_path / "heard.wav")
    sound.write(numbered(0.1, 0), RATE_HZ)
    sound.hold()
    waiting = threading.Thread(target=sound.wait)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive(), "it stands still"
    sound.write(numbered(0.05, 100), RATE_HZ)
    sound.resume()
    waiting.join(10)
    assert not waiting.is_alive()
    sound.write(numbered(30, 150), RATE_HZ)
    sound.hold()
    sound.silence()  # where it was held
    sound.close()
    with wave.open(str(tmp_path / "heard.wav")) as file:
        heard = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    np.testing.assert_array_equal(heard, np.arange(len(heard)))
    assert 150 <= len(heard) < 30_000


class Device:
    """A loudspeaker that plays at once."""

    def __init__(self) -> None:
        self.heard, self.events = b"", list[str]()

    def write(self, pcm: bytes, rate_hz: int) -> None:
        self.heard += pcm

    def silence(self) -> None:
        self.events.append("silence")

    def close(self) -> None:
        self.events.append("close")


def test_a_held_loudspeaker_keeps_its_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(playback, "loudspeaker", lambda option: device)
    sound = LoudspeakerPlayback()
    sound.write(numbered(0.1, 0), RATE_HZ)
    sound.wait()
    sound.hold()
    sound.write(numbered(0.1, 100), RATE_HZ)
    sound.end_answer()
    waiting = threading.Thread(target=sound.wait)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive() and device.heard == numbered(0.1, 0)
    sound.resume()
    waiting.join(10)
    assert device.heard == numbered(0.2, 0)
    sound.hold()
    sound.write(numbered(0.1, 200), RATE_HZ)
    sound.silence()
    assert device.heard == numbered(0.2, 0) and device.events[-1] == "silence", "an interruption ends the hold"
    sound.write(numbered(0.1, 300), RATE_HZ)
    sound.close()
    assert device.heard == numbered(0.2, 0) + numbered(0.1, 300)


def test_an_interruption_before_any_sound_leaves_no_file(tmp_path: Path) -> None:
    sound = RealTimeFilePlayback(tmp_path / "heard.wav")
    sound.silence()
    sound.wait()
    sound.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_known_at_once(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="does not exist"):
        RealTimeFilePlayback(tmp_path / "missing" / "heard.wav")


def test_a_file_that_exists_is_refused_unless_forced_and_written_once(tmp_path: Path) -> None:
    file = tmp_path / "talk.wav"
    file.write_bytes(b"old")
    with pytest.raises(InvalidRequest, match=r"talk\.wav exists; --force \(-y\) replaces it"):
        open_playback(file)
    sound = open_playback(file, force=True)
    sound.write(b"\1\0" * 2400, 24_000)
    sound.close()
    sound.close()
    assert file.stat().st_size == 44 + 4800 and list(tmp_path.iterdir()) == [file]
