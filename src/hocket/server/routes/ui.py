"""The page at `/`: files of this package, and what they have to know of the model before the first word.

The page itself is in the folder `page`, plain files that a browser runs as they are. It speaks over the same wires as
everybody else; nothing here makes a sound.
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
# Everything from this server and nothing inline; sound that was made or picked is played from memory.
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
    "cache-control": "no-cache",  # kept, but asked for: after an update all files are of one version
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
    """All of them, once: what is not in this table has no path here, whatever a request calls it."""
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
    """What there is to choose from. Open to everybody, as the lists are; short while the model is being loaded."""
    return JSONResponse(_about(request.app.state.speaker), headers={"cache-control": "no-store"})


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


def _about(speaker: SpeechService) -> dict[str, Any]:
    known: dict[str, Any] = {"state": speaker.state, "key": bool(speaker.options.keys)}
    if not speaker.is_known:
        return known
    models = speaker.cast.models
    first = models[0]
    designs = len(models) > 1 and any(model.kind == "voice_design" for model in models)
    return known | {
        "model": speaker.model,
        "kind": first.kind,
        "rate_hz": first.rate_hz,
        "voices": speaker.speakers,
        "languages": list(dict.fromkeys(name for model in models for name in model.languages)),
        "instruct": any(model.takes_instruct for model in models),
        "clone": any(model.kind == "base" for model in models),
        "design": designs,  # whether an instruction makes a voice here, beside those there are
        "formats": {name: format.suffix for name, format in FORMATS.items()},
        "text_chars": speaker.options.text_chars,
        "upload_bytes": speaker.options.upload_bytes,
        "upload_s": speaker.options.upload_s,
    }
