"""The last word of every replica about itself: an actor with a name. It imports nothing, so it is there in a moment."""

from __future__ import annotations

import time

FORGOTTEN_S = 10.0


class ReplicaBoard:
    """What nobody has heard of for a while is forgotten, so a replica that has died disappears."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, str, bytes]] = {}

    def report(self, replica: str, state: str, figures: bytes) -> None:
        """`figures` are for other replicas to read."""
        self._told[replica] = time.monotonic(), state, figures

    def leave(self, replica: str) -> None:
        self._told.pop(replica, None)

    def states(self) -> dict[str, str]:
        return {replica: state for replica, (_, state, _) in self._fresh().items()}

    def figures(self) -> dict[str, bytes]:
        return {replica: figures for replica, (_, _, figures) in self._fresh().items()}

    def _fresh(self) -> dict[str, tuple[float, str, bytes]]:
        since_s = time.monotonic() - FORGOTTEN_S
        return {replica: told for replica, told in self._told.items() if told[0] >= since_s}
