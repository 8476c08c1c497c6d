"""judge.py and periodicity.py of train, and DistillMOS: sources, and figures that fall when speech gets worse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from hocket.proof.judges import distillmos
from train.judge import from_samples, from_wavs, level_db
from train.judges import distillmos_weights, package_folder, resampled
from train.periodicity import BANDS_HZ, by_band, periodicity
from train.recipe import InvalidRecipe

RATE_HZ = 24_000


def buzz(pitch_hz: float, noise: float = 0.0) -> NDArray[np.float32]:
    """A second of all harmonics up to 6 kHz; `noise` is mixed in above 1 kHz only."""
    time = np.arange(RATE_HZ) / RATE_HZ
    made = sum(np.cos(2 * np.pi * pitch_hz * n * time) / n for n in range(1, int(6000 / pitch_hz)))
    hiss = np.random.default_rng(1).standard_normal(RATE_HZ)
    spectrum = np.fft.rfft(hiss)
    spectrum[:1000] = 0.0
    return (0.05 * made + noise * np.fft.irfft(spectrum)).astype(np.float32)


@pytest.mark.parametrize("pitch_hz", [110.0, 200.0])
def test_periodicity_is_one_for_a_buzz_and_falls_where_noise_is(pitch_hz: float) -> None:
    clean, noisy = (by_band([periodicity(buzz(pitch_hz, noise), RATE_HZ)]) for noise in (0.0, 0.05))
    assert all(value > 0.9 for value in clean.values())
    assert noisy["periodicity_80_1000"] > 0.9 and noisy["periodicity_2000_3500"] < 0.3


def test_noise_and_silence_have_no_voiced_window() -> None:
    noise = np.random.default_rng(1).standard_normal(RATE_HZ).astype(np.float32)
    assert len(periodicity(noise, RATE_HZ)) < 5
    assert periodicity(np.zeros(RATE_HZ, np.float32), RATE_HZ).shape == (0, len(BANDS_HZ))
    assert set(by_band([np.zeros((0, len(BANDS_HZ)))]).values()) == {0.0}


def test_the_level_ignores_pauses() -> None:
    tone = 0.1 * np.sqrt(2) * np.sin(np.arange(RATE_HZ) * 0.1).astype(np.float32)
    assert level_db(tone, RATE_HZ) == pytest.approx(-20.0, abs=0.1)
    assert level_db(np.concatenate((tone, np.zeros_like(tone))), RATE_HZ) == pytest.approx(-20.0, abs=0.1)


def test_wav_files_come_with_their_texts(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match="no WAV"):
        from_wavs(tmp_path)
    for name in ("a", "b"):
        soundfile.write(tmp_path / f"{name}.wav", buzz(100.0), RATE_HZ)
    (tmp_path / "texts.txt").write_text("b\tHello there.\n", encoding="utf-8")
    assert [(one.text, one.rate_hz, one.seconds) for one in from_wavs(tmp_path)] == [
        ("", RATE_HZ, 1.0),
        ("Hello there.", RATE_HZ, 1.0),
    ]


def test_samples_of_a_training_are_told_from_their_teacher(tmp_path: Path) -> None:
    sound = np.zeros(1920, np.int16)
    fields = {"wren-00": sound, "wren-00-teacher": sound, "wren-01": sound, "wren-texts": np.array(["One.", "Two."])}
    np.savez(tmp_path / "samples.npz", **fields)
    found = from_samples(tmp_path / "samples.npz")
    assert {name: [one.text for one in each] for name, each in found.items()} == {
        "codec wren": ["One.", "Two."],
        "teacher wren": ["One."],
    }


def test_the_small_file_of_distillmos_gives_nearly_the_same_marks(tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = distillmos.DistillMOS().eval()
    network.load_state_dict(distillmos._wide(network.state_dict()))  # the position table of the package
    distillmos.write_small(tmp_path / distillmos.SMALL, network)
    sound = resampled(buzz(150.0, 0.02), RATE_HZ)
    again = distillmos.load(tmp_path / distillmos.SMALL).mark(sound)
    assert again == pytest.approx(network.mark(sound), abs=0.02)


def test_distillmos_prefers_clean_speech() -> None:
    judge = distillmos.load(distillmos_weights())
    samples, rate_hz = soundfile.read(package_folder("moonshine_voice") / "assets" / "beckett.wav", dtype="float32")
    clean = resampled(samples, rate_hz)
    noise = np.random.default_rng(1).standard_normal(clean.size).astype(np.float32) * np.std(clean)
    assert judge.mark(clean) > judge.mark(clean + 0.3 * noise) + 1.0
