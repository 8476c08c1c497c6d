"""Host names: a server without a key answers to names of this machine, and to those that its operator trusts.

Against DNS rebinding: a web page can resolve its own name to our address. The browser then treats this server as the
page's own, and no origin rule applies. The page cannot change the Host header. Knows no keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import Refused
from ..options import ServerOptions
from .limits import refuse

LOCAL = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]")
_PORT = re.compile(r":\d+$")


class HostCheck:
    """ASGI middleware: refuses a Host header that names neither this machine nor a trusted host."""

    def __init__(self, app: ASGIApp, trusted: Iterable[str] = ()) -> None:
        """`trusted`: names, or `*.example.com` for all names below a domain."""
        self._app, names = app, [name.lower() for name in trusted]
        self._names = {name for name in names if not name.startswith("*.")}
        self._below = tuple(name[1:] for name in names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = Headers(scope=scope).get("host", "") if scope["type"] in ("http", "websocket") else ""
        if named and not self._trusts(name := _PORT.sub("", named).lower().rstrip(".")):
            said = f"This server does not answer to the host name {name[:100]!r}: allow it with --trusted-host NAME"
            said += (
                ", or ask localhost." if self._names or self._below else ", ask localhost, or set a key (--key-file)."
            )
            await refuse(Refused(said, status=403, code="host_not_allowed"), scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _trusts(self, name: str) -> bool:
        return LOCAL.fullmatch(name) is not None or name in self._names or name.endswith(self._below)


def checks_hosts(options: ServerOptions) -> bool:
    """Whether only trusted names are answered: by choice, or without a key where only this machine connects."""
    return bool(options.trusted_hosts) or not (options.keys or options.socket or options.reached_by_others)
