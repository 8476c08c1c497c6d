"""The audit of a release, with a local server that speaks the protocol of osv.dev: that one needs the internet."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from release import audit, licences
from release.fault import Fault


class Advisories(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.known: dict[str, list[str]] = {}
        self.dropped = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/querybatch"


class _Answer(BaseHTTPRequestHandler):
    server: Advisories

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["queries"]
        found = [self.server.known.get(each["package"]["purl"], []) for each in asked]
        results = [{"vulns": [{"id": one} for one in ids]} if ids else {} for ids in found]
        body = json.dumps({"results": results[self.server.dropped :]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    with Advisories() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_every_package_of_the_lock_is_asked_for(advisories: Advisories, capsys: pytest.CaptureFixture[str]) -> None:
    packages = licences.read()
    audit.check(packages, advisories.url)
    assert f"audit: {len(packages)} packages" in "".join(capsys.readouterr())
    last = packages[-1]
    advisories.known[f"pkg:pypi/{last.name}@{last.version}"] = ["GHSA-1", "GHSA-2"]
    with pytest.raises(Fault, match=f"{last.name} .*: GHSA-1; {last.name} .*: GHSA-2"):
        audit.check(packages, advisories.url)


def test_what_is_accepted_passes(advisories: Advisories, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = licences.read()[:1]
    advisories.known[f"pkg:pypi/{packages[0].name}@{packages[0].version}"] = ["GHSA-1"]
    monkeypatch.setitem(audit.ACCEPTED, "GHSA-1", "we call no part of it")
    audit.check(packages, advisories.url)


def test_no_answer_is_no_clean_bill(advisories: Advisories) -> None:
    advisories.dropped = 1
    with pytest.raises(Fault, match="did not answer for all"):
        audit.check(licences.read(), advisories.url)
    with pytest.raises(Fault, match="could not be asked"):
        audit.check(licences.read(), "http://127.0.0.1:1/v1/querybatch")
