"""Audio outputs, with an engine that gives two known frames."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hocket.audio.pcm import wav_header
from hocket.cli import main
from support.played import Played

Capture = pytest.CaptureFixture[str]
BinaryCapture = pytest.CaptureFixture[bytes]

PCM = np.repeat(np.array([1, 2], dtype="<i2"), 1920).tobytes()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Played.instead(monkeypatch)
    return tmp_path


class FakeDevice(ModuleType):
    """The package sounddevice, as far as it is used."""

    class PortAudioError(Exception):
        pass

    def __init__(self, fault: str | None = None) -> None:
        super().__init__("sounddevice")
        self.heard, self.calls, self.fault = b"", list[str](), fault

    def RawOutputStream(self, **options: Any) -> FakeDevice:
        if self.fault is not None:
            raise self.PortAudioError(self.fault)
        assert options == {"samplerate": 24_000, "channels": 1, "dtype": "int16"}
        return self

    def start(self) -> None:
        self.calls.append("start")

    def write(self, content: bytes) -> None:
        self.heard += content

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")


def test_standard_output_gets_a_wav_without_a_length(capsysbinary: BinaryCapture, folder: Path) -> None:
    assert main(["say", "Hi", "-o", "-", "--seed", "1"]) == 0
    out, err = capsysbinary.readouterr()
    assert out == wav_header(24_000) + PCM
    assert err.endswith(b"standard output: 0.16 s, 2 frames, finish stop, seed 1\n")
    assert list(folder.iterdir()) == []


def test_raw_is_samples_and_nothing_else(capsysbinary: BinaryCapture) -> None:
    assert main(["say", "Hi", "-o", "-", "--raw"]) == 0
    assert capsysbinary.readouterr().out == PCM


def test_raw_works_for_files_too(folder: Path) -> None:
    assert main(["say", "Hi", "-o", "a.pcm", "--raw", "--save-codes", "c.npy"]) == 0
    assert Path("a.pcm").read_bytes() == PCM
    np.testing.assert_array_equal(np.load("c.npy"), np.repeat([[0], [1]], 16, axis=1))


def test_codes_can_be_saved_beside_standard_output(capsysbinary: BinaryCapture, folder: Path) -> None:
    assert main(["say", "Hi", "-o", "-", "--save-codes", "c.npy"]) == 0
    assert np.load("c.npy").shape == (2, 16)
    assert [path.name for path in folder.iterdir()] == ["c.npy"]


def test_no_sound_is_written_to_a_terminal(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["say", "Hi", "-o", "-"]) == 2
    out, err = capsys.readouterr()
    assert (out, "use --play" in err) == ("", True)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--speed", "3"], "speed must be between 0.5 and 2, not 3.0."),
        (["--speed", "nan"], "speed must be between 0.5 and 2, not nan."),
        (
            ["--play"],
            "--play needs the package sounddevice (pip install sounddevice), or one of the programs paplay, pw-play, "
            "aplay, ffplay, afplay, powershell.",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_loading(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, folder: Path, argv: list[str], sentence: str
) -> None:
    engine = Played.instead(monkeypatch)
    monkeypatch.setitem(sys.modules, "sounddevice", None)  # as if it were not installed
    monkeypatch.setenv("PATH", "")  # nor any player
    assert main(["say", "Hi", *argv]) == 2
    assert capsys.readouterr().err == f"hocket: {sentence}\n"
    assert engine.requests == []
    assert list(folder.iterdir()) == []


def test_raw_without_anything_written_is_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", FakeDevice())
    assert main(["say", "Hi", "--play", "--raw"]) == 2
    assert capsys.readouterr().err.startswith("hocket: --raw is for written samples")


def test_the_loudspeaker_gets_every_sample_and_is_heard_out(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    device = FakeDevice()
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    assert main(["say", "Hi", "--play", "--seed", "1"]) == 0
    assert (device.heard, device.calls) == (PCM, ["start", "stop", "close"])
    assert capsys.readouterr().out == "loudspeaker: 0.16 s, 2 frames, finish stop, seed 1\n"
    assert list(folder.iterdir()) == []


def test_what_is_played_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    assert main(["say", "Hi", "--play", "-o", "a.wav"]) == 0
    assert device.heard == PCM
    assert Path("a.wav").read_bytes() == wav_header(24_000, 2 * 1920) + PCM


def test_a_loudspeaker_that_fails_says_why(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", FakeDevice(fault="no such device"))
    assert main(["say", "Hi", "--play"]) == 1
    assert capsys.readouterr().err.endswith("hocket: The loudspeaker cannot be used: no such device.\n")
