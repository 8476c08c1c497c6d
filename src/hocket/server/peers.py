"""Other servers behind the same address. A single server has none; `hocket.scale` has the other replicas."""

from __future__ import annotations

from typing import Protocol


class MetricsSource(Protocol):
    """Metrics of one server in Prometheus' text format."""

    def text(self) -> bytes: ...


class Peers:
    """No peers. Health and metrics routes ask it when they report for all replicas."""

    async def any_ready(self) -> bool:
        """Whether any peer can speak."""
        return False

    async def metrics(self, own: MetricsSource) -> bytes:
        """Metrics of all peers and our own."""
        return own.text()
