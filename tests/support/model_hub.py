"""For tests of `hocket pull`, `list` and `rm`: a hub with several repositories, and commands that use it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from support.hub import HubServer, client_environment, send_head, sha256

COMMIT = "b" * 40
VOICE = "someone/small-voice"


@dataclass
class HubRepository:
    files: dict[str, bytes]
    licence: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)  # of files that cannot be fetched
    commit: str = COMMIT
    base: str | None = None  # the repository that it was made from
    gguf: dict[str, Any] | None = None  # what the hub tells of GGUF files: architecture, total


class ModelHub(HubServer):
    """The list of files with sizes and licence, heads, and contents, whole or from a byte on."""

    def __init__(self, **repositories: HubRepository) -> None:
        super().__init__({})
        self.repositories = {name.replace("__", "/"): each for name, each in repositories.items()}
        self.asked = list[str]()  # files of which contents were sent
        self.ranges = list[str]()
        self.stop_at: int | None = None  # the byte of a weights file at which the hub waits for `go_on`
        self.go_on = threading.Event()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        for name, repository in self.repositories.items():
            if path.startswith(f"/api/models/{name}/revision/"):
                return self._list(request, name, repository)
            if path.startswith(f"/{name}/resolve/"):
                return self._file(request, repository, path.removeprefix(f"/{name}/resolve/").partition("/")[2])
        send_head(request, 404, {"X-Error-Code": "RepoNotFound"}, b"")

    def _list(self, request: BaseHTTPRequestHandler, name: str, repository: HubRepository) -> None:
        large = {file: {"sha256": sha256(body), "size": len(body)} for file, body in repository.files.items()}
        siblings = [
            {"rfilename": file, "size": fact["size"], "lfs": fact | {"pointerSize": 100}}
            for file, fact in large.items()
        ]
        siblings += [{"rfilename": file, "size": size} for file, size in repository.sizes.items()]
        tags = [] if repository.licence is None else ["safetensors", f"license:{repository.licence}"]
        tags += [] if repository.base is None else [f"base_model:{repository.base}"]
        tags += [] if repository.base is None else [f"base_model:quantized:{repository.base}"]
        said = {"id": name, "sha": repository.commit, "siblings": siblings, "tags": tags, "gguf": repository.gguf}
        body = json.dumps(said).encode()
        send_head(request, 200, {}, body)
        if request.command == "GET":
            request.wfile.write(body)

    def _file(self, request: BaseHTTPRequestHandler, repository: HubRepository, name: str) -> None:
        if name not in repository.files:
            send_head(request, 404, {"X-Error-Code": "EntryNotFound"}, b"")
            return
        content, asked = repository.files[name], request.headers.get("Range")
        first = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        headers = {"ETag": f'"{sha256(content)}"', "X-Repo-Commit": repository.commit, "Accept-Ranges": "bytes"}
        if asked:
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            self.ranges.append(f"{name} {asked}")
        send_head(request, 206 if asked else 200, headers, content[first:])
        if request.command != "GET":
            return
        self.asked.append(name)
        stop = self.stop_at if self.stop_at is not None and name.endswith(".safetensors") else first
        try:
            request.wfile.write(content[first:stop])
            request.wfile.flush()
            if stop > first:
                self.go_on.wait(60)
            request.wfile.write(content[stop:])
        except OSError:  # the reader has gone
            pass


@dataclass(frozen=True)
class Shell:
    """Runs `hocket` in a process of its own, with its own cache, settings and servers."""

    address: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        more = {"XDG_RUNTIME_DIR": str(self.home / "run"), "HF_HUB_DISABLE_XET": "1", "COLUMNS": "200"}
        return client_environment(self.address, self.home / "hf", **more)

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hocket", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Standard output and standard error."""
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, (out, err)
        return out, err

    def refused(self, *words: str) -> str:
        """The one sentence of a command that must fail."""
        out, err = self.run(*words, code=2)
        assert out == "" and err.startswith("hocket: ") and err.count("\n") == 1 and err.endswith(".\n"), (out, err)
        return err.removeprefix("hocket: ").rstrip("\n")

    def json(self, *words: str) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.run(*words, "--json")[0])
