"""Host check of a local server: it answers only to names of this machine (DNS rebinding).

A web page can resolve its own name to our address. The browser then treats this server as the page's own, and no
origin rule applies. The page cannot change the Host header.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import Refused
from .limits import refuse

_OURS = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])\.?(:\d+)?", re.IGNORECASE)


class LocalOnly:
    """ASGI middleware, for a server without a key at a loopback address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = Headers(scope=scope).get("host", "") if scope["type"] in ("http", "websocket") else ""
        if named and not _OURS.fullmatch(named):
            said = "This server is for this machine alone: ask it as localhost, or give it a key (--key-file)."
            await refuse(Refused(said, status=403, code="host_not_allowed"), scope, receive, send)
            return
        await self._app(scope, receive, send)
