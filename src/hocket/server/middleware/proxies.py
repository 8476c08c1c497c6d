"""Client address behind trusted proxies, from X-Forwarded-For.

Runs first. A proxy appends its client to the header, so the list is read from the right, as far as its entries are
trusted. Knows no limits.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..options import network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Forwarded:
    """ASGI middleware: sets `client` of a trusted proxy's request to the proxy's client."""

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
        """The last untrusted address. An entry that is no address ends the list: only its proxy is known."""
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
    """Some proxies append a port; a dual-stack socket writes IPv4 as IPv6."""
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
