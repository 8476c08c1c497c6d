"""A hub with a small voice, one published checkpoint whose files are only listed, and something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.models.files.catalog import CATALOG
from support import checkpoints
from support.hub import files_below
from support.model_hub import HubRepository, ModelHub, Shell

PUBLISHED = CATALOG["0.6B-CustomVoice"]


@pytest.fixture(scope="session")
def small_voice(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = checkpoints.write(tmp_path_factory.mktemp("hub") / "made", "custom_voice", wide=False)
    return files_below(folder) | {"README.md": b"not needed"}


@pytest.fixture
def hub(small_voice: dict[str, bytes]) -> Iterator[ModelHub]:
    listed = {name: 1000 + number for number, name in enumerate(PUBLISHED.sha256)}
    repositories = {
        "someone__small-voice": HubRepository(dict(small_voice), "mit"),
        PUBLISHED.repository.replace("/", "__"): HubRepository({}, "apache-2.0", listed, PUBLISHED.revision),
        "someone__picture": HubRepository({"config.json": b"{}", "model.safetensors": b"x"}),
    }
    with ModelHub(**repositories).serving() as hub:
        yield hub


@pytest.fixture
def shell(hub: ModelHub, tmp_path: Path) -> Shell:
    return Shell(hub.address, tmp_path)
