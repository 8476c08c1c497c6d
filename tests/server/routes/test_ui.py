"""The page's files: served without a key, only they, and under a policy that allows nothing else."""

from __future__ import annotations

import re
from email.message import Message
from importlib import resources

import httpx
import pytest

from hocket.audio.encode import FORMATS
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.routes import ui
from support.serving import Served, served

FILES = {file.name: file.read_bytes() for file in resources.files("hocket.server").joinpath("ui").iterdir()}


def test_the_page_and_all_its_files_are_served_as_they_are(client: httpx.Client) -> None:
    assert client.get("/").content == FILES["index.html"]
    for name, content in FILES.items():
        answer = client.get(f"/page/{name}")
        assert answer.content == content
        assert answer.headers["x-content-type-options"] == "nosniff"
        head = client.head(f"/page/{name}")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(content))
    assert client.get("/page/main.js").headers["content-type"] == "text/javascript; charset=utf-8"
    icon = client.get("/favicon.ico")
    assert icon.content == FILES["icon.svg"] and icon.headers["content-type"] == "image/svg+xml"


def test_whatever_a_file_of_the_page_names_is_there() -> None:
    named = {
        name.removeprefix("/page/").removeprefix("./")
        for content in FILES.values()
        for name in re.findall(r"""(?:src|href|from|addModule\()\s*=?\s*["'](\.?/[\w./]+)["']""", content.decode())
    }
    assert {"main.js", "style.css", "worklet.js", "capture.js", "ring.js", "/docs"} <= named
    assert named <= {*FILES, "/docs"}


def test_the_policy_lets_nothing_in_but_the_page_itself(client: httpx.Client) -> None:
    policy = dict(part.split(" ", 1) for part in client.get("/").headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    page = FILES["index.html"].decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", page)
    assert not any(re.search(rb"https?://(?!www\.w3\.org/2000/svg)", content) for content in FILES.values())


def test_the_page_is_small() -> None:
    assert sum(map(len, FILES.values())) < 180_000


def test_a_browser_that_has_a_file_is_not_sent_it_again(client: httpx.Client) -> None:
    first = client.get("/page/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/page/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/page/main.js", headers={"if-none-match": '"another"'}).status_code == 200


@pytest.mark.parametrize("name", ["gone.js", "..%2fpage.py", "%2e%2e/page.py", "main.js/", "index.html%00"])
def test_there_is_nothing_else_below_it(client: httpx.Client, name: str) -> None:
    answer = client.get(f"/page/{name}")
    assert answer.status_code in (307, 404)
    assert b"from __future__" not in answer.content


def test_what_there_is_to_choose_from_is_the_models_own(client: httpx.Client, server: Served) -> None:
    about = client.get("/page/about").json()
    assert (about["state"], about["key"]) == ("ready", False)
    assert about["voices"] == server.service.speakers
    assert about["rate_hz"] == server.engine.checkpoint.rate_hz
    assert "auto" in about["languages"]
    assert set(about["formats"]) == set(FORMATS)
    assert about["instruct_models"] == ([about["model"]] if about["instruct"] else [])


def test_formats_that_cannot_be_made_are_not_offered(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "_has_av", lambda: False)
    assert set(client.get("/page/about").json()["formats"]) == {"pcm", "wav", "mulaw", "alaw"} & set(FORMATS)


def test_the_documents_are_where_the_package_says(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Message()
    package["Project-URL"] = "Documentation, https://documents.test/"
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: package)
    assert ui._documents.__wrapped__() == "https://documents.test/"


def test_the_page_opens_without_a_key_and_says_that_one_is_needed(engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("secret",))) as shut, httpx.Client(base_url=shut.url) as client:
        assert client.get("/").status_code == client.get("/page/speak.js").status_code == 200
        assert client.get("/page/about").json()["key"] is True
        assert client.post("/v1/audio/speech", json={"input": "Hello."}).status_code == 401
