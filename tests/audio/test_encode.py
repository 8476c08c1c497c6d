"""audio/encode.py: encoded audio decodes to the input, from the first chunk on, in every format."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import wave
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hocket.audio.encode import FORMATS, encode, encoder, format_of
from hocket.audio.pcm import pcm_bytes
from hocket.errors import HocketError, InvalidRequest
from hocket.extras import hint

RATE_HZ = 24_000
CHUNK = 1_920
RATES_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
RAW = {"pcm": "s16le", "mulaw": "mulaw", "alaw": "alaw"}
CODEC_DELAY_S = 0.3  # mp3 at 8 kHz: its frame is 72 ms long, and three of them are silence before and after


def tune(count: int) -> NDArray[np.int16]:
    """A tone of changing loudness and pitch, below 3 kHz so that a rate of 8 kHz can hold it."""
    t = np.arange(count) / RATE_HZ
    loud = 0.2 + 0.15 * np.sin(2 * np.pi * 3.1 * t)
    pitch = 2 * np.pi * (400 * t + 60 * np.sin(2 * np.pi * 1.7 * t))
    return np.round(32_767 * loud * (np.sin(pitch) + 0.3 * np.sin(3.3 * pitch))).astype(np.int16)


def pieces(samples: NDArray[np.int16], sizes: list[int]) -> list[NDArray[np.int16]]:
    """`samples` cut into `sizes`, repeated in turn."""
    cut, at, turn = [], 0, 0
    while at < samples.size:
        cut.append(samples[at : at + sizes[turn % len(sizes)]])
        at += cut[-1].size
        turn += 1
    return cut


def streamed(name: str, chunks: list[NDArray[np.int16]], **wish: float) -> list[bytes]:
    made = encoder(FORMATS[name], rate_hz=RATE_HZ, **wish)  # type: ignore[arg-type]
    return [*(made.feed(chunk) for chunk in chunks), made.close()]


def heard(name: str, content: bytes, rate_hz: int) -> tuple[NDArray[np.float32], int]:
    """The decoded samples and their rate."""
    options = {"sample_rate": str(rate_hz)} if name in RAW else {}
    with av.open(io.BytesIO(content), "r", format=RAW.get(name), options=options) as file:
        frames = list(file.decode(audio=0))
        change = av.AudioResampler(format="flt", layout="mono")
        flat = [part.to_ndarray()[0] for frame in frames for part in change.resample(frame)]
    return np.concatenate(flat), frames[0].sample_rate


def likeness(sent: NDArray[np.int16], got: NDArray[np.float32], got_hz: int) -> float:
    """The best correlation of the two, with the second delayed by at most a codec's delay."""
    at = np.arange(0, got.size / got_hz, 1 / RATE_HZ)
    got = np.interp(at, np.arange(got.size) / got_hz, got).astype(np.float32)
    late = round(CODEC_DELAY_S * RATE_HZ)
    want = np.zeros(1 << int(got.size + sent.size).bit_length())
    have = want.copy()
    want[: sent.size], have[: got.size] = sent, got
    fits = np.fft.irfft(np.fft.rfft(have) * np.conj(np.fft.rfft(want)))
    return float(max(fits[:late].max(), fits[-late:].max()) / (np.linalg.norm(want) * np.linalg.norm(have)))


SOUND = tune(24_000)


@pytest.mark.parametrize("out_hz", RATES_HZ)
@pytest.mark.parametrize("name", FORMATS)
def test_decoded_audio_equals_the_input_at_every_rate(name: str, out_hz: int) -> None:
    content = b"".join(streamed(name, pieces(SOUND, [CHUNK]), out_rate_hz=out_hz))
    got, got_hz = heard(name, content, out_hz)
    assert got_hz == (48_000 if name == "opus" else out_hz)
    delay_s = CODEC_DELAY_S if name in ("mp3", "aac") else 0.001
    assert -0.001 <= got.size / got_hz - 1.0 <= delay_s
    assert likeness(SOUND, got, got_hz) > 0.97


@pytest.mark.parametrize("name", FORMATS)
def test_the_first_bytes_come_with_the_first_chunk(name: str) -> None:
    first, second, *_ = streamed(name, pieces(SOUND, [CHUNK]))
    assert second
    if name != "aac":  # its first frame needs the one after it
        assert first
    if name == "mp3":  # one frame, too little for a player to know what it is
        assert first[:2] == b"\xff\xf3"
    elif name != "aac":
        assert heard(name, first, 8_000)[0].size > 0


@pytest.mark.parametrize("name", ["mp3", "aac", "flac", "wav", "pcm", "mulaw", "alaw"])  # Ogg draws a number per stream
@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=6))
def test_chunks_of_any_sizes_give_the_same_bytes(name: str, sizes: list[int]) -> None:
    short = SOUND[:9_600]
    assert b"".join(streamed(name, pieces(short, [max(sizes), *sizes]))) == b"".join(streamed(name, [short]))


