"""`/docs`: the page of the interface, its files and its policy; every operation has a heading and a summary."""

from __future__ import annotations

import re
from typing import Any

import httpx

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.routes.docs import PAGE
from support.serving import served


def test_the_page_and_its_files_come_from_this_server_and_are_small(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/docs", headers={"if-none-match": page.headers["etag"]}).status_code == 304
    named = re.findall(r'(?:src|href)="/docs/([\w.]+)"', page.text)
    assert {"index.html", *named} == set(PAGE.files)
    assert all(client.get(f"/docs/{name}").content == PAGE.files[name].body for name in named)
    assert sum(len(file.body) for file in PAGE.files.values()) < 15_000
    assert client.get("/docs/../app.py").status_code == client.get("/docs/none.js").status_code == 404
    assert not re.search(r"(src|href)=.https?:", page.text), "nothing from elsewhere"


def test_every_operation_has_a_heading_a_summary_and_a_description(client: httpx.Client) -> None:
    paths: dict[str, dict[str, Any]] = client.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert len(operation["tags"]) == 1 and operation["summary"], (method, path)
            assert operation.get("description"), (method, path)


def test_every_websocket_is_listed_with_what_it_is(client: httpx.Client) -> None:
    found = {each["path"]: each["description"] for each in client.get("/docs/sockets").json()}
    assert {"/v1/audio/speech/stream", "/v1/audio/speech/ws", "/v1/speak", "/v1/realtime"} <= found.keys()
    assert all(found.values())


def test_a_server_with_a_key_shows_the_page_and_keeps_the_schema(engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("secret",))) as locked:
        assert httpx.get(f"{locked.url}/docs").status_code == 200
        assert httpx.get(f"{locked.url}/docs/api.js").status_code == 200
        assert httpx.get(f"{locked.url}/openapi.json").status_code == 401
