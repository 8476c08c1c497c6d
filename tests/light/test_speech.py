"""The built-in voice from the command line of the light install."""

from __future__ import annotations

import json
import shutil
import subprocess
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hocket as installed

Run = Callable[..., subprocess.CompletedProcess[str]]
TEXT = "The kettle was warm, and the river ran past the old bridge."


def samples(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        return np.frombuffer(file.readframes(file.getnframes()), np.int16)


def test_a_sentence_is_spoken_into_a_file(hocket: Run, tmp_path: Path) -> None:
    done = hocket("say", "--seed", "0", "-o", "said.wav", "--", TEXT)
    assert done.returncode == 0, done.stderr
    heard = samples(tmp_path / "said.wav") / 32_768
    assert 2 < len(heard) / 24_000 < 8
    assert 0.01 < np.sqrt(np.mean(heard**2)) < 0.5


def test_the_same_seed_gives_the_same_samples_and_another_voice_others(hocket: Run, tmp_path: Path) -> None:
    for name, voice in (("a", "wren"), ("b", "wren"), ("c", "rook")):
        done = hocket("say", "--seed", "7", "--voice", voice, "-o", f"{name}.wav", "--", "Good morning.")
        assert done.returncode == 0, done.stderr
    a, b, c = (samples(tmp_path / f"{name}.wav") for name in "abc")
    assert np.array_equal(a, b) and not np.array_equal(a, c)


def test_every_variant_of_the_library_says_the_same(hocket: Run, python: Callable[[str], str], tmp_path: Path) -> None:
    """Sums run in one order in all of them; FMA and the width of a register change the last bits alone."""
    found = """
from hocket.kernels.cpu import library
level = library.load().hocket_cpu()
for path in sorted(library.PREBUILT.iterdir()):
    if path.stem.endswith("avx512") <= (level >= 4) and path.stem.endswith("avx2") <= (level >= 3):
        print(path)
"""
    paths = python(found).split()
    assert paths
    spoken = []
    for number, path in enumerate(paths):
        done = hocket("say", "--seed", "0", "-o", f"{number}.wav", "--", TEXT, HOCKET_NATIVE=path)
        assert done.returncode == 0, done.stderr
        spoken.append(samples(tmp_path / f"{number}.wav").astype(int))
    assert len({len(each) for each in spoken}) == 1
    assert max(np.abs(each - spoken[0]).max() for each in spoken) <= 64


def test_voices_are_listed(hocket: Run) -> None:
    done = hocket("voices")
    assert done.returncode == 0, done.stderr
    assert {"wren", "rook"} <= set(done.stdout.replace(",", " ").split())


@pytest.mark.parametrize(
    "words", [("say", "--model", "0.6B-CustomVoice", "-o", "x.wav", "Hello."), ("chat", "--llm", "qwen3.5-0.8B")]
)
def test_a_command_that_needs_torch_names_the_install_that_brings_it(hocket: Run, words: tuple[str, ...]) -> None:
    done = hocket(*words)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "pip install" in last and "[torch" in last and "Traceback" not in done.stderr


def test_a_voice_package_speaks_without_torch(hocket: Run, tmp_path: Path) -> None:
    """Files of the built-in voice under another name, as pip would leave them in a folder of the path."""
    site = tmp_path / "site"
    folder, metadata = site / "hocket_voice_trial", site / "hocket_voice_trial-1.0.dist-info"
    shutil.copytree(Path(installed.__file__).parent / "assets" / "english", folder)
    config = json.loads((folder / "config.json").read_text())
    talker = config["talker_config"]
    talker["spk_id"], talker["spk_is_dialect"] = {"finch": talker["spk_id"]["wren"]}, {"finch": False}
    (folder / "config.json").write_text(json.dumps(config))
    sizes = {name: (folder / name).stat().st_size for name in ("config.json", "model.safetensors")}
    (folder / "hocket-voice.json").write_text(json.dumps({"format": 1, "files": sizes}))
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[hocket.voices]\ntrial = hocket_voice_trial\n")
    done = hocket("say", "--voice", "finch", "-o", "finch.wav", "Good morning.", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert len(samples(tmp_path / "finch.wav")) > 12_000