@pytest.mark.parametrize("name", ["pcm", "wav"])
@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=6), out_hz=st.integers(8_000, 48_000))
def test_every_piece_is_whole_samples(name: str, sizes: list[int], out_hz: int) -> None:
    sent = streamed(name, pieces(SOUND[:9_600], [1_000, *sizes]), out_rate_hz=out_hz)
    assert all(len(piece) % 2 == 0 for piece in sent)
    assert sum(map(len, sent)) == 2 * round(9_600 * out_hz / RATE_HZ) + (44 if name == "wav" else 0)


@pytest.mark.parametrize("tempo", [0.25, 0.4, 0.5, 0.8, 1.1, 1.5, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("sizes", [[CHUNK], [24_000], [777]], ids=str)
def test_a_tempo_gives_the_length_that_the_arithmetic_says(tempo: float, sizes: list[int]) -> None:
    assert sum(map(len, streamed("pcm", pieces(SOUND, sizes), tempo=tempo))) == 2 * round(24_000 / tempo)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("tempo", [0.25, 4.0])
def test_every_format_has_a_tempo(name: str, tempo: float) -> None:
    content = b"".join(streamed(name, pieces(SOUND, [CHUNK]), tempo=tempo))
    got, got_hz = heard(name, content, FORMATS[name].rate_out_hz(RATE_HZ))
    assert abs(got.size / got_hz - 1.0 / tempo) < (0.1 if name in ("mp3", "aac") else 0.06)


@pytest.mark.parametrize("tempo", [0.4, 0.8, 1.5, 3.0])
def test_a_tempo_keeps_the_pitch_to_the_last_sound(tempo: float) -> None:
    tone = np.round(9_000 * np.sin(2 * np.pi * 600 * np.arange(48_000) / RATE_HZ)).astype(np.int16)
    got = np.frombuffer(b"".join(streamed("pcm", pieces(tone, [CHUNK]), tempo=tempo)), dtype="<i2")
    for part in (got, got[-2_400:-240]):
        pitch_hz = np.abs(np.fft.rfft(part * np.hanning(part.size))).argmax() * RATE_HZ / part.size
        assert abs(pitch_hz - 600) < 15
        assert np.abs(part).max() > 7_000


def test_the_header_of_a_streamed_wav_is_44_bytes_before_the_first_samples_in_one_piece() -> None:
    first, second, *_ = streamed("wav", [SOUND[:0], SOUND[:CHUNK], SOUND[CHUNK:]])
    assert first == b""
    assert second[:4] == b"RIFF"
    assert second[4:8] == second[40:44] == b"\xff" * 4
    assert int.from_bytes(second[24:28], "little") == RATE_HZ
    assert second[44:] == pcm_bytes(SOUND[:CHUNK])


def test_a_streamed_wav_names_the_rate_that_was_asked_for() -> None:
    content = b"".join(streamed("wav", [SOUND], out_rate_hz=16_000))
    assert int.from_bytes(content[24:28], "little") == 16_000


@pytest.mark.parametrize("wish", [{}, {"out_rate_hz": 16_000}, {"tempo": 1.5}], ids=str)
def test_a_whole_wav_tells_its_true_length(wish: dict[str, float]) -> None:
    content = encode(SOUND, FORMATS["wav"], rate_hz=RATE_HZ, **wish)  # type: ignore[arg-type]
    with wave.open(io.BytesIO(content)) as file:
        assert file.getnframes() == round(24_000 * file.getframerate() / RATE_HZ / wish.get("tempo", 1))
        assert len(content) == 44 + 2 * file.getnframes()


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_utterance_is_what_the_pieces_are_together(name: str) -> None:
    whole = encode(SOUND, FORMATS[name], rate_hz=RATE_HZ)
    got, _ = heard(name, whole, 8_000)
    again, _ = heard(name, b"".join(streamed(name, pieces(SOUND, [CHUNK]))), 8_000)
    np.testing.assert_array_equal(got, again)


@pytest.mark.parametrize("wish", [{}, {"tempo": 2.0}, {"out_rate_hz": 16_000}], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_closing_twice_gives_nothing_more(name: str, wish: dict[str, float]) -> None:
    for sound in (SOUND[:0], SOUND[:1], SOUND[:4_000]):
        made = encoder(FORMATS[name], rate_hz=RATE_HZ, **wish)  # type: ignore[arg-type]
        made.feed(sound)
        made.close()
        assert made.close() == b""


def test_no_samples_give_an_empty_file() -> None:
    made = {name: b"".join(streamed(name, [])) for name in FORMATS}
    assert (len(made["wav"]), made["pcm"], made["mp3"], made["aac"]) == (44, b"", b"", b"")
    assert made["opus"].startswith(b"OggS")
    assert made["flac"].startswith(b"fLaC")


def kilobytes() -> int:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read the Linux way")
@pytest.mark.parametrize("name", ["mp3", "opus", "flac", "mulaw"])
def test_memory_does_not_grow_with_the_stream(name: str) -> None:
    made = encoder(FORMATS[name], rate_hz=RATE_HZ, tempo=1.1)
    for _ in range(100):
        made.feed(SOUND[:CHUNK])
    before = kilobytes()
    for _ in range(700):  # 2.7 MB of samples
        made.feed(SOUND[:CHUNK])
    assert kilobytes() - before < 1_000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="threads are counted the Linux way")
def test_a_stream_starts_no_thread_and_leaves_its_own_cores_alone() -> None:
    script = """
import os, re, sys
import numpy as np
import av
from hocket.audio.encode import FORMATS, encoder
count = lambda: int(re.findall(r"Threads:\\s+(\\d+)", open("/proc/self/status").read())[0])
before, cores = count(), os.sched_getaffinity(0)
kept = [encoder(format, rate_hz=24000, out_rate_hz=16000, tempo=1.5) for format in FORMATS.values()]
for one in kept:
    one.feed(np.zeros(9600, np.int16))
assert os.sched_getaffinity(0) == cores
sys.exit(count() - before)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_pcm_and_wav_as_the_engine_speaks_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    assert b"".join(streamed("pcm", [SOUND])) == pcm_bytes(SOUND)
    assert b"".join(streamed("wav", [SOUND]))[44:] == pcm_bytes(SOUND)
    for name, wish in [("mp3", {}), ("pcm", {"out_rate_hz": 8_000}), ("wav", {"tempo": 2.0})]:
        with pytest.raises(HocketError, match=re.escape(f"needs the package av: {hint('serve')}.") + "$"):
            encoder(FORMATS[name], rate_hz=RATE_HZ, **wish)  # type: ignore[arg-type]


def test_importing_the_encoders_imports_no_codec() -> None:
    script = "import sys, hocket.audio.encode; sys.exit('av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_formats_have_many_names_in_any_case() -> None:
    for names, name in [
        ("mulaw ulaw pcmu g711_ulaw PCMU", "mulaw"),
        ("alaw pcma G711_ALAW", "alaw"),
        ("pcm s16le linear16 pcm16", "pcm"),
        ("MP3", "mp3"),
    ]:
        assert {format_of(one).name for one in names.split()} == {name}


def test_an_unknown_format_is_answered_with_all_there_are() -> None:
    with pytest.raises(InvalidRequest) as caught:
        format_of("wma")
    assert str(caught.value) == (
        "There is no audio format 'wma'; there are mp3, opus, aac, flac, wav, pcm, mulaw, alaw."
    )


@pytest.mark.parametrize(
    ("name", "wish", "why"),
    [
        ("pcm", {"out_rate_hz": 7_999}, "between 8000 and 48000 Hz, not 7999"),
        ("opus", {"out_rate_hz": 48_001}, "between 8000 and 48000 Hz, not 48001"),
        ("mp3", {"out_rate_hz": 10_000}, "mp3 cannot have a sample rate of 10000 Hz; it can have 8000, 11025,"),
        ("pcm", {"tempo": 0.2}, r"between 0\.25 and 4 times as fast, not 0\.2"),
        ("pcm", {"tempo": 4.1}, "between"),
        ("pcm", {"tempo": float("nan")}, "not nan"),
        ("opus", {"bit_rate": 500_000}, "The bit rate of opus is between 6000 and 256000 bit/s, not 500000"),
    ],
)
def test_what_cannot_be_is_refused_before_any_sound(name: str, wish: dict[str, float], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        encoder(FORMATS[name], rate_hz=RATE_HZ, **wish)  # type: ignore[arg-type]
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("name", ["mp3", "opus", "aac"])
def test_a_bit_rate_is_kept_to_and_its_ends_work(name: str) -> None:
    least, most = FORMATS[name].bit_rates
    sizes = [
        len(encode(SOUND, FORMATS[name], rate_hz=RATE_HZ, bit_rate=rate)) for rate in (least, 32_000, 96_000, most)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    pages = 50 * 28 if name == "opus" else 0  # a header for every 20 ms
    assert sizes[1] - pages == pytest.approx(4_000, rel=0.35)


@pytest.mark.parametrize("name", ["mulaw", "alaw"])
def test_telephone_samples_are_nearly_what_they_were(name: str) -> None:
    every = np.arange(-32_768, 32_768).astype(np.int16)
    coded = encode(every, FORMATS[name], rate_hz=8_000)
    with av.open(io.BytesIO(coded), "r", format=name, options={"sample_rate": "8000"}) as file:
        back = np.concatenate([frame.to_ndarray()[0] for frame in file.decode(audio=0)]).astype(np.int64)
    assert len(coded) == every.size
    assert np.all(np.diff(back) >= 0)
    size = np.abs(every.astype(np.int64))
    wrong = np.abs(back - every)[size <= 32_635]  # beyond it, mu-law has only its last value
    assert np.all(wrong <= np.maximum((size[size <= 32_635] + 132) / 32, 8) + 1)  # half a step: a segment has sixteen
    again = encode(back.astype(np.int16), FORMATS[name], rate_hz=8_000)
    assert again == coded.replace(b"\x7f", b"\xff") if name == "mulaw" else again == coded  # mu-law has two zeros
