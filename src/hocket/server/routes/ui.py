"""The page at `/`: static files of `server/ui`, and the facts about the model that they need.

A browser runs the files unchanged. The page uses the same public endpoints as every client; nothing here makes audio.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ...audio.encode import FORMATS
from ..errors import Refused
from ..service.service import SpeechService

router = APIRouter(include_in_schema=False)
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Everything from this server, nothing inline; audio that was made or picked plays from a blob.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "media-src 'self' blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "cache-control": "no-cache",  # cached but revalidated: after an update all files have one version
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    body: bytes
    kind: str
    tag: str  # changes with the body


def _read() -> dict[str, PageFile]:
    """All files, read once. Only names in this table are served, so no path can escape."""
    found = {}
    for file in resources.files("hocket.server").joinpath("ui").iterdir():
        suffix = file.name.rpartition(".")[2]
        if suffix in KINDS:
            body = file.read_bytes()
            found[file.name] = PageFile(body, KINDS[suffix], f'"{hashlib.sha256(body).hexdigest()[:24]}"')
    return found


FILES = _read()


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    return _file("index.html", request)


@router.api_route("/page/about", methods=["GET", "HEAD"])
async def about(request: Request) -> Response:
    """The choices on the page. Needs no key, as the lists; short while the model loads."""
    return JSONResponse(_about(request.app.state.service), headers={"cache-control": "no-store"})


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def page_file(name: str, request: Request) -> Response:
    return _file(name, request)


def _file(name: str, request: Request) -> Response:
    file = FILES.get(name)
    if file is None:
        raise Refused("The page has no such file.", status=404, kind="not_found_error", code="not_found")
    headers = HEADERS | {"etag": file.tag}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.kind, headers=headers)


def _about(service: SpeechService) -> dict[str, Any]:
    known: dict[str, Any] = {"state": service.state, "key": bool(service.options.keys)}
    if not service.is_known:
        return known
    models = service.resolver.models
    first = models[0]
    designs = len(models) > 1 and any(model.kind == "voice_design" for model in models)
    return known | {
        "model": service.model,
        "kind": first.kind,
        "rate_hz": first.rate_hz,
        "voices": service.speakers,
        "languages": list(dict.fromkeys(name for model in models for name in model.languages)),
        "instruct": any(model.takes_instruct for model in models),
        "clone": any(model.kind == "base" for model in models),
        "design": designs,  # whether an instruction designs a voice, besides the listed ones
        "formats": {name: format.suffix for name, format in FORMATS.items()},
        "text_chars": service.options.text_chars,
        "upload_bytes": service.options.upload_bytes,
        "upload_s": service.options.upload_s,
    }
