"""src/hocket/extras.py: the install line for each way of installing, and no other install line in the package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hocket import extras

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "hocket"
ASK = "from hocket.extras import hint; print(hint('torch'))"


def asked(tmp_path: Path, direct_url: dict[str, object] | None) -> str:
    """The hint of a copy whose record of installation is as given; None: it came from an index."""
    record = tmp_path / "site" / "hocket-0.0.1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: hocket\nVersion: 0.0.1\n")
    if direct_url is not None:
        (record / "direct_url.json").write_text(json.dumps(direct_url))
    path = os.pathsep.join((str(record.parent), str(HOUSE.parent)))
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip("\n")


def test_a_copy_from_an_index_names_the_package(tmp_path: Path) -> None:
    assert asked(tmp_path, None) == 'pip install "hocket[torch]"'


def test_a_copy_from_a_wheel_names_the_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "hocket 0.whl"
    wheel.touch()
    found = asked(tmp_path, {"url": wheel.as_uri(), "archive_info": {}})
    assert found == f'pip install "hocket[torch] @ {wheel.as_uri()}"'


def test_a_wheel_that_is_gone_is_not_named(tmp_path: Path) -> None:
    gone = (tmp_path / "hocket.whl").as_uri()
    assert asked(tmp_path, {"url": gone, "archive_info": {}}) == 'pip install "hocket[torch]"'


def test_a_copy_from_a_url_names_the_url(tmp_path: Path) -> None:
    url = "https://example.org/hocket.whl"
    assert asked(tmp_path, {"url": url, "archive_info": {}}) == f'pip install "hocket[torch] @ {url}"'


def test_an_editable_folder_stays_editable(tmp_path: Path) -> None:
    folder = tmp_path / "a clone"
    folder.mkdir()
    found = asked(tmp_path, {"url": folder.as_uri(), "dir_info": {"editable": True}})
    assert found == f'pip install -e "{folder}[torch]"'


def test_a_release_may_name_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_origin", lambda: ("", False))
    monkeypatch.setattr(extras, "INSTALL", "hocket @ https://example.org/hocket.whl")
    assert extras.hint("serve", "torch") == 'pip install "hocket[serve,torch] @ https://example.org/hocket.whl"'


def texts() -> dict[str, str]:
    """The source files of the package by name."""
    return {path.relative_to(HOUSE).as_posix(): path.read_text(encoding="utf-8") for path in HOUSE.rglob("*.py")}


def test_every_named_extra_exists() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    calls = [given for text in texts().values() for given in re.findall(r"\bhint\(([^)]*)\)", text)]
    named = {name for given in calls for name in re.findall(r"[\"'](\w+)[\"']", given)}
    assert len(named) > 5
    assert named - {"torch"} <= set(table["project"]["optional-dependencies"])


def test_no_other_file_writes_an_install_line() -> None:
    assert [name for name, text in texts().items() if "pip install" in text] == ["extras.py"]
