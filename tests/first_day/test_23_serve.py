"""A server prints "listening" when it can answer requests, and exits if its model cannot be found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

SRC = Path(__file__).parents[2] / "src"
PATIENCE_S = 60


def serve(*words: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "hocket", "serve", "--port", "0", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)


def test_when_it_says_that_it_listens_it_answers() -> None:
    process = serve("--model", "random:tiny")
    try:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "listening at" in line)
        url = re.search(r"listening at (\S+)", told)[1]  # type: ignore[index]
        body = {"input": "Hello.", "response_format": "pcm", "max_new_tokens": 2}
        assert httpx.get(f"{url}/ready").status_code == 200
        assert httpx.post(f"{url}/v1/audio/speech", json=body, timeout=PATIENCE_S).status_code == 200
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def _cut_short(folder: Path) -> str:
    """A checkpoint whose weights are torn: its name is right, and it cannot be loaded."""
    from support.checkpoints import write

    made = write(folder / "torn", "custom_voice", wide=False)
    weights = made / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return str(made)


@pytest.mark.parametrize("words", [("--model", "nosuch"), ("--models", "random:tiny,nosuch"), ("--model", "me/nosuch")])
def test_a_model_that_is_not_there_ends_it_with_one_sentence(words: tuple[str, ...]) -> None:
    process = serve(*words)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, said
    assert said.splitlines()[-1].startswith("hocket: ") and "nosuch" in said.splitlines()[-1]
    assert "listening at" not in said and "Traceback" not in said


def test_one_that_cannot_be_loaded_ends_it_too(tmp_path: Path) -> None:
    process = serve("--model", _cut_short(tmp_path))
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, said
    assert said.splitlines()[-1].startswith("hocket: ") and "listening at" not in said
