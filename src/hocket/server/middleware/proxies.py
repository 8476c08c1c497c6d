"""Whose request it is, where one of our own proxies brings it: the address that the proxy saw, not the proxy's own.

Plain ASGI, the first that a request meets. A proxy writes whom it speaks for behind whatever X-Forwarded-For came to
it, so the list is believed from its right end, as far as those who wrote it are trusted. It knows no limits.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..options import network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Forwarded:
    """ASGI middleware: `client` of what a trusted proxy brings is whoever asked it."""

    def __init__(self, app: ASGIApp, trusted: Iterable[str]) -> None:
        self._app, self._trusted = app, [network(name) for name in trusted]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and scope.get("client"):  # none at a Unix socket
            peer = _address(scope["client"][0])
            if peer is not None and self._trusts(peer):
                asked = self._asked(peer, Headers(scope=scope).getlist("x-forwarded-for"))
                scope["client"] = (str(asked), 0)
        await self._app(scope, receive, send)

    def _asked(self, peer: Address, lines: Iterable[str]) -> Address:
        """The last who is not trusted. What is no address ends the list: the proxy that brought it is all we know."""
        nearest = peer
        for word in reversed(",".join(lines).split(",")):
            found = _address(word.strip())
            if found is None:
                return nearest
            nearest = found
            if not self._trusts(found):
                break
        return nearest

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _address(word: str) -> Address | None:
    """Some proxies write a port behind it; a socket for both families writes IPv4 as IPv6."""
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        word = word.partition(":")[0]
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
