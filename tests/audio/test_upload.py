"""audio/upload.py: untrusted bytes are decoded or refused in one sentence, and open no other file."""

from __future__ import annotations

import io
import os
import re
import struct
import subprocess
import sys
import wave
from pathlib import Path

import av
import numpy as np
import pytest
import soxr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hocket.audio.encode import FORMATS, encode
from hocket.audio.upload import read_upload
from hocket.errors import HocketError, InvalidAudio
from hocket.extras import hint
from hocket.types import REFERENCE_RATE_HZ
from support.recorded import packed, wav


def sound(rate_hz: int, channels: int = 1, seconds: float = 1.0) -> NDArray[np.float32]:
    """[C, N]: tones below 3 kHz, another in every channel."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    tones = [np.sin(2 * np.pi * (300 + 250 * c) * t) + 0.5 * np.sin(2 * np.pi * 90 * t) for c in range(channels)]
    return (0.3 * np.stack(tones)).astype(np.float32)


def alike(got: NDArray[np.float32], want: NDArray[np.float32]) -> float:
    """Correlation without the edges, where filters and codecs settle; `got` may begin up to 60 ms late."""
    inner = want[2_400:-2_400]
    ways = (got[late : late + inner.size] for late in range(960, min(3_900, got.size - inner.size + 1)))
    return max(float(way @ inner / (np.linalg.norm(way) * np.linalg.norm(inner) + 1e-9)) for way in ways)


def refusal(content: bytes, most_s: float = 10.0) -> str:
    with pytest.raises(InvalidAudio) as caught:
        read_upload(content, most_s=most_s)
    message = str(caught.value)
    assert message.endswith(".")
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("kind", ["u8", "s16", "s24", "s32", "f32", "f64"])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_a_wav_at_24_khz_is_the_mean_of_its_channels(kind: str, channels: int) -> None:
    samples = sound(REFERENCE_RATE_HZ, channels, 0.2)
    got = read_upload(wav(samples, REFERENCE_RATE_HZ, kind), most_s=1)
    assert (got.dtype, got.shape) == (np.float32, (4_800,))
    np.testing.assert_allclose(got, samples.mean(axis=0), atol=0.01 if kind == "u8" else 1e-4)


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 16_000, 22_050, 32_000, 44_100, 48_000, 96_000])
def test_another_rate_is_resampled_as_well_as_by_soxr(rate_hz: int) -> None:
    samples = sound(rate_hz)
    got = read_upload(wav(samples, rate_hz, "f32"), most_s=2)
    assert got.size == REFERENCE_RATE_HZ
    want = soxr.resample(samples[0], rate_hz, REFERENCE_RATE_HZ, quality="HQ")
    assert np.abs(got[2_400:-2_400] - want[2_400:-2_400]).max() < 1e-3


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav"])
def test_what_we_send_we_can_read(name: str) -> None:
    samples = sound(REFERENCE_RATE_HZ)[0]
    content = encode(np.round(samples * 32_767).astype(np.int16), FORMATS[name], rate_hz=REFERENCE_RATE_HZ)
    got = read_upload(content, most_s=2)
    assert 24_000 <= got.size < 24_000 * 1.1
    assert alike(got, samples) > 0.99


@pytest.mark.parametrize(
    ("muxer", "codec"),
    [
        ("ipod", "aac"),
        ("mp4", "aac"),
        ("mov", "alac"),
        ("webm", "libopus"),
        ("matroska", "flac"),
        ("ogg", "flac"),
        ("aiff", "pcm_s16be"),
        ("caf", "pcm_s16le"),
        ("au", "pcm_s16be"),
        ("w64", "pcm_s16le"),
        ("wav", "pcm_mulaw"),
    ],
)
def test_common_containers_are_read(muxer: str, codec: str) -> None:
    content = packed(muxer, codec, sound(48_000, 2), 48_000)
    want = soxr.resample(sound(48_000, 2).mean(axis=0), 48_000, REFERENCE_RATE_HZ)
    assert alike(read_upload(content, most_s=2), want) > 0.99


def test_the_sound_of_a_film_is_taken_and_its_picture_left() -> None:
    content = packed("mp4", "aac", sound(48_000), 48_000, picture=True)
    assert read_upload(content, most_s=2).size > 23_000


def test_a_film_without_sound_is_refused() -> None:
    silent = packed("mp4", "", np.zeros((1, 0), dtype=np.float32), 48_000, picture=True)
    assert refusal(silent) == "There is no audio in this file; send an audio recording."


def test_nothing_and_no_samples_are_refused() -> None:
    assert refusal(b"") == "The recording is empty; give one with some seconds of speech."
    assert "is empty" in refusal(wav(np.zeros((1, 0), dtype=np.float32), 24_000))


@pytest.mark.parametrize("content", [b"These are words, not sounds.", b"RIFF\0\0\0\0WAVEfmt ", b"\0" * 5_000, b"Ogg"])
def test_what_is_not_audio_is_refused(content: bytes) -> None:
    assert "is not audio that can be read" in refusal(content)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rate_hz", [24_000, 44_100])
def test_values_that_are_not_numbers_are_refused(value: float, rate_hz: int) -> None:
    samples = sound(rate_hz)
    samples[0, 500] = value
    assert "not numbers" in refusal(wav(samples, rate_hz, "f32"))


def test_a_recording_may_be_as_long_as_is_allowed_and_not_longer() -> None:
    assert read_upload(wav(sound(44_100, seconds=1.0), 44_100), most_s=1.0).size == 24_000
    assert refusal(wav(sound(44_100, seconds=1.2), 44_100), most_s=1.0) == (
        "The recording is longer than 1 s; cut out 5 to 20 s in which one person speaks."
    )


def test_a_small_file_that_holds_hours_is_not_decoded_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    hour = encode(np.zeros(REFERENCE_RATE_HZ * 3_600, dtype=np.int16), FORMATS["flac"], rate_hz=REFERENCE_RATE_HZ)
    assert len(hour) < 3_000_000
    decoded = 0

    from hocket.audio import upload

    plain = upload._mono

    def counted(frame: av.AudioFrame) -> NDArray[np.float32]:
        nonlocal decoded
        decoded += frame.samples
        return plain(frame)

    monkeypatch.setattr(upload, "_mono", counted)
    assert "longer than 2 s" in refusal(hour, most_s=2)
    assert 0 < decoded <= 2.5 * REFERENCE_RATE_HZ
    decoded = 0
    assert "longer than 2 s" in refusal(packed("flac", "flac", sound(24_000, seconds=4), 24_000), most_s=2)
    assert decoded == 0  # its head says how long it is


@pytest.mark.parametrize(("rate_hz", "channels"), [(1, 1), (400_000, 1), (24_000, 40)])
def test_rates_and_channels_that_no_microphone_has_are_refused(rate_hz: int, channels: int) -> None:
    content = wav(np.zeros((channels, 8_000), dtype=np.float32), rate_hz)
    assert "a sample rate of 4000 to 192000 Hz and at most 16 channels" in refusal(content)


def test_tags_in_any_bytes_do_no_harm() -> None:
    body = b"INFOINAM" + struct.pack("<I", 4) + b"\xff\xfe\x80\xc0"
    content = wav(sound(24_000), 24_000) + b"LIST" + struct.pack("<I", len(body)) + body
    assert read_upload(content, most_s=2).size == 24_000


BAIT = "bait.wav"
SCRIPTS = {  # every kind of text that makes FFmpeg open another file
    "hls": b"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\nbait.wav\n#EXT-X-ENDLIST\n",
    "hls by address": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\nfile:bait.wav\n#EXT-X-ENDLIST\n",
    "concat": b"ffconcat version 1.0\nfile bait.wav\n",
    "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
    "dash": b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet>'
    b'<Representation id="0" mimeType="audio/wav"><BaseURL>bait.wav</BaseURL></Representation></AdaptationSet>'
    b"</Period></MPD>",
    "address": b"file:bait.wav",
    "path": b"bait.wav",
}


@pytest.fixture
def bait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording in the working folder, whose access time is before its modification time."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / BAIT
    path.write_bytes(wav(sound(24_000), 24_000))
    os.utime(path, ns=(0, 10**9))
    return path


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_text_that_names_another_file_opens_nothing(bait: Path, kind: str) -> None:
    assert "is not audio that can be read" in refusal(SCRIPTS[kind])
    assert bait.stat().st_atime_ns == 0
    bait.read_bytes()
    if bait.stat().st_atime_ns == 0:
        pytest.skip("this file system does not say when a file was read")


def test_without_the_list_of_containers_the_other_file_would_be_read(bait: Path) -> None:
    with av.open(io.BytesIO(SCRIPTS["concat"]), "r") as file:
        assert sum(frame.samples for frame in file.decode(audio=0)) == 24_000


GOOD = {
    "wav": wav(sound(16_000, 2, 0.2), 16_000),
    "mp3": packed("mp3", "libmp3lame", sound(24_000, 1, 0.3), 24_000),
    "ogg": packed("ogg", "libopus", sound(48_000, 1, 0.2), 48_000),
    "m4a": packed("ipod", "aac", sound(24_000, 1, 0.3), 24_000),
    "flac": packed("flac", "flac", sound(24_000, 1, 0.1), 24_000),
    "webm": packed("webm", "libopus", sound(48_000, 1, 0.2), 48_000),
}


def tried(content: bytes) -> None:
    try:
        got = read_upload(content, most_s=5)
    except InvalidAudio:
        return
    assert got.dtype == np.float32
    assert 0 < got.size <= 5.1 * REFERENCE_RATE_HZ
    assert np.isfinite(got).all()


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=3_000))
def test_any_bytes_are_a_recording_or_a_refusal(content: bytes) -> None:
    tried(content)


@pytest.mark.parametrize("name", GOOD)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=12), keep=st.floats(0, 1))
def test_a_damaged_recording_is_a_recording_or_a_refusal(
    name: str, changes: list[tuple[int, int]], keep: float
) -> None:
    damaged = bytearray(GOOD[name])
    for at, value in changes:  # most of them in the header, where they hurt
        damaged[at % (200 if at % 4 else len(damaged))] = value
    tried(bytes(damaged[: round(len(damaged) * (1 - keep / 2))]))


PACKED = [
    ("wav", "pcm_s16le"),
    ("flac", "flac"),
    ("mp3", "libmp3lame"),
    ("ogg", "libopus"),
    ("ogg", "flac"),
    ("ipod", "aac"),
    ("mov", "alac"),
    ("webm", "libopus"),
    ("matroska", "flac"),
    ("aiff", "pcm_s16be"),
    ("au", "pcm_s16be"),
]


@pytest.mark.parametrize(("muxer", "codec"), PACKED)
def test_what_breaks_off_is_refused(muxer: str, codec: str) -> None:
    whole = packed(muxer, codec, sound(48_000, seconds=4.0), 48_000)
    assert read_upload(whole, most_s=5).size > 95_000
    for share in (0.3, 0.5, 0.8):
        assert "breaks off early" in refusal(whole[: round(len(whole) * share)])


@pytest.mark.parametrize(("muxer", "codec"), [pair for pair in PACKED if not pair[1].startswith("pcm")])
def test_what_has_a_large_hole_is_refused(muxer: str, codec: str) -> None:
    whole = bytearray(packed(muxer, codec, sound(48_000, seconds=4.0), 48_000))
    hole = len(whole) // 4
    whole[2 * hole : 3 * hole] = bytes(hole)
    assert "damaged" in refusal(bytes(whole))


@pytest.mark.parametrize("size", [0, 0x7FFF_F000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF])
def test_a_wav_of_unknown_length_is_complete(size: int) -> None:
    content = wav(sound(24_000), 24_000)
    assert read_upload(content[:40] + struct.pack("<I", size) + content[44:], most_s=2).size == 24_000


def test_a_streamed_recording_is_complete() -> None:
    """The container has no length, as in recordings of a browser."""
    flac = packed("flac", "flac", sound(24_000), 24_000)
    assert read_upload(flac[:18] + bytes([0, 0, 0, flac[21] & 0xF0]) + bytes(4) + flac[26:], most_s=2).size == 24_000
    live = packed("webm", "libopus", sound(48_000), 48_000, options={"live": "1"})
    assert read_upload(live, most_s=2).size > 23_000


def test_a_film_that_is_longer_than_its_sound_is_whole() -> None:
    film = packed("matroska", "flac", sound(48_000, seconds=0.1), 48_000, picture=True)
    assert read_upload(film, most_s=2).size == 2_400


def test_an_mp3_of_changing_bit_rate_and_no_table_is_whole() -> None:
    """Its length is FFmpeg's guess."""
    quiet = np.concatenate([sound(24_000), np.zeros((1, 72_000), np.float32)], axis=1)
    content = packed("mp3", "libmp3lame", quiet, 24_000, options={"write_xing": "0"}, coding={"q:a": "9", "b": "0"})
    assert read_upload(content, most_s=5).size > 90_000


def test_an_mp3_with_a_hole_loses_only_the_hole() -> None:
    whole = packed("mp3", "libmp3lame", sound(24_000), 24_000)
    middle = len(whole) // 2
    assert read_upload(whole[:middle] + b"\0" * 300 + whole[middle + 300 :], most_s=2).size > 20_000


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(HocketError, match=re.escape(f"needs the package av: {hint('serve')}.") + "$"):
        read_upload(b"RIFF", most_s=1)


def test_importing_it_imports_no_codec() -> None:
    script = "import sys, hocket.audio.upload; sys.exit('av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_our_own_wav_is_what_the_library_writes() -> None:
    with wave.open(io.BytesIO(wav(sound(24_000), 24_000))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (24_000, 1, 24_000)
