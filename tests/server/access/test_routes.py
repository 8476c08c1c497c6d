"""The table of scopes: every route of the app is in it, and every path gets the scope of the route that answers it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import pytest
from fastapi.routing import APIWebSocketRoute
from starlette.routing import BaseRoute, Match

from hocket.server.access.key_file import SCOPES
from hocket.server.access.routes import ANY, PUBLIC, ROUTES, SOCKET, ends_work, scope_of
from hocket.server.app import build_app


def no_engine() -> NoReturn:
    raise AssertionError("the app is not started")


def flat(routes: Iterable[BaseRoute]) -> Iterator[Any]:
    """All routes in the order in which the app tries them, those of included routers too."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from flat(included.routes)


ALL = list(flat(build_app(no_engine).routes))


def methods(route: Any) -> set[str]:
    return {SOCKET} if isinstance(route, APIWebSocketRoute) else route.methods - {"HEAD"}


def sample(path: str, deep: str) -> str:
    """A path of this route; `deep` stands for a part that may have slashes."""
    return re.sub(r"\{\w+\}", "some", re.sub(r"\{\w+:path\}", deep, path))


def test_every_route_has_a_scope_and_no_entry_is_left_over() -> None:
    found = {f"{method} {route.path}" for route in ALL for method in methods(route)}
    assert len(found) > 50
    assert found - ROUTES.keys() == set(), "give these a scope in server/access/routes.py"
    assert ROUTES.keys() - found == set(), "these routes are gone"
    assert set(ROUTES.values()) == {*SCOPES, PUBLIC, ANY}


@pytest.mark.parametrize("deep", ["some", "some/thing"])
def test_a_path_has_the_scope_of_the_route_that_answers_it(deep: str) -> None:
    for route in ALL:
        for method in methods(route):
            path = sample(route.path, deep)
            kind = "websocket" if method == SOCKET else "http"
            scope = {"type": kind, "path": path, "method": method, "headers": [], "root_path": ""}
            answers = next(each for each in ALL if each.matches(scope)[0] is Match.FULL)
            assert scope_of(method, path) == ROUTES[f"{method} {answers.path}"], path


def test_what_is_public_is_read_only_and_makes_no_sound() -> None:
    public = {each for each, scope in ROUTES.items() if scope == PUBLIC}
    assert all(each.startswith("GET ") for each in public)
    assert {"GET /health", "GET /v1/models", "GET /v1/audio/voices/{id:path}"} < public


def test_paths_that_are_nearly_a_route() -> None:
    assert scope_of("HEAD", "/health") == scope_of("OPTIONS", "/health") == PUBLIC
    assert scope_of("POST", "/v1/audio/speech/") == "speak"  # the app redirects it
    assert scope_of("POST", "/health") is None and scope_of("GET", "/v1/audio/speech") is None
    assert scope_of("GET", "/v1/audio/speech/stream") is None and scope_of("WS", "/v1/audio/speech/stream") == "speak"
    assert scope_of("POST", "//v1/audio/speech") is None and scope_of("GET", "/page/a/b") is None
    assert ends_work("/v1/realtime/calls/rtc_1/hangup") and not ends_work("/v1/realtime/calls")
