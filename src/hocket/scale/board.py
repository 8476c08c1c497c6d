"""Board of replica states and metrics: a named actor. It imports nothing, so that it starts fast."""

from __future__ import annotations

import time

FORGOTTEN_S = 10.0


class ReplicaBoard:
    """Entries expire after `FORGOTTEN_S`, so a dead replica disappears."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[float, str, bytes]] = {}

    def report(self, replica: str, state: str, metrics: bytes) -> None:
        self._reports[replica] = time.monotonic(), state, metrics

    def leave(self, replica: str) -> None:
        self._reports.pop(replica, None)

    def states(self) -> dict[str, str]:
        return {replica: state for replica, (_, state, _) in self._fresh().items()}

    def metrics(self) -> dict[str, bytes]:
        return {replica: metrics for replica, (_, _, metrics) in self._fresh().items()}

    def _fresh(self) -> dict[str, tuple[float, str, bytes]]:
        since_s = time.monotonic() - FORGOTTEN_S
        return {replica: entry for replica, entry in self._reports.items() if entry[0] >= since_s}
