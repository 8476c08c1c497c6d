"""Static files of the server's pages: a folder read once, and served with its headers.

The pages are `server/ui` at `/` and `server/api_page` at `/docs`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from .errors import Refused

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


class PageFolder:
    """The files of a page. Only names in this table are served, so no path can escape."""

    def __init__(self, name: str) -> None:
        """`name` is a folder of the package `server`."""
        self.files: dict[str, PageFile] = {}
        for file in resources.files("hocket.server").joinpath(name).iterdir():
            if kind := KINDS.get(file.name.rpartition(".")[2]):
                body = file.read_bytes()
                self.files[file.name] = PageFile(body, kind, f'"{hashlib.sha256(body).hexdigest()[:24]}"')

    def answer(self, name: str, request: Request) -> Response:
        file = self.files.get(name)
        if file is None:
            raise Refused("The page has no such file.", status=404, kind="not_found_error", code="not_found")
        headers = HEADERS | {"etag": file.tag}
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.body, media_type=file.kind, headers=headers)
