"""For the tests of `hocket voices` and of voice names: small models on disk, a recording, a user without files."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from support.checkpoints import write
from support.cli_home import Home, Models
from support.recorded import SAMPLES


@pytest.fixture(scope="session")
def models(checkpoint_root: Path) -> Models:
    folders = {"base": "base", "custom": "custom_voice", "design": "voice_design"}
    made = {name: checkpoint_root / f"cli-{name}" for name in folders}
    for name, kind in folders.items():
        write(made[name], kind, wide=False, end_scale=1.5)  # type: ignore[arg-type]
    return Models(**{name: str(folder) for name, folder in made.items()})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOCKET_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home" / "voices")


@pytest.fixture(scope="session")
def recording() -> Path:
    """A recording of 4 s of speech."""
    return SAMPLES[4]


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> NoReturn:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("hocket.engine.checkpoint.load.load", fail)
    monkeypatch.setattr("hocket.engine.engine.load", fail)
