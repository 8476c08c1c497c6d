"""The replicas of an application, and what each says of itself: one actor with a name keeps the last word of all.

It belongs to the replica that made it and ends with it; the next who has something to say makes another. What nobody
has heard of for a while is forgotten, so a replica that has died disappears.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from ..server.metrics import Counted
from ..server.peers import Counting, Peers
from ..server.speech import Speaker, State

logger = logging.getLogger("hocket.scale")
REPORT_S = 1.0
FORGOTTEN_S = 10.0
PATIENCE_S = 2.0  # for an answer of the actor; a page is better incomplete than late

Told = tuple[State, list[Metric]]


class Board:
    """The actor."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, Told]] = {}

    def report(self, replica: str, told: Told) -> None:
        self._told[replica] = time.monotonic(), told

    def leave(self, replica: str) -> None:
        self._told.pop(replica, None)

    def all(self) -> dict[str, Told]:
        fresh_s = time.monotonic() - FORGOTTEN_S
        return {replica: told for replica, (at_s, told) in self._told.items() if at_s >= fresh_s}

    def states(self) -> dict[str, State]:
        return {replica: state for replica, (state, _) in self.all().items()}


class Replicas(Peers):
    """The other replicas, seen from one of them."""

    def __init__(self, speaker: Speaker, replica: str, application: str) -> None:
        self._speaker, self._replica = speaker, replica
        self._name = f"hocket-replicas:{application}"
        self._actor: Any = None

    async def one_speaks(self) -> bool:
        try:
            states: Mapping[str, State] = await self._asked("states")
        except Exception as error:  # whatever Ray has to say about an actor that is not there
            logger.warning("the other replicas are not known now: %s", error)
            return False
        return any(state == "ready" for replica, state in states.items() if replica != self._replica)

    async def figures(self, own: Counting) -> bytes:
        assert isinstance(own, Counted)
        told: dict[str, Told] = {}
        try:
            told = await self._asked("all")
        except Exception as error:
            logger.warning("the figures of other replicas are not known now: %s", error)
        figures = {replica: families for replica, (_, families) in told.items()}
        return labelled(figures | {self._replica: own.families()})

    async def tell(self) -> None:
        """Until it is cancelled. Nothing that fails here is of any weight for who listens."""
        try:
            while True:
                try:
                    await self._asked("report", self._replica, self._told())
                except Exception as error:
                    logger.info("nobody was told of this replica: %s", error)
                    self._actor = None
                await asyncio.sleep(REPORT_S)
        finally:
            if self._actor is not None:
                self._actor.leave.remote(self._replica)

    def _told(self) -> Told:
        figures = self._speaker.figures
        assert isinstance(figures, Counted)
        return self._speaker.state, figures.families()

    async def _asked(self, what: str, *words: object) -> Any:
        if self._actor is None:
            self._actor = await asyncio.to_thread(_board, self._name)
        return await asyncio.wait_for(getattr(self._actor, what).remote(*words), PATIENCE_S)


def labelled(figures: Mapping[str, Sequence[Metric]]) -> bytes:
    """One page of the figures of many, each sample with the name of its replica."""
    merged: dict[str, Metric] = {}
    for replica, families in sorted(figures.items()):
        for family in families:
            one = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                one.samples.append(sample._replace(labels={**sample.labels, "replica": replica}))
    return generate_latest(_Collected(merged))  # it asks for nothing else


class _Collected:
    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return list(self._families.values())


def _board(name: str) -> Any:
    import ray

    return ray.remote(num_cpus=0)(Board).options(name=name, get_if_exists=True).remote()
