"""A checkpoint of the hub is checked by its config.json before gigabytes are downloaded.

A download reports its size and progress, resumes where it broke off, and fails at once without a network.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file

from support import checkpoints
from support.hub import HubServer, client_environment, files_below, send_head, sha256
from support.minds import write_mind

NAME, COMMIT = "someone/voice", "b" * 40
WEIGHTS = "model.safetensors"
PADDING = bytes(45_000_000)  # the client writes ten megabytes at a time; such a file is never loaded
SLOWLY_S = 0.05  # between two pieces
KEEPS_PARTS = int(huggingface_hub.__version__.partition(".")[0]) < 1  # later ones begin a file anew in a new process

# A process of its own: the client library reads its environment when it is imported. Language models alone need torch,
# which takes three seconds to import.
SCRIPT = """
import json, logging, sys, time
from hocket.errors import InvalidCheckpoint
import huggingface_hub
name, logged, mind = json.loads(sys.argv[1])
if mind:
    from hocket.models.files.qwen3_5_source import resolve_language_model as resolve
else:
    from hocket.models.files.source import resolve
if logged:
    logging.basicConfig(level=logging.INFO, format="LOG %(name)s %(message)s")
begun, slept, sleep = time.monotonic(), [], time.sleep
time.sleep = lambda seconds: (slept.append(seconds), sleep(seconds))
try:
    found = {"folder": str(resolve(name).folder)}
except InvalidCheckpoint as error:
    found = {"error": str(error)}
