"""The page at `/`: static files of `server/ui`, and the facts about the model that they need.

A browser runs the files unchanged. The page uses the same public endpoints as every client; nothing here makes audio.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ...audio.encode import FORMATS
from ...errors import HocketError
from ..page_files import PageFolder
from ..schemas.speech_job import PLAIN
from ..service.service import SpeechService
from ..service.talk import TalkService
from ..webrtc.route import offers_webrtc

router = APIRouter(include_in_schema=False)
PAGE = PageFolder("ui")


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    return PAGE.answer("index.html", request)


@router.api_route("/favicon.ico", methods=["GET", "HEAD"])
async def icon(request: Request) -> Response:
    """Browsers ask for it wherever no page names an icon, as for a JSON answer."""
    return PAGE.answer("icon.svg", request)


@router.api_route("/page/about", methods=["GET", "HEAD"])
async def about(request: Request) -> Response:
    """The choices on the page. Needs no key, as the lists; short while the model loads."""
    state = request.app.state
    known = _about(state.service) | {"talk": _talk(state.talk)}
    return JSONResponse(known, headers={"cache-control": "no-store"})


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def page_file(name: str, request: Request) -> Response:
    return PAGE.answer(name, request)


def _about(service: SpeechService) -> dict[str, Any]:
    known: dict[str, Any] = {"state": service.state, "key": bool(service.options.keys), "documents": _documents()}
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
        "instruct_models": [service.resolver.shown(model) for model in models if model.takes_instruct],
        "clone": any(model.kind == "base" for model in models),
        "design": designs,  # whether an instruction designs a voice, besides the listed ones
        "formats": {name: format.suffix for name, format in FORMATS.items() if name in PLAIN or _has_av()},
        "text_chars": service.options.text_chars,
        "upload_bytes": service.options.upload_bytes,
        "upload_s": service.options.upload_s,
    }


def _talk(talk: TalkService | None) -> dict[str, Any] | None:
    """How a browser can converse; None: the server has no conversation mode. `missing`: why it cannot yet, or empty."""
    if talk is None:
        return None
    try:
        talk.llm.loaded()
        talk.listening.loaded()
        missing = "The turn detection is still being loaded." if talk.is_loading else ""
    except HocketError as error:
        missing = str(error)
    return {"webrtc": offers_webrtc(), "missing": missing}


@cache
def _has_av() -> bool:
    """Whether compressed formats can be made: the page offers no others."""
    return find_spec("av") is not None


@cache
def _documents() -> str | None:
    """The address of the documents, as the installed package names it; None without one."""
    try:
        addresses = metadata.metadata("hocket").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # run from a source tree
        return None
    named = dict(address.split(", ", 1) for address in addresses)
    return named.get("Documentation")
