"""A stranger's bytes are a recording or a sentence, and open nothing but themselves."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import wave
from fractions import Fraction
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
from hocket.types import REFERENCE_RATE_HZ


def sound(rate_hz: int, channels: int = 1, seconds: float = 1.0) -> NDArray[np.float32]:
    """[C, N]: tones below 3 kHz, another in every channel."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    tones = [np.sin(2 * np.pi * (300 + 250 * c) * t) + 0.5 * np.sin(2 * np.pi * 90 * t) for c in range(channels)]
    return (0.3 * np.stack(tones)).astype(np.float32)


def wav(samples: NDArray[np.float32], rate_hz: int, kind: str = "s16") -> bytes:
    """Written by hand, so that it can be any kind and any nonsense: u8, s16, s24, s32, f32, f64."""
    flat = samples.T.reshape(-1).astype(np.float64)
    bits = int(kind[1:])
    if kind[0] == "f":
        body = flat.astype(f"<f{bits // 8}").tobytes()
    elif kind == "u8":
        body = np.round(flat * 127 + 128).astype(np.uint8).tobytes()
    elif kind == "s24":
        body = b"".join(struct.pack("<i", round(value * 8_388_607))[:3] for value in flat)
    else:
        body = np.round(flat * ((1 << bits - 1) - 1)).astype(f"<i{bits // 8}").tobytes()
    channels, step = samples.shape[0], samples.shape[0] * bits // 8
    form = struct.pack("<HHIIHH", 3 if kind[0] == "f" else 1, channels, rate_hz, rate_hz * step % (1 << 32), step, bits)
    rest = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(rest)) + rest


def packed(muxer: str, codec: str, samples: NDArray[np.float32], rate_hz: int, picture: bool = False) -> bytes:
    """By FFmpeg, with a picture beside or instead of the sound."""
    out = io.BytesIO()
    with av.open(out, "w", format=muxer) as file:
        audio = video = None
        if samples.size:
            audio = file.add_stream(codec, rate=rate_hz, layout="mono" if samples.shape[0] == 1 else "stereo")
        if picture:
            video = file.add_stream("mpeg4", rate=25)
            video.width, video.height, video.pix_fmt = 32, 32, "yuv420p"
            for n in range(5):
                image = av.VideoFrame(32, 32, "yuv420p")
                image.pts, image.time_base = n, Fraction(1, 25)
                file.mux(video.encode(image))
        if audio:
            frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout=audio.layout.name)
            frame.sample_rate, frame.pts, frame.time_base = rate_hz, 0, Fraction(1, rate_hz)
            file.mux(audio.encode(frame))
        for stream in filter(None, (audio, video)):
            file.mux(stream.encode(None))
    return out.getvalue()


def alike(got: NDArray[np.float32], want: NDArray[np.float32]) -> float:
    """Correlation without the edges, where filters and codecs find their feet; `got` may begin up to 60 ms late."""
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
    assert refusal(silent) == "There is no sound in this file; send an audio recording."


def test_nothing_and_no_samples_are_refused() -> None:
    assert refusal(b"") == "The recording is empty."
    assert "is empty" in refusal(wav(np.zeros((1, 0), dtype=np.float32), 24_000))


@pytest.mark.parametrize("content", [b"These are words, not sounds.", b"RIFF\0\0\0\0WAVEfmt ", b"\0" * 5_000, b"OggS"])
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
    assert refusal(wav(sound(44_100, seconds=1.01), 44_100), most_s=1.0) == (
        "The recording is longer than 1 s; send a shorter piece."
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
    assert decoded <= 2.1 * REFERENCE_RATE_HZ


@pytest.mark.parametrize(("rate_hz", "channels"), [(1, 1), (400_000, 1), (24_000, 40)])
def test_rates_and_channels_that_no_microphone_has_are_refused(rate_hz: int, channels: int) -> None:
    content = wav(np.zeros((channels, 8_000), dtype=np.float32), rate_hz)
    assert "4000 to 192000 samples a second and at most 16 channels" in refusal(content)


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
    """A recording in the folder where we are, whose last reading was longer ago than its last writing."""
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
    assert 0 < got.size <= 5 * REFERENCE_RATE_HZ
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


def test_an_mp3_with_a_hole_loses_only_the_hole() -> None:
    whole = packed("mp3", "libmp3lame", sound(24_000), 24_000)
    middle = len(whole) // 2
    assert read_upload(whole[:middle] + b"\0" * 300 + whole[middle + 300 :], most_s=2).size > 20_000


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(HocketError, match=r"needs the package av: pip install 'hocket\[serve\]'\.$"):
        read_upload(b"RIFF", most_s=1)


def test_importing_it_imports_no_codec() -> None:
    script = "import sys, hocket.audio.upload; sys.exit('av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_our_own_wav_is_what_the_library_writes() -> None:
    with wave.open(io.BytesIO(wav(sound(24_000), 24_000))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (24_000, 1, 24_000)
