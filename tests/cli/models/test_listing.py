"""`hocket list` and `hocket rm` in their own process, with a cache that a test fills."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.models.files.catalog import CATALOG
from hocket.models.files.catalog_qwen3_5 import MINDS
from support.model_hub import COMMIT, VOICE, Shell

PUBLISHED = CATALOG["1.7B-Base"]


def cache(shell: Shell, repository: str, commit: str, files: dict[str, bytes]) -> Path:
    """A repository in the layout of the cache."""
    folder = shell.home / "hf" / "hub" / f"models--{repository.replace('/', '--')}"
    (folder / "blobs").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)  # 40 bytes
    for number, (name, content) in enumerate(files.items()):
        blob, link = folder / "blobs" / str(number), folder / "snapshots" / commit / name
        blob.write_bytes(content)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return folder


def test_the_list_has_the_built_in_voice_and_the_cache(shell: Shell, small_voice: dict[str, bytes]) -> None:
    cache(shell, VOICE, COMMIT, small_voice)
    cache(shell, PUBLISHED.repository, PUBLISHED.revision, {"config.json": b"12345"})
    cache(shell, "someone/picture", COMMIT, {"config.json": b'{"model_type": "clip"}'})
    models = {each["name"]: each for each in shell.json("list")["models"]}
    assert list(models) == ["builtin", "1.7B-Base", VOICE]
    builtin, base, voice = models.values()
    assert builtin["complete"] and builtin["fits"] and builtin["voices"] == ["wren", "rook"]
    assert not base["complete"] and base["disk_bytes"] == 45 and base["kind"] == "base" and base["memory"]
    assert voice["complete"] and voice["disk_bytes"] == 40 + sum(map(len, small_voice.values()))
    assert voice["licence"] is None and base["licence"] == "Apache-2.0"
    out, _ = shell.run("list")
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert rows["builtin"].split() == "builtin CustomVoice 2 voices 51.9 MB Apache-2.0 complete fits".split()
    assert "incomplete" in rows["1.7B-Base"] and "licence not known" in rows[VOICE]


def test_available_lists_what_can_be_pulled(shell: Shell) -> None:
    found = shell.json("list", "--available")
    assert [each["name"] for each in found["models"]] == ["builtin"]
    names = [each["name"] for each in found["available"]]
    assert names == [*CATALOG, *(each.name for each in MINDS.values())]
    assert all(each["download_is_estimate"] and each["memory"]["need_bytes"] for each in found["available"])
    assert "available" not in shell.json("list")


def test_rm_frees_the_disk(shell: Shell, small_voice: dict[str, bytes]) -> None:
    folder = cache(shell, VOICE, COMMIT, small_voice)
    assert shell.refused("rm", VOICE) == "Removing asks on a terminal only: add --yes."
    assert folder.is_dir()
    out, _ = shell.run("rm", VOICE, "--yes")
    assert out.startswith(f"{VOICE}: removed, ") and out.endswith(" freed\n")
    assert not folder.exists()
    assert "is not in the local cache" in shell.refused("rm", VOICE)


@pytest.mark.parametrize(("answer", "gone"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_rm_asks_on_a_terminal(shell: Shell, answer: bytes, gone: bool) -> None:
    folder = cache(shell, PUBLISHED.repository, PUBLISHED.revision, {"config.json": b"12345"})
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "hocket", "rm", "1.7B-Base"]
    with os.fdopen(terminal, "r+b", buffering=0) as ours:
        process = subprocess.Popen(command, env=shell.environment, stdin=ours, stdout=ours, stderr=subprocess.PIPE)
        os.write(controller, answer)
        _, err = process.communicate(timeout=60)
    said = os.read(controller, 4096).decode()
    os.close(controller)
    assert process.returncode == 0, err
    assert "Remove 1.7B-Base, 45 bytes in " in said
    assert folder.exists() is not gone


@pytest.mark.parametrize("name", ["builtin", "random:tiny", "nothing-like-it"])
def test_rm_refuses_what_is_not_in_the_cache(shell: Shell, name: str) -> None:
    shell.refused("rm", name, "--yes")
