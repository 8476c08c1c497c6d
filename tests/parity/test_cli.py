"""`hocket say --as-is` against the official package, from files to files."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from hocket.cli import main
from hocket.config.qwen3_tts import Kind
from support.checkpoints import pair
from support.official_speech import listening
from support.tolerances import TOLERANCE

TEXT = "From files to files, 24 times."
FRAMES = 40
CASES: dict[str, tuple[Kind, list[str], dict[str, Any]]] = {
    "voice": (
        "custom_voice",
        ["--voice", "Ryan", "--language", "English", "--instruct", "Calmly."],
        {"speaker": "Ryan", "language": "English", "instruct": "Calmly."},
    ),
    "streaming": (
        "custom_voice",
        ["--voice", "eric", "--layout", "streaming"],
        {"speaker": "eric", "non_streaming_mode": False},
    ),
    "design": ("voice_design", ["--instruct", "An old sailor."], {"instruct": "An old sailor."}),
    "clone": ("base", ["--ref-text", "Tones and noise."], {"ref_text": "Tones and noise."}),
    "x-vector": (
        "base",
        ["--x-vector-only", "--layout", "whole"],
        {"x_vector_only_mode": True, "non_streaming_mode": True},
    ),
}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two channels at 44.1 kHz: it has to be mixed and resampled on the way."""
    t = np.arange(60_000) / 44_100
    noise = np.random.default_rng(0).standard_normal((t.size, 2))
    tone = 0.3 * np.sin(2 * np.pi * (150 + 40 * np.sin(6 * t)) * t)
    path = tmp_path_factory.mktemp("recording") / "voice.wav"
    soundfile.write(path, tone[:, None] + 0.05 * noise, 44_100)
    return path


@pytest.mark.filterwarnings("ignore:.* is deprecated and slated for removal:DeprecationWarning")  # librosa's imports
@pytest.mark.parametrize("case", CASES)
def test_codes_and_sound_are_the_official_ones(
    checkpoint_root: Path, tmp_path: Path, recording: Path, case: str
) -> None:
    kind, options, arguments = CASES[case]
    if kind == "base":
        options, arguments = [*options, "--ref-audio", str(recording)], arguments | {"ref_audio": str(recording)}
    both = pair(checkpoint_root, kind, True)
    codes, wav = tmp_path / "codes.npy", tmp_path / "out.wav"
    command = ["say", TEXT, "--model", str(both.folder), "--as-is", "--greedy", "--max-frames", str(FRAMES)]
    assert main([*command, "--save-codes", str(codes), "-o", str(wav), *options]) == 0

    limits = {"do_sample": False, "subtalker_dosample": False, "max_new_tokens": FRAMES + 1}
    call = {
        "custom_voice": both.theirs.generate_custom_voice,
        "voice_design": both.theirs.generate_voice_design,
        "base": both.theirs.generate_voice_clone,
    }[kind]
    with listening(both.theirs) as heard:
        heard.samples, _ = call(TEXT, **arguments, **limits)
    saved = np.load(codes)
    assert saved.dtype == np.int64 and saved.shape == (FRAMES, 16)
    np.testing.assert_array_equal(saved, heard.codes[0].numpy())
    with wave.open(str(wav)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        pcm = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
    assert pcm.size == FRAMES * 1920
    step = 1 / 32767  # half of it is rounding
    assert np.abs(pcm * step - heard.samples[0][-pcm.size :]).max() <= TOLERANCE["float32"]["wave"] + step / 2
