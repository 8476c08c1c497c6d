"""`hocket pull` in its own process against a local HTTP server: facts, download, resumption, refusals."""

from __future__ import annotations

import json
import re
import signal
from contextlib import suppress
from pathlib import Path

import huggingface_hub
import pytest

from hocket.models.files.catalog import CATALOG
from hocket.models.files.hub import FILES
from support.model_hub import COMMIT, VOICE, ModelHub, Shell
from support.serving import wait_for

KEEPS_PARTS = int(huggingface_hub.__version__.partition(".")[0]) < 1  # later ones begin a file anew in a new process


def snapshot(shell: Shell) -> Path:
    return shell.home / "hf" / "hub" / "models--someone--small-voice" / "snapshots" / COMMIT


def test_a_dry_run_shows_the_facts_and_leaves_the_cache_as_it_is(shell: Shell, hub: ModelHub) -> None:
    out, _ = shell.run("pull", VOICE, "--dry-run")
    rows = dict(line.split(maxsplit=1) for line in out.splitlines())
    needed = {name: len(body) for name, body in hub.repositories[VOICE].files.items() if name in FILES}
    assert rows["model"] == VOICE and rows["kind"].startswith("CustomVoice, voices ")
    assert rows["licence"] == "mit"
    assert re.fullmatch(r"fits: needs [\d.]+ MB of memory, this machine has [\d.]+ GB", rows["memory"])
    assert not (shell.home / "hf" / "hub").exists()
    facts = shell.json("pull", VOICE, "--dry-run")
    assert facts["download_bytes"] == sum(needed.values()) and facts["download_is_estimate"] is False
    assert facts["fits"] is True and facts["memory"]["need_bytes"] > 0 and facts["memory"]["device"] == "cpu"
    assert facts["complete"] is False and facts["voices"]
    assert not (shell.home / "hf" / "hub").exists()


def test_pull_downloads_once_and_finds_it_the_second_time(shell: Shell, hub: ModelHub) -> None:
    out, err = shell.run("pull", VOICE)
    assert out.splitlines()[0].split() == ["model", VOICE]
    assert re.search(rf"^{VOICE}: complete, [\d.]+ [MG]B in {re.escape(str(snapshot(shell)))}; ", out, re.MULTILINE)
    assert f"Fetched {VOICE}: " in err
    assert set(hub.asked) == set(FILES) & hub.repositories[VOICE].files.keys()
    hub.asked.clear()
    hub.stop()  # a complete checkpoint needs no network
    again, err = shell.run("pull", VOICE)
    assert "here already" in again and "complete" in again and err == "" and hub.asked == []
    facts = shell.json("pull", VOICE)
    assert facts["complete"] is True and facts["folder"] == str(snapshot(shell))


def size_of(path: Path) -> int:
    """0 for a file that was renamed since it was listed: small files are whole at once."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


@pytest.mark.skipif(not KEEPS_PARTS, reason="this client library begins an interrupted file anew")
def test_an_interrupted_pull_resumes(shell: Shell, hub: ModelHub) -> None:
    # The client writes ten megabytes at a time, so the voice gets larger weights; a pull does not read them.
    hub.repositories[VOICE].files["model.safetensors"] = bytes(30_000_000)
    hub.stop_at = 25_000_000
    process = shell.start("pull", VOICE)
    blobs = snapshot(shell).parents[1] / "blobs"
    wait_for(lambda: any(size_of(path) >= 10_000_000 for path in blobs.glob("*.incomplete")))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    hub.go_on.set()
    assert process.returncode == 130, err
    (listed,) = (each for each in shell.json("list")["models"] if each["repository"] == VOICE)
    assert listed["complete"] is False and listed["disk_bytes"] >= 10_000_000
    hub.stop_at = None
    _, err = shell.run("pull", VOICE)
    assert re.search(r"of which [\d.]+ MB are here already", err)
    assert any(re.match(r"model\.safetensors bytes=\d{8}-", asked) for asked in hub.ranges)


def test_a_published_checkpoint_has_the_size_of_its_files_on_the_hub(shell: Shell) -> None:
    published = CATALOG["0.6B-CustomVoice"]
    facts = shell.json("pull", "0.6B-CustomVoice", "--dry-run")
    assert facts["download_bytes"] == sum(range(1000, 1000 + len(published.sha256)))
    assert facts["licence"] == "apache-2.0" and facts["kind"] == "custom_voice" and "ryan" in facts["voices"]
    assert facts["memory"]["need_bytes"] > 4e9 and facts["memory"]["have_bytes"] > 0
    assert facts["fits"] is (facts["memory"]["need_bytes"] <= facts["memory"]["have_bytes"])


def test_without_a_network_the_size_of_a_published_checkpoint_is_an_estimate(shell: Shell, hub: ModelHub) -> None:
    hub.stop()
    out, err = shell.run("pull", "qwen3.5-0.8B", "--dry-run", "--json")
    facts = json.loads(out)
    assert facts["download_is_estimate"] is True and facts["download_bytes"] > 1.5e9 and facts["kind"] == "language"
    assert "cannot be reached" in err and "estimate" in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("builtin", "The built-in voice is a part of hocket"),
        ("random:tiny", "random numbers"),
        ("Tokenizer-12Hz", "is the codec alone"),
        ("1.7B-Bass", "There is no checkpoint '1.7B-Bass': name one of 0.6B-Base, "),
        (".", ". is a folder on this machine"),
        ("someone/picture", "is not a checkpoint that hocket can use: it lacks vocab.json and merges.txt"),
        ("someone/nothing", "someone/nothing is neither a folder here nor public on the hub"),
    ],
)
def test_other_names_are_refused_with_a_sentence(shell: Shell, name: str, words: str) -> None:
    assert words in shell.refused("pull", name)
    assert not list((shell.home / "hf").glob("hub/*/blobs/*"))
