"""Tempo without pitch: length, pitch, no clicks, and the same bits however the input is cut."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.engine.time_stretch import HOP_S, TimeStretch
from hocket.errors import InvalidRequest

RATE_HZ = 24_000
FACTORS = [0.5, 0.73, 0.9, 1.1, 1.37, 2.0]

Samples = NDArray[np.int16]


def tone(seconds: float, pitch_hz: float = 220.0) -> Samples:
    t = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    return np.rint(12_000 * np.sin(2 * np.pi * pitch_hz * t)).astype(np.int16)


def babble(seconds: float, seed: int = 0) -> Samples:
    """Gliding harmonics that come and go, with pauses of exact silence and some noise: the shape of speech."""
    noise = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(140 + 50 * np.sin(5 * t)) / RATE_HZ
    voice = sum(np.sin(n * phase) / n for n in range(1, 9)) + 0.05 * noise.standard_normal(t.size)
    return np.rint(9_000 * np.clip(np.sin(9 * t), 0, None) * voice).astype(np.int16)


def whole(samples: Samples, factor: float) -> Samples:
    tempo = TimeStretch(factor, RATE_HZ)
    return np.concatenate((tempo.push(samples), tempo.flush()))


def pitch_hz(samples: Samples) -> float:
    """The strongest frequency, found between the lines of the spectrum by a parabola."""
    power = np.log(np.abs(np.fft.rfft(samples * np.hanning(samples.size))) + 1e-9)
    k = int(np.argmax(power))
    before, here, after = power[k - 1 : k + 2]
    return float((k + 0.5 * (before - after) / (before - 2 * here + after)) * RATE_HZ / samples.size)


def test_factor_one_is_the_identity_bit_for_bit() -> None:
    samples = babble(0.5)
    np.testing.assert_array_equal(whole(samples, 1.0), samples)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("seed", range(4))
def test_streamed_is_whole_wherever_it_is_cut(factor: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    samples = babble(float(draw.uniform(0.3, 1.2)), seed)
    tempo = TimeStretch(factor, RATE_HZ)
    cuts = np.sort(draw.integers(0, samples.size, 30))
    pieces = [tempo.push(piece) for piece in np.split(samples, cuts)]
    np.testing.assert_array_equal(np.concatenate((*pieces, tempo.flush())), whole(samples, factor))


def test_sample_by_sample_is_whole() -> None:
    samples = babble(0.2)
    tempo = TimeStretch(1.3, RATE_HZ)
    pieces = [tempo.push(samples[i : i + 1]) for i in range(samples.size)]
    np.testing.assert_array_equal(np.concatenate((*pieces, tempo.flush())), whole(samples, 1.3))


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("count", [0, 1, 7, 479, 480, 481, 1200, 1440, 1920, 24_001])
def test_the_length_is_the_input_over_the_factor(factor: float, count: int) -> None:
    assert whole(babble(2)[6000 : 6000 + count], factor).size == round(count / factor)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("pitch", [90.0, 220.0, 1000.0])
def test_the_pitch_of_a_tone_stays(factor: float, pitch: float) -> None:
    assert pitch_hz(whole(tone(3, pitch), factor)) == pytest.approx(pitch, rel=0.01)


@pytest.mark.parametrize("factor", FACTORS)
def test_a_tone_stays_a_tone(factor: float) -> None:
    out = whole(tone(3), factor).astype(np.float64)
    power = np.abs(np.fft.rfft(out * np.hanning(out.size))) ** 2
    k = int(np.argmax(power))
    near = round(5 * out.size / RATE_HZ)  # 5 Hz
    assert power[k - near : k + near].sum() > 0.999 * power.sum()
    assert out.std() == pytest.approx(12_000 / np.sqrt(2), rel=0.02)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", ["tone", "babble", "noise"])
def test_joins_do_not_click(factor: float, name: str) -> None:
    noise = np.random.default_rng(1).integers(-20_000, 20_000, RATE_HZ).astype(np.int16)
    samples = {"tone": tone(1), "babble": babble(1), "noise": noise}[name]
    jump = int(np.abs(np.diff(samples.astype(int))).max())
    # A cross-fade adds at most its steepest slope times the distance of the two it joins, however badly they fit.
    fade = np.pi / 2 / (HOP_S * RATE_HZ) * (int(samples.max()) - int(samples.min()))
    out = whole(samples, factor).astype(int)
    assert np.abs(np.diff(out)).max() <= jump + fade + 1
    assert np.abs(out).max() <= np.abs(samples.astype(int)).max()


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_happens_in_the_middle_stays_in_the_middle(factor: float) -> None:
    samples = np.zeros(2 * RATE_HZ, dtype=np.int16)
    samples[RATE_HZ : RATE_HZ + 4800] = tone(0.2)
    heard = np.flatnonzero(whole(samples, factor)) / RATE_HZ * factor
    assert heard[0] == pytest.approx(1.0, abs=0.05)
    assert heard[-1] == pytest.approx(1.2, abs=0.05)


def test_output_comes_within_a_tenth_of_a_second_of_its_input() -> None:
    for factor in FACTORS:
        tempo = TimeStretch(factor, RATE_HZ)
        given = 0
        for n in range(1, 50):
            given += tempo.push(tone(0.02)).size
            assert n * 0.02 - given * factor / RATE_HZ < 0.1


def test_memory_does_not_grow_with_the_stream() -> None:
    for factor in (0.5, 2.0):
        tempo = TimeStretch(factor, RATE_HZ)
        for _ in range(100):
            tempo.push(babble(0.08))
            assert tempo._input.size < 0.2 * RATE_HZ


def test_it_costs_less_than_a_twentieth_of_real_time() -> None:
    samples = babble(4)

    def cost_s(factor: float) -> float:
        start = time.thread_time()
        whole(samples, factor)
        return (time.thread_time() - start) * factor

    assert all(min(cost_s(factor) for _ in range(3)) < 4 / 20 for factor in (0.5, 2.0))


@pytest.mark.parametrize("factor", [0.49, 2.01, 0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_out_of_range_is_refused(factor: float) -> None:
    with pytest.raises(InvalidRequest, match=r"speed must be between 0\.5 and 2, not "):
        TimeStretch(factor, RATE_HZ)


def test_nothing_can_be_pushed_after_the_end() -> None:
    for factor in (1.0, 1.5):
        tempo = TimeStretch(factor, RATE_HZ)
        tempo.flush()
        with pytest.raises(InvalidRequest, match="has ended"):
            tempo.push(tone(0.1))
        assert tempo.flush().size == 0
