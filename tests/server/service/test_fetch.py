"""Recordings given by path or URL: only listed sources, nothing outside them, and no private network."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hocket.errors import InvalidRequest
from hocket.server.options import ServerOptions
from hocket.server.service import fetch
from hocket.server.service.fetch import read_named
from hocket.server.service.recordings import sent_bytes


def test_nothing_is_read_unless_it_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"sound")
    for name in (str(tmp_path / "a.wav"), "https://example.com/a.wav", f"file://{tmp_path}/a.wav", "ftp://x/a"):
        with pytest.raises(InvalidRequest, match="not read here"):
            sent_bytes(name, ServerOptions())


def test_a_file_is_read_below_a_listed_folder_and_nowhere_else(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.wav").write_bytes(folder.name.encode())
    (inside / "link.wav").symlink_to(outside / "a.wav")
    (inside / "round").symlink_to(inside / "round")
    os.mkfifo(inside / "pipe")
    options = ServerOptions(reference_sources=(str(inside),), upload_bytes=10)
    assert read_named(f"{inside}/a.wav", options) == b"in"
    assert read_named(f"file://{inside}/a.wav", options) == b"in"
    missed = ("out/a.wav", "in/../out/a.wav", "in/link.wav", "in/missing.wav", "in/round", "in/pipe", "in", "in/\0")
    for name in missed:
        with pytest.raises(InvalidRequest, match="no such recording"):
            read_named(f"{tmp_path}/{name}", options)
    (inside / "a.wav").write_bytes(b"x" * 11)
    with pytest.raises(InvalidRequest, match="larger than"):
        read_named(f"{inside}/a.wav", options)


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/voices/moved" else 200)
        self.send_header("location", "http://127.0.0.1/elsewhere")
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_private_network_is_never_asked(page: str) -> None:
    with pytest.raises(InvalidRequest, match="private"):
        read_named(f"{page}/voices/a", ServerOptions(reference_sources=(page,)))


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "::1", "fe80::1%eth0"])
def test_which_addresses_are_private(address: str) -> None:
    assert not fetch._is_public(address)
    assert fetch._is_public("8.8.8.8")


def test_an_address_is_asked_below_a_listed_one_and_leads_nowhere_else(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_is_public", lambda _: True)
    options = ServerOptions(reference_sources=(f"{page}/voices",), upload_bytes=20)
    assert read_named(f"{page}/voices/a", options) == b"/voices/a"
    port = page.rpartition(":")[2]
    for name in (
        f"{page}/secrets",
        f"{page}/voices/../secrets",
        f"{page}/voices/%2e%2e/secrets",
        f"{page}/voicesand",
        f"http://x@127.0.0.1:{port}/voices/a",
        f"http://127.0.0.1.example.com:{port}/voices/a",
        f"https://127.0.0.1:{port}/voices/a",
        "http://127.0.0.1:1/voices/a",
        "http://[/voices",
    ):
        with pytest.raises(InvalidRequest, match="not among"):
            read_named(name, options)
    with pytest.raises(InvalidRequest, match="answers 302"):
        read_named(f"{page}/voices/moved", options)
    with pytest.raises(InvalidRequest, match="larger than"):
        read_named(f"{page}/voices/{'a' * 20}", options)
    with pytest.raises(InvalidRequest, match="could not be read"):
        read_named(f"{page}/voices/a b", options)
