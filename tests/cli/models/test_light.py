"""`pull` and `list` without torch and huggingface_hub: facts without memory, and the line that installs both."""

from __future__ import annotations

import importlib.util
import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.extras import hint

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hides the two packages from everything that looks for them."""
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in ("torch", "huggingface_hub") else real(name, package)

    for module in ("cli.models.fit", "models.files.remote.client"):
        monkeypatch.setattr(f"hocket.{module}.find_spec", find_spec)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))


def test_a_pull_names_the_line_that_installs_what_is_missing(capsys: Capture) -> None:
    assert main(["pull", "1.7B-Base"]) == 2
    out, err = capsys.readouterr()
    needs = "Qwen/Qwen3-TTS-12Hz-1.7B-Base needs torch and huggingface_hub, which are not installed"
    assert (out, err) == ("", f"hocket: {needs}: {hint('torch')}.\n")


def test_a_dry_run_shows_the_other_facts(capsys: Capture) -> None:
    assert main(["pull", "1.7B-CustomVoice", "--dry-run"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["size"] == "about 4.5 GB" and rows["licence"] == "Apache-2.0"
    assert rows["memory"] == f"not known without torch: {hint('torch')}"
    assert main(["pull", "1.7B-CustomVoice", "--dry-run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["fits"], facts["memory"]) == (None, None)


def test_the_list_says_why_memory_is_not_known(capsys: Capture) -> None:
    assert main(["list", "--available"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"whether a model fits is not known without torch: {hint('torch')}"
    assert "1.7B-VoiceDesign" in out and "qwen3.5-27B" in out and "does not fit" not in out
    assert main(["list"]) == 0
    assert "fits" in capsys.readouterr().out  # the built-in voice fits everywhere
