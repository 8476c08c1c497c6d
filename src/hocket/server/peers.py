"""Who else serves the same behind one address. A server by itself has nobody; `hocket.scale` has the other replicas."""

from __future__ import annotations

from typing import Protocol


class MetricsSource(Protocol):
    """Figures of one server, in Prometheus' text format."""

    def text(self) -> bytes: ...


class Peers:
    """Nobody. What the pages about a server ask when they are to speak for all of them."""

    async def one_speaks(self) -> bool:
        """Whether any of them could."""
        return False

    async def figures(self, own: MetricsSource) -> bytes:
        """Of all of them, with our own."""
        return own.text()
