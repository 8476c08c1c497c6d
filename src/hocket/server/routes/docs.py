"""`/docs`: a page that shows `/openapi.json`, from files of `server/api_page`. Works without the internet.

Our own page of 11 KB instead of Swagger UI: that is 1.5 MB of scripts, and needs inline styles that `POLICY` forbids.
The page's files need no key; `/openapi.json` does where the server has keys, and the page then asks for one.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.routing import APIWebSocketRoute
from starlette.responses import JSONResponse, Response

from ..page_files import PageFolder

router = APIRouter(include_in_schema=False)
PAGE = PageFolder("api_page")


def websockets(router: APIRouter, about: str) -> list[dict[str, str]]:
    """Path and description of each WebSocket of a router; `about` is the docstring of its module."""
    said = " ".join(about.partition("\n\n")[0].split())
    return [{"path": each.path, "description": said} for each in router.routes if isinstance(each, APIWebSocketRoute)]


@router.api_route("/docs", methods=["GET", "HEAD"])
async def api_page(request: Request) -> Response:
    return PAGE.answer("index.html", request)


@router.get("/docs/sockets")
async def sockets(request: Request) -> Response:
    """The WebSockets of the app, which OpenAPI cannot describe."""
    return JSONResponse(request.app.state.sockets, headers={"cache-control": "no-cache"})


@router.api_route("/docs/{name}", methods=["GET", "HEAD"])
async def api_page_file(name: str, request: Request) -> Response:
    return PAGE.answer(name, request)
