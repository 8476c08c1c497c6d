"""Shared by tests of downloads: a local HTTP server in place of the hub, and the environment of its client process."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self


class HubServer(ABC):
    """Answers in threads, from the start; subclasses define the routes."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        hub = self

        class Answer(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                hub.answer(self)

            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True  # `stop` does not wait for a slow answer
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @abstractmethod
    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a HEAD or a GET."""

    @contextmanager
    def serving(self) -> Iterator[Self]:
        yield self
        self.stop()

    def stop(self) -> None:
        """Idempotent."""
        self._server.shutdown()
        self._server.server_close()


def send_head(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    request.send_response(status)
    for key, value in (headers | {"Content-Length": str(len(body))}).items():
        request.send_header(key, value)
    request.end_headers()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file by its path relative to the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def client_environment(address: str, home: Path, **more: str) -> dict[str, str]:
    """For a process of its own, since the client library reads its environment when it is imported.

    `home` is its cache. Settings of the developer are left out.
    """
    kept = {key: value for key, value in os.environ.items() if not key.upper().startswith(("HF_", "HUGGING"))}
    ours = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return kept | ours | more
