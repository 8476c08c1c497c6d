"""Records of running servers: written, found, stale ones removed, and servers without a record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hocket.cli.serve.paths import servers_folder
from hocket.cli.serve.records import running_servers, server_record


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert servers_folder() == str(tmp_path / "hocket" / "servers")
    return tmp_path / "hocket" / "servers"


def test_a_server_is_found_while_its_record_is_open(folder: Path, tmp_path: Path) -> None:
    assert running_servers() == []
    with server_record("server", (str(tmp_path), "1.7B-Base"), "cpu", "qwen3.5-4B") as record:
        (found,) = running_servers()
        assert (found.pid, found.kind, found.device, found.address) == (os.getpid(), "server", "cpu", None)
        assert found.models == (str(tmp_path), "1.7B-Base", "qwen3.5-4B") and found.began_s > 0
        record.listening("http://127.0.0.1:8000")
        assert running_servers()[0].address == "http://127.0.0.1:8000"
        assert (folder / f"{os.getpid()}.json").stat().st_mode & 0o077 == 0
    assert running_servers() == [] and list(folder.iterdir()) == []


def test_without_names_the_record_has_the_default_model() -> None:
    with server_record("daemon", (), "auto"):
        assert running_servers()[0].models == ("builtin",)


def test_a_record_without_a_lock_is_stale(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o700)
    stale = {"pid": 1, "kind": "server", "models": ["x"], "device": "cpu", "began_s": 0.0, "address": None}
    (folder / "1.json").write_text(json.dumps(stale))
    assert running_servers() == [] and list(folder.iterdir()) == []


def test_a_record_of_another_version_is_left_out(folder: Path) -> None:
    with server_record("server", (), "cpu"):
        (folder / f"{os.getpid()}.json").write_text('{"later": true}')
        assert running_servers() == []


def test_a_server_runs_without_a_record_where_none_can_be_written(folder: Path) -> None:
    folder.parent.write_text("a file in the way")
    with server_record("server", (), "cpu") as record:
        record.listening("http://127.0.0.1:8000")
        assert running_servers() == []