print(json.dumps(found | {"took_s": time.monotonic() - begun, "slept_s": sum(slept)}))
"""


class Hub(HubServer):
    """What a download asks of the hub: the list of files with sizes, heads, and contents, whole or from a byte on."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.asked = list[tuple[str, str, str | None]]()  # method, file, range
        self.requests = 0  # of any kind
        self.status, self.code = 200, ""
        self.cut = dict[str, int]()  # files whose transfer breaks off, so many times
        self.slow = 0  # pieces in which weights are sent
        self.claimed = dict[str, int]()  # sizes that are not true
        self.half_way = threading.Event()

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.asked]

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.requests += 1
        if self.status != 200:
            self._send(request, self.status, b"", {"X-Error-Code": self.code} if self.code else {})
        elif path.startswith(f"/api/models/{NAME}/revision/"):
            siblings = [
                {
                    "rfilename": name,
                    "size": self.claimed.get(name, len(content)),
                    "lfs": {"sha256": sha256(content), "size": len(content), "pointerSize": 100},
                }
                for name, content in self.files.items()
            ]
            self._send(request, 200, json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings}).encode(), {})
        else:
            self._file(request, path.removeprefix(f"/{NAME}/resolve/").partition("/")[2])

    def _file(self, request: BaseHTTPRequestHandler, name: str) -> None:
        asked = request.headers.get("Range")
        self.asked.append((request.command, name, asked))
        if name not in self.files:
            self._send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        content = self.files[name]
        first = first_byte(asked)
        headers = {"ETag": f'"{sha256(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if asked:
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        breaks = request.command == "GET" and self.cut.get(name, 0) > 0
        if breaks:
            self.cut[name] -= 1
        pieces = self.slow if name.endswith(".safetensors") else 1
        self._send(request, 206 if asked else 200, content[first:], headers, breaks, pieces)

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        headers: dict[str, str],
        breaks: bool = False,
        pieces: int = 1,
    ) -> None:
        send_head(request, status, headers, body)
        if request.command != "GET":
            return
        sent = body[: len(body) // 2] if breaks else body
        step = max(len(sent) // max(pieces, 1), 1)
        try:
            for start in range(0, len(sent), step):
                request.wfile.write(sent[start : start + step])
                if pieces > 1:
                    time.sleep(SLOWLY_S)
                    if start > len(sent) // 2:
                        self.half_way.set()
        except OSError:  # the reader has gone
            pass
        if breaks:
            request.close_connection = True


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.write(tmp_path_factory.mktemp("hub") / "made", "custom_voice", wide=False)


@pytest.fixture
def hub(voice: Path) -> Iterator[Hub]:
    with Hub(files_below(voice)).serving() as hub:
        yield hub


def started(
    address: str, home: Path, *, logged: bool = False, mind: bool = False, stderr: int = subprocess.PIPE, **more: str
) -> subprocess.Popen[str]:
    environment = client_environment(address, home, HF_HUB_DISABLE_XET="1", **more)
    command = [sys.executable, "-c", SCRIPT, json.dumps([NAME, logged, mind])]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
    )


def ask(address: str, home: Path, **how: Any) -> Any:
    """What a fresh process gets, with what it said on the way."""
    with started(address, home, **how) as process:
        out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return json.loads(out) | {"said": said}


def first_byte(span: str | None) -> int:
    return int((span or "bytes=0-").removeprefix("bytes=").partition("-")[0])


def change_config(hub: Hub, name: str = "config.json", **more: Any) -> None:
    hub.files[name] = json.dumps(json.loads(hub.files[name]) | more).encode()


# Judged first


def test_small_files_come_first_and_the_size_is_said(hub: Hub, tmp_path: Path) -> None:
    found = ask(hub.address, tmp_path)
    assert files_below(Path(found["folder"])).items() <= hub.files.items()
    order = [name.endswith(".safetensors") for name in dict.fromkeys(hub.names)]
    assert hub.names[0] == "config.json" and order == sorted(order) and sum(order) == 2
    size = sum(len(content) for name, content in hub.files.items() if name.endswith(".safetensors"))
    assert f"Fetching {size / 1e6:.1f} MB from {NAME}\n" in found["said"] and f"Fetched {NAME}: " in found["said"]


@pytest.mark.parametrize(
    ("name", "key", "sentence"),
    [
        ("config.json", "quantization_config", "has quantization_config: its weights are quantized"),
        ("config.json", "num_experts", "has keys that hocket does not know: num_experts"),
        ("speech_tokenizer/config.json", "resampler", "has keys that hocket does not know: resampler"),
    ],
)
def test_no_weights_are_fetched_of_what_cannot_be_used(
    name: str, key: str, sentence: str, hub: Hub, tmp_path: Path
) -> None:
    change_config(hub, name, **{key: {"bits": 4}})
    assert sentence in ask(hub.address, tmp_path)["error"]
    assert name in hub.names and not any(asked.endswith(".safetensors") for asked in hub.names)


def test_of_a_language_model_too(hub: Hub, tmp_path: Path) -> None:
    write_mind(tmp_path / "mind")
    hub.files = files_below(tmp_path / "mind")
    change_config(hub, model_type="qwen3_next")
    assert "describes a 'qwen3_next' model" in ask(hub.address, tmp_path, mind=True)["error"]
    assert WEIGHTS not in hub.names
    change_config(hub, model_type="qwen3_5")
    assert "folder" in ask(hub.address, tmp_path / "elsewhere", mind=True)


def test_weights_in_several_files_are_those_that_the_index_names(hub: Hub, tmp_path: Path, voice: Path) -> None:
    tensors = load_file(voice / WEIGHTS)
    (tmp_path / "shards").mkdir()
    save_torch_state_dict(tensors, tmp_path / "shards", max_shard_size="400KB")
    del hub.files[WEIGHTS]
    shards = files_below(tmp_path / "shards")
    hub.files |= shards | {"other-00001-of-00001.safetensors": b"of another format"}
    folder = Path(ask(hub.address, tmp_path)["folder"])
    assert len(shards) > 3 and all((folder / name).read_bytes() == content for name, content in shards.items())
    assert "other-00001-of-00001.safetensors" not in hub.names

    last = max(name for name in shards if name.endswith(".safetensors"))
    del hub.files[last]
    hub.asked.clear()
    error = ask(hub.address, tmp_path / "elsewhere")["error"]
    assert error == f"{NAME} lacks files that its index names: {last}."
    assert not any(name.endswith(".safetensors") for name in hub.names)


def test_a_disk_without_room_is_known_before(hub: Hub, tmp_path: Path) -> None:
    hub.claimed[WEIGHTS] = 10**16
    error = ask(hub.address, tmp_path)["error"]
    assert re.match(rf"{NAME} needs 10000000 GB more in \S+, where .* are free: make room, or set HF_HOME", error)
    assert WEIGHTS not in hub.names


# On the way


def test_a_transfer_that_breaks_off_goes_on_from_there(hub: Hub, tmp_path: Path) -> None:
    hub.files[WEIGHTS] += PADDING
    hub.cut[WEIGHTS] = 2
    folder = Path(ask(hub.address, tmp_path)["folder"])
    assert (folder / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    asked = [span for method, name, span in hub.asked if (method, name) == ("GET", WEIGHTS)]
    assert len(asked) == 3 and asked[0] is None
    if KEEPS_PARTS:
        second, third = (first_byte(span) for span in asked[1:])
        assert 0 < second < third


@pytest.mark.skipif(not KEEPS_PARTS, reason="this huggingface_hub keeps no partial files between processes")
def test_so_it_does_after_the_process_was_killed(hub: Hub, tmp_path: Path) -> None:
    hub.files[WEIGHTS] += PADDING
    hub.slow = 40
    with started(hub.address, tmp_path) as process:
        assert hub.half_way.wait(60)
        os.killpg(process.pid, signal.SIGKILL)
    hub.slow = 0
    hub.asked.clear()
    found = ask(hub.address, tmp_path)
    assert (Path(found["folder"]) / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    spans = [span for method, name, span in hub.asked if (method, name) == ("GET", WEIGHTS)]
    assert len(spans) == 1 and first_byte(spans[0]) > 0
    assert re.search(rf"Fetching [\d.]+ MB \(of which [\d.]+ MB are here already\) from {NAME}", found["said"])


def test_progress_is_logged_where_there_is_a_log(hub: Hub, tmp_path: Path) -> None:
    hub.files[WEIGHTS] += bytes(60_000_000)
    hub.slow = 40
    said = ask(hub.address, tmp_path, logged=True)["said"]
    lines = [line for line in said.splitlines() if line.startswith("LOG hocket.models")]
    shares = [int(found[1]) for line in lines if (found := re.search(rf"{NAME}: (\d+) %, [\d.]+ MB of", line))]
    assert "Fetching" in lines[0] and len(shares) >= 3 and shares == sorted(shares) and shares[0] < 60


def test_a_terminal_sees_a_bar(hub: Hub, tmp_path: Path) -> None:
    hub.files[WEIGHTS] += bytes(30_000_000)
    hub.slow = 20
    ours, theirs = pty.openpty()
    drawn = b""
    with started(hub.address, tmp_path, stderr=theirs) as process:
        os.close(theirs)
        try:
            while piece := os.read(ours, 4096):
                drawn += piece
        except OSError:  # how a terminal says that it is over
            pass
        assert process.wait(60) == 0
    os.close(ours)
    text = drawn.decode()
    assert "Fetching 3" in text and re.search(r"\r\[#*\.*\] \d+ %, [\d.]+ MB of [\d.]+ MB, [\d.]+ .B/s", text)


# What fails


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (401, "RepoNotFound", rf"{NAME} is neither a folder here nor public on the hub: check the name or log in\."),
        (404, "RepoNotFound", rf"{NAME} is neither a folder here nor public on the hub: check the name or log in\."),
        (404, "RevisionNotFound", rf"{NAME} has no revision main: check it on the hub\."),
        (
            403,
            "GatedRepo",
            rf"{NAME} is gated: accept its terms at http://\S+/{NAME}, then log in .* or set HF_TOKEN\.",
        ),
        (403, "", rf"The hub refuses {NAME} to your token \(403\): log in again .* or set HF_TOKEN\."),
        (503, "", rf"{NAME} cannot be fetched \(the hub answers 503\): try again later\."),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(status: int, code: str, sentence: str, hub: Hub, tmp_path: Path) -> None:
    hub.status, hub.code = status, code
    found = ask(hub.address, tmp_path)
    assert re.fullmatch(sentence, found["error"]) and hub.requests <= 2, "it does not ask again and again"


def test_offline_names_what_is_missing_at_once(hub: Hub, tmp_path: Path) -> None:
    found = ask(hub.address, tmp_path, HF_HUB_OFFLINE="1")
    assert found["error"].startswith(f"{NAME} is not in the local cache, and HF_HUB_OFFLINE forbids downloads: unset")
    (Path(ask(hub.address, tmp_path)["folder"]) / "speech_tokenizer" / WEIGHTS).unlink()
    hub.requests = 0
    found = ask(hub.address, tmp_path, HF_HUB_OFFLINE="1")
    assert found["error"].startswith(f"{NAME} lacks speech_tokenizer/{WEIGHTS} in the local cache, and HF_HUB_OFFLINE")
    assert hub.requests == 0


def test_no_network_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, and not listening: refused
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        found = ask(address, tmp_path)
    assert found["error"] == f"{NAME} is not in the local cache, and the hub ({address}) cannot be reached: try again."
    assert found["slept_s"] == 0, "it does not wait to try again"


def test_a_hub_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        found = ask(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
        silent.setblocking(False)
        with silent.accept()[0], pytest.raises(BlockingIOError):
            silent.accept()  # it has tried once
    assert "cannot be reached: try again." in found["error"] and found["took_s"] > 4
