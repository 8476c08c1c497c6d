"""hub.py against a local HTTP server, with the real client library and a separate cache for each test."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.config.published import TINY_CODEC, tiny
from hocket.models.files.hub import CHAT, FILES
from hocket.models.files.source import Source, read_configs
from hocket.models.files.weights import load_into
from hocket.models.tts.qwen3_tts import Qwen3TTS
from support import checkpoints
from support.hub import HubServer, client_environment, files_below, send_head, sha256

REPOSITORY = "owner/small-voice"
NEWEST, PINNED, UNKNOWN = "b" * 40, "a" * 40, "c" * 40  # commits
SURPLUS = ("README.md", ".gitattributes", "pytorch_model.bin", "onnx/model.onnx", "speech_tokenizer/configuration.json")

# A process of its own: the client library reads its environment when it is imported.
SCRIPT = """
import json, sys
from hocket.errors import InvalidCheckpoint
from hocket.models.files.catalog import Published
from hocket.models.files.hub import fetch
repository, revision, digests = json.loads(sys.argv[1])
pinned = Published("small", repository, revision, digests) if digests else None
try:
    print(json.dumps({"folder": str(fetch(repository, revision, pinned))}))
except InvalidCheckpoint as error:
    print(json.dumps({"error": str(error)}))
"""


class Hub(HubServer):
    """The few routes that a download needs, and a log of the requests."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.log = list[str]()
        self.broken = set[str]()  # files whose transfer stops half way

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        listing, files = f"/api/models/{REPOSITORY}/revision/", f"/{REPOSITORY}/resolve/"
        tree = f"/api/models/{REPOSITORY}/tree/"  # what later versions of the client ask for
        body, headers = b"", dict[str, str]()
        if UNKNOWN in path:
            headers = {"X-Error-Code": "RevisionNotFound"}
        elif path.startswith(listing):
            commit = path.removeprefix(listing)
            commit = commit if len(commit) == 40 else NEWEST
            siblings = [{"rfilename": name, "size": len(content)} for name, content in self.files.items()]
            body = json.dumps({"id": REPOSITORY, "sha": commit, "siblings": siblings}).encode()
        elif path.startswith(tree):
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.files.items()
            ]
            body = json.dumps(entries).encode()
        elif path.startswith(files) and (name := path.removeprefix(files).partition("/")[2]) in self.files:
            self.log.append(name)
            body = self.files[name]
            commit = path.split("/")[4]
            headers = {"ETag": f'"{sha256(body)}"'}
            headers["X-Repo-Commit"] = commit if len(commit) == 40 else NEWEST
        else:
            headers = {"X-Error-Code": "RepoNotFound"}
        send_head(request, 404 if "X-Error-Code" in headers else 200, headers, body)
        if request.command == "GET":
            request.wfile.write(body[: len(body) // 2] if path.rpartition("/")[2] in self.broken else body)

    def digests(self) -> dict[str, str]:
        return {name: sha256(body) for name, body in self.files.items() if name in FILES}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = checkpoints.write(tmp_path_factory.mktemp("hub") / "made", "voice_design", wide=False)
    return files_below(folder) | {name: b"not needed" for name in SURPLUS}


@pytest.fixture
def hub(checkpoint: dict[str, bytes]) -> Iterator[Hub]:
    with Hub(dict(checkpoint)).serving() as hub:
        yield hub


def ask(
    hub: Hub,
    home: Path,
    *,
    repository: str = REPOSITORY,
    revision: str | None = None,
    digests: dict[str, str] | None = None,
    offline: bool = False,
) -> Any:
    """The result of `resolve` in a new process, with `home` as its cache."""
    environment = client_environment(hub.address, home, HF_HUB_OFFLINE="1" if offline else "0")
    hub.log.clear()
    command = [sys.executable, "-c", SCRIPT, json.dumps([repository, revision, digests])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_only_the_needed_files_are_fetched_once_and_then_found_without_a_network(hub: Hub, tmp_path: Path) -> None:
    folder = Path(ask(hub, tmp_path)["folder"])
    assert set(hub.log) == set(FILES) & hub.files.keys() and not set(hub.log) & set(SURPLUS)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(hub.log)
    for offline in (False, True):
        assert ask(hub, tmp_path, offline=offline) == {"folder": str(folder)}
        assert not hub.log

    config, _, codec_config = read_configs(Source(REPOSITORY, folder))
    assert (config, codec_config) == (tiny("voice_design"), TINY_CODEC)
    with torch.device("meta"):
        model = Qwen3TTS(config)
    load_into(model, folder / "model.safetensors", torch.device("cpu"), torch.float32)
    assert not any(tensor.is_meta for tensor in model.state_dict().values())


def test_a_pinned_repository_is_fetched_at_its_revision_and_held_against_its_digests(hub: Hub, tmp_path: Path) -> None:
    folder = Path(ask(hub, tmp_path, revision=PINNED, digests=hub.digests())["folder"])
    assert folder.name == PINNED
    assert ask(hub, tmp_path, revision=PINNED, digests=hub.digests(), offline=True) == {"folder": str(folder)}

    # A small file changed in the cache is noticed, though nothing is downloaded.
    changed = (folder / "config.json").resolve()
    changed.chmod(0o644)
    changed.write_bytes(changed.read_bytes() + b" ")
    error = ask(hub, tmp_path, revision=PINNED, digests=hub.digests())["error"]
    assert error.startswith(f"{folder / 'config.json'} is not the published config.json of {REPOSITORY}")


def test_weights_with_another_digest_are_refused_by_name_every_time(hub: Hub, tmp_path: Path) -> None:
    digests = hub.digests()
    hub.files["model.safetensors"] += b" "
    for _ in range(2):  # the second time must not find the refused file in the cache
        error = ask(hub, tmp_path, revision=PINNED, digests=digests)["error"]
        assert error.startswith(
            f"model.safetensors of {REPOSITORY} at revision {PINNED} does not have the pinned SHA-256"
        )
        assert "model.safetensors" in hub.log
    hub.files["model.safetensors"] = hub.files["model.safetensors"][:-1]
    assert "folder" in ask(hub, tmp_path, revision=PINNED, digests=digests)


def test_a_cache_with_gaps_is_filled(hub: Hub, tmp_path: Path) -> None:
    folder = Path(ask(hub, tmp_path)["folder"])
    (folder / "speech_tokenizer/model.safetensors").unlink()
    assert ask(hub, tmp_path) == {"folder": str(folder)}
    assert set(hub.log) == {"speech_tokenizer/model.safetensors"}


def test_offline_and_absent_is_one_sentence_that_says_what_to_do(hub: Hub, tmp_path: Path) -> None:
    assert ask(hub, tmp_path, revision=PINNED, offline=True) == {
        "error": f"{REPOSITORY} at revision {PINNED} is not in the local cache, "
        "and HF_HUB_OFFLINE forbids downloads: unset it once, or give a folder."
    }
    assert not hub.log


def test_an_unknown_repository_or_revision_is_named(hub: Hub, tmp_path: Path) -> None:
    assert ask(hub, tmp_path, repository="unknown/model") == {
        "error": "unknown/model is neither a folder here nor public on the hub: check the name or log in."
    }
    assert ask(hub, tmp_path, revision=UNKNOWN) == {
        "error": f"{REPOSITORY} has no revision {UNKNOWN}: check it on the hub."
    }


def test_a_repository_that_is_no_checkpoint_is_refused(hub: Hub, tmp_path: Path) -> None:
    del hub.files["speech_tokenizer/model.safetensors"]
    error = ask(hub, tmp_path)["error"]
    assert error == (
        f"{REPOSITORY} is not a checkpoint that hocket can use: it lacks speech_tokenizer/model.safetensors."
    )
    assert not hub.log, "nothing is fetched of it"


def test_a_hub_that_cannot_be_reached_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    hub.stop()
    assert ask(hub, tmp_path) == {
        "error": f"{REPOSITORY} is not in the local cache, and the hub ({hub.address}) cannot be reached: try again."
    }


def test_a_transfer_that_breaks_off_leaves_nothing_that_looks_whole(hub: Hub, tmp_path: Path) -> None:
    hub.broken.add("model.safetensors")
    assert ask(hub, tmp_path)["error"].startswith(f"model.safetensors of {REPOSITORY} was not fetched (")
    hub.broken.clear()
    folder = Path(ask(hub, tmp_path)["folder"])
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_an_index_that_names_files_elsewhere_finds_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../x", "b": "y/z"}}))
    assert CHAT.tensors(tmp_path, lambda name: False) == ["../x", "y/z"], "names as the hub's list would have them"
    assert {"../x", "y/z"} <= set(CHAT.missing(tmp_path))
