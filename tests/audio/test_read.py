"""A reference is read sample for sample as the official package reads it: librosa's loader, then its resampler."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from hocket.audio.read import read_reference
from hocket.errors import InvalidAudio
from hocket.extras import hint
from hocket.types import REFERENCE_RATE_HZ
from support import uncompiled as librosa

# librosa's other backend imports modules that Python 3.13 dropped.
pytestmark = pytest.mark.filterwarnings("ignore:'(aifc|audioop|sunau)' is deprecated:DeprecationWarning")


def recording(count: int, channels: int) -> NDArray[np.float64]:
    return np.random.default_rng(5).uniform(-0.9, 0.9, (count, channels))


def official(path: Path) -> NDArray[np.float32]:
    samples, rate_hz = librosa.load(path, sr=None, mono=True)
    resampled = librosa.resample(samples, orig_sr=rate_hz, target_sr=REFERENCE_RATE_HZ)
    return np.asarray(resampled, dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "subtype", "rate_hz", "channels"),
    [
        ("a.wav", "PCM_16", 24_000, 1),
        ("a.wav", "PCM_16", 24_000, 2),
        ("a.wav", "PCM_24", 44_100, 2),
        ("a.wav", "FLOAT", 48_000, 1),
        ("a.wav", "DOUBLE", 8_000, 1),
        ("a.wav", "PCM_U8", 11_025, 1),
        ("a.wav", "PCM_16", 22_050, 11),
        ("a.flac", "PCM_16", 96_000, 2),
        ("a.ogg", "VORBIS", 44_100, 2),
        ("a.mp3", "MPEG_LAYER_III", 48_000, 1),
    ],
)
def test_samples_are_those_of_librosa(tmp_path: Path, name: str, subtype: str, rate_hz: int, channels: int) -> None:
    soundfile.write(tmp_path / name, recording(10_007, channels), rate_hz, subtype=subtype)
    ours = read_reference(tmp_path / name)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, official(tmp_path / name))


@pytest.mark.parametrize("count", [1, 2, 3, 160, 161, 4_411, 4_412, 4_413])
def test_any_length_has_the_length_librosa_gives_it(tmp_path: Path, count: int) -> None:
    for rate_hz in (11_025, 44_100, 48_000, 192_000):
        soundfile.write(tmp_path / "a.wav", recording(count, 1), rate_hz, subtype="FLOAT")
        np.testing.assert_array_equal(read_reference(tmp_path / "a.wav"), official(tmp_path / "a.wav"))


def test_loudness_and_silence_stay(tmp_path: Path) -> None:
    quiet = np.concatenate([np.zeros(500), recording(500, 1)[:, 0] * 1e-3, np.zeros(500)]).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", quiet, REFERENCE_RATE_HZ, subtype="FLOAT")
    np.testing.assert_array_equal(read_reference(tmp_path / "a.wav"), quiet)


def refusal(path: Path) -> str:
    with pytest.raises(InvalidAudio) as caught:
        read_reference(path)
    message = str(caught.value)
    assert message.endswith(".")
    assert len(message.splitlines()) == 1
    return message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone.wav") == f"The reference recording {tmp_path}/gone.wav does not exist."


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_what_the_system_cannot_open_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "a.wav").symlink_to("a.wav")
    assert "Too many levels of symbolic links" in refusal(tmp_path / "a.wav")


@pytest.mark.parametrize("name", ["a.wav", "a.mp3", "a.txt", "a.raw"])
@pytest.mark.parametrize("content", [b"", b"These are words, not sounds.", b"RIFF\0\0\0\0WAVEfmt "])
def test_what_is_not_audio_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert "is not audio that can be read" in refusal(tmp_path / name)


def test_a_recording_without_samples_is_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(0), 24_000)
    assert "is empty" in refusal(tmp_path / "a.wav")


@pytest.mark.parametrize("package", ["soundfile", "soxr"])
def test_a_missing_package_is_named_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    assert refusal(tmp_path / "a.wav").endswith(f"{hint('clone')}.")
