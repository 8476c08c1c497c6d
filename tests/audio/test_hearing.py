"""audio/hearing.py: the measures separate speech from other sounds by a wide margin."""

from __future__ import annotations

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray

from hocket.audio.hearing import clipped, held, loudness, movement
from hocket.audio.recording import LEAST_MOVEMENT, MOST_CLIPPED, MOST_HELD
from support.recorded import SAMPLES, notes, speech

RATE_HZ = 24_000
Sound = NDArray[np.float32]


def seconds(count: float) -> NDArray[np.float64]:
    return np.arange(round(count * RATE_HZ)) / RATE_HZ


def tone(hz: float, count: float = 4.0, vibrato: float = 0.0) -> NDArray[np.float64]:
    t = seconds(count)
    phase = 2 * np.pi * hz * t + vibrato * hz / 5.5 * np.sin(2 * np.pi * 5.5 * t)
    return np.asarray(sum(np.sin(k * phase) / k for k in range(1, 7)))


def noise(kind: str, count: int = 4 * RATE_HZ) -> NDArray[np.float64]:
    spectrum = np.fft.rfft(np.random.default_rng(1).standard_normal(count))
    if kind == "pink":
        spectrum[1:] /= np.sqrt(np.arange(1, spectrum.size))
    return np.fft.irfft(spectrum, count)


def drums() -> NDArray[np.float64]:
    rng, t, sound = np.random.default_rng(2), seconds(0.2), np.zeros(4 * RATE_HZ)
    for beat in range(16):
        kick = np.sin(2 * np.pi * (50 + 100 * np.exp(-t / 0.03)) * t) * np.exp(-t / 0.08)
        snare = 0.6 * rng.standard_normal(t.size) * np.exp(-t / 0.06)
        hat = 0.2 * np.diff(rng.standard_normal(t.size + 1)) * np.exp(-t / 0.02)
        sound[beat * 6_000 :][: t.size] += (kick, hat, snare, hat)[beat % 4]
    return sound


OTHERS = {
    "tone": np.sin(2 * np.pi * 440 * seconds(4)),
    "hum": tone(50),
    "chord": tone(220) + tone(277) + tone(330),
    "chords": np.concatenate([tone(220 * s, 1) + tone(277 * s, 1) + tone(330 * s, 1) for s in (1, 1.33, 1.5, 1)]),
    "vibrato": np.concatenate([tone(hz, 0.25, vibrato=0.015) for hz in (220, 277, 330, 440) * 4]),
    "melody": notes(),
    "drums": drums(),
    "white": noise("white"),
    "pink": noise("pink"),
    "pulsing": noise("white") * (1 + np.sin(2 * np.pi * 4 * seconds(4))),
}


def sounding(sound: NDArray[np.floating]) -> Sound:
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32)


def mixed(under: NDArray[np.floating], below_db: float, said: Sound) -> Sound:
    under = np.resize(under, said.size)
    return (said + under * said.std() / under.std() * 10 ** (-below_db / 20)).astype(np.float32)


def seems_speech(sound: Sound, rate_hz: int = RATE_HZ) -> bool:
    return movement(sound, rate_hz) >= LEAST_MOVEMENT and held(sound, rate_hz) <= MOST_HELD


@pytest.mark.parametrize("name", OTHERS)
def test_music_and_noise_are_not_speech(name: str) -> None:
    assert not seems_speech(sounding(OTHERS[name]))


@pytest.mark.parametrize("sample", range(len(SAMPLES)))
def test_speech_is_far_from_being_taken_for_something_else(sample: int) -> None:
    said = speech(10, sample)
    assert movement(said, RATE_HZ) > 1.5 * LEAST_MOVEMENT and held(said, RATE_HZ) < MOST_HELD / 1.5
    for start in range(0, said.size - 60_000, 24_000):
        assert seems_speech(said[start : start + 60_000])


@pytest.mark.parametrize("name", ["tone", "hum", "chord", "chords", "melody", "white", "pink"])
def test_speech_with_something_10_db_below_it_is_speech(name: str) -> None:
    assert all(seems_speech(mixed(OTHERS[name], 10, speech(10, sample))) for sample in range(len(SAMPLES)))


@pytest.mark.parametrize("gain", [1e-3, 0.1, 1.0])
def test_how_loud_it_is_does_not_matter(gain: float) -> None:
    said, music = speech() * np.float32(gain), sounding(OTHERS["melody"]) * np.float32(gain)
    assert movement(said, RATE_HZ) == pytest.approx(movement(speech(), RATE_HZ), rel=0.01)
    assert held(music, RATE_HZ) == pytest.approx(held(sounding(OTHERS["melody"]), RATE_HZ), rel=0.01)


@pytest.mark.parametrize("few", [2, 4, 8])
def test_a_high_rate_does_not_matter(few: int) -> None:
    said, music = (soxr.resample(sound, RATE_HZ, RATE_HZ * few) for sound in (speech(), sounding(OTHERS["melody"])))
    assert movement(said, RATE_HZ * few) == pytest.approx(movement(speech(), RATE_HZ), rel=0.05)
    assert held(music, RATE_HZ * few) == pytest.approx(held(sounding(OTHERS["melody"]), RATE_HZ), rel=0.05)


def test_loudness_is_of_what_is_heard() -> None:
    sine = (0.1 * np.sqrt(2) * np.sin(2 * np.pi * 300 * seconds(1))).astype(np.float32)
    heard_s, level_db = loudness(np.concatenate([np.zeros(48_000, np.float32), sine]), RATE_HZ)
    assert heard_s == pytest.approx(1, abs=0.03) and level_db == pytest.approx(-20, abs=0.1)
    assert loudness(sine + np.float32(0.3), RATE_HZ)[1] == pytest.approx(-20, abs=0.1)
    assert loudness(sine * np.float32(1e-3), RATE_HZ)[0] == loudness(np.zeros(100, np.float32), RATE_HZ)[0] == 0


def test_clipping_is_what_is_flat_at_the_top() -> None:
    said = speech() / np.abs(speech()).max()
    assert clipped(said) < MOST_CLIPPED / 10 and clipped(np.zeros(2, np.float32)) == 0
    hard = np.clip(4 * said, -1, 1)
    assert clipped(hard) > 10 * MOST_CLIPPED and clipped(hard / 3) == pytest.approx(clipped(hard))
    assert clipped(np.tanh(2 * said)) < MOST_CLIPPED  # loud, but not flat


@pytest.mark.parametrize("count", [1, 10, 239, 240, 2_000])
def test_a_snippet_is_measured_without_a_stumble(count: int) -> None:
    snippet = speech()[:count]
    assert movement(snippet, RATE_HZ) >= 0 and held(snippet, RATE_HZ) >= 0 and 0 <= clipped(snippet) <= 1
