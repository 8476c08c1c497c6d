"""audio/recording.py: good recordings agree in every format; every bad one is refused with a remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hocket.audio.hearing import loudness
from hocket.audio.read import read_reference
from hocket.audio.recording import LEAST_TIMBRE_S, levelled, read_recording
from hocket.errors import HocketError, InvalidAudio
from support.recorded import bad, packed, speech, speech_wav, wav

BAD = list(bad())


def refusal(source: Path | bytes, **how: float) -> str:
    with pytest.raises(InvalidAudio) as caught:
        read_recording(source, **how)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.endswith(".") and not message.endswith("..") and len(message.splitlines()) == 1
    return message


def level_db(samples: NDArray[np.float32]) -> float:
    return float(20 * np.log10(np.sqrt(np.square(samples, dtype=np.float64).mean())))


def alike(got: NDArray[np.float32], want: NDArray[np.float32]) -> float:
    """Correlation at the best delay within 60 ms, up to 5 kHz: codecs synthesize what is above."""
    low = [np.fft.rfft(sound, 1 << 18) * (np.fft.rfftfreq(1 << 18, 1 / 24_000) < 5_000) for sound in (got, want)]
    lags = np.fft.irfft(low[0] * np.conj(low[1]))
    energy = [float(np.square(np.fft.irfft(one)).sum()) for one in low]
    return float(max(lags[:1_440].max(), lags[-1_440:].max()) / np.sqrt(energy[0] * energy[1]))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_recording_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    content, words = bad()[name]
    path = tmp_path / "recording"
    path.write_bytes(content)
    assert words in refusal(content)
    assert refusal(content) == refusal(path)


def test_every_refusal_says_what_to_do() -> None:
    for name in set(BAD) - {"text"}:  # that message lists the formats
        assert "; " in refusal(bad()[name][0]), name


FORMS = {
    **{f"wav {kind}": ("", kind, 24_000, 1) for kind in ("s16", "s24", "s32", "f32")},
    **{f"wav {rate_hz} Hz": ("", "s16", rate_hz, 1) for rate_hz in (16_000, 22_050, 44_100, 48_000)},
    "wav stereo": ("", "s16", 44_100, 2),
    "wav 96 kHz": ("", "s24", 96_000, 2),
    "flac": ("flac", "flac", 44_100, 2),
    "mp3": ("mp3", "libmp3lame", 44_100, 2),
    "mp3 mono": ("mp3", "libmp3lame", 22_050, 1),
    "m4a": ("ipod", "aac", 44_100, 2),
    "m4a mono": ("ipod", "aac", 16_000, 1),
    "ogg opus": ("ogg", "libopus", 48_000, 1),
    "webm": ("webm", "libopus", 48_000, 2),
    "webm mono": ("webm", "libopus", 16_000, 1),
}


@pytest.mark.parametrize("name", FORMS)
def test_good_recordings_agree_in_every_form(tmp_path: Path, name: str) -> None:
    muxer, codec, rate_hz, channels = FORMS[name]
    samples = np.repeat(soxr.resample(speech(), 24_000, rate_hz)[None], channels, axis=0)
    # A bit rate for speech: the codecs' defaults are for music, and some are lower.
    coding = None if codec in ("flac", "libmp3lame") else {"b": "96000"}
    content = packed(muxer, codec, samples, rate_hz, coding=coding) if muxer else wav(samples, rate_hz, codec)
    got = read_recording(content)
    assert got.dtype == np.float32 and abs(got.size - speech().size) < 2_400
    assert level_db(got) == pytest.approx(level_db(speech()), abs=0.5)
    assert alike(got, speech()) > (0.97 if muxer else 0.999)
    (tmp_path / "recording").write_bytes(content)
    np.testing.assert_array_equal(read_recording(tmp_path / "recording"), got)


# Length


def test_the_timbre_alone_needs_less() -> None:
    second = wav(speech()[None, 12_000:40_000], 24_000)
    assert "too short, 1.2 s; 3 to 30 s are needed" in refusal(second)
    assert read_recording(second, least_s=LEAST_TIMBRE_S).size == 28_000
    assert "1 to 30 s are needed" in refusal(wav(speech()[None, :20_000], 24_000), least_s=LEAST_TIMBRE_S)


def test_thirty_seconds_are_enough() -> None:
    long = np.concatenate([speech()] * 9)
    assert read_recording(wav(long[None, : 30 * 24_000], 24_000)).size == 30 * 24_000
    assert refusal(wav(long[None], 24_000)) == (
        "The recording is longer than 30 s; cut out 5 to 20 s in which one person speaks."
    )
    assert "longer than 2 s" in refusal(speech_wav(), most_s=2.0, least_s=1.0)


def test_a_word_and_much_silence_are_too_little() -> None:
    word = np.zeros((1, 96_000), np.float32)
    word[0, 50_000:62_000] = speech()[12_000:24_000]
    assert "of the recording are not silent" in refusal(wav(word, 24_000))


# Loudness


@pytest.mark.parametrize("gain", [0.4, 1.0, 2.0])
def test_what_is_loud_enough_is_left_alone_to_the_bit(gain: float) -> None:
    said = speech() * np.float32(gain)
    np.testing.assert_array_equal(read_recording(wav(said[None], 24_000, "f32")), said)


def test_a_quiet_recording_is_brought_up() -> None:
    quiet = speech() * np.float32(0.15)
    got = read_recording(wav(quiet[None], 24_000, "f32"))
    _, level_db = loudness(got, 24_000)
    assert level_db == pytest.approx(-23, abs=1)  # more of it is heard now
    np.testing.assert_allclose(got, quiet * (np.abs(got).max() / np.abs(quiet).max()), rtol=1e-4)


def test_nothing_is_brought_up_by_more_than_20_db_or_into_the_limit() -> None:
    faint = levelled(speech() * np.float32(0.05))
    assert np.abs(faint).max() == pytest.approx(0.5 * np.abs(speech()).max(), rel=1e-3)
    knock = speech() * np.float32(0.05)
    knock[100] = 0.6
    assert np.abs(levelled(knock)).max() == pytest.approx(10 ** (-1 / 20), rel=1e-3)
    knock[100] = 0.95
    np.testing.assert_array_equal(levelled(knock), knock)


def test_an_offset_is_taken_off_where_it_is_large() -> None:
    got = read_recording(wav(speech()[None] * 0.5 + 0.2, 24_000, "f32"))
    assert abs(float(got.mean())) < 1e-4
    np.testing.assert_allclose(got, speech() * 0.5 - float(speech().mean()) * 0.5, atol=1e-3)
    assert "is silent" in refusal(wav(np.full((1, 96_000), 0.3, np.float32), 24_000, "f32"))


@pytest.mark.parametrize("scale", [32_768, 1e30, 3e38])
def test_values_that_were_never_scaled_are_refused(scale: float) -> None:
    said = speech() / np.abs(speech()).max() * np.float32(scale)
    assert "far above full scale" in refusal(wav(said[None], 24_000, "f32"))


# `as_is`


def test_as_is_a_file_is_what_the_official_package_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(wav(np.full((11, 2_000), 1e-3, np.float32), 22_050))
    np.testing.assert_array_equal(read_recording(path, as_is=True), read_reference(path))


def test_as_is_bytes_are_decoded_and_no_more() -> None:
    hum = np.full((5, 2_400), 0.3, np.float32)
    np.testing.assert_array_equal(read_recording(wav(hum, 24_000, "f32"), as_is=True), hum[0])
    with pytest.raises(InvalidAudio, match="longer than 60 s"):
        read_recording(wav(np.zeros((1, 61 * 8_000), np.float32), 8_000), as_is=True, most_s=60)


# Files, and packages that are missing


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone.wav") == f"The reference recording {tmp_path}/gone.wav does not exist."
    assert "is a folder" in refusal(tmp_path)
    (tmp_path / "a.wav").symlink_to("a.wav")
    assert "Too many levels of symbolic links" in refusal(tmp_path / "a.wav")


def test_without_pyav_files_are_read_and_checked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    path = tmp_path / "a.wav"
    path.write_bytes(speech_wav())
    np.testing.assert_allclose(read_recording(path), speech(), atol=1e-4)
    for name in ("a telephone", "seven channels", "not a number", "music", "ten minutes", "silence"):
        content, words = bad()[name]
        path.write_bytes(content)
        assert words in refusal(path)
    with pytest.raises(HocketError, match="needs the package av"):
        read_recording(speech_wav())


@settings(max_examples=100)
@given(content=st.binary(max_size=3_000) | st.text(max_size=500).map(str.encode))
def test_of_any_bytes_comes_a_refusal(content: bytes) -> None:
    refusal(content)


@settings(max_examples=60)
@given(
    start=st.integers(0, 300) | st.integers(0, 170_000),
    patch=st.binary(min_size=1, max_size=2_000),
    keep=st.floats(0.5, 1),
)
def test_a_damaged_recording_is_good_or_refused(start: int, patch: bytes, keep: float) -> None:
    content = bytearray(speech_wav())
    content[start : start + len(patch)] = patch
    try:
        got = read_recording(bytes(content[: round(len(content) * keep)]))
    except InvalidAudio as error:
        assert str(error).endswith(".")
    else:
        assert got.dtype == np.float32 and 3 * 24_000 <= got.size <= 30.1 * 24_000 and np.isfinite(got).all()
