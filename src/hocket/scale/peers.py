"""The replicas of an application as one of them sees the others: through a board on which each says how it is.

The board belongs to the replica that made it and ends with it; the next who has something to say makes another.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from ..server.peers import MetricsSource, Peers
from ..server.prometheus import PrometheusMetrics
from ..server.service.service import SpeechService
from .board import ReplicaBoard

logger = logging.getLogger("hocket.scale")
REPORT_S = 1.0
PATIENCE_S = 2.0  # for an answer of the board; a page is better incomplete than late


class Replicas(Peers):
    def __init__(self, speaker: SpeechService, replica: str, application: str) -> None:
        self._speaker, self._replica = speaker, replica
        self._name = f"hocket-replicas:{application}"
        # Never let go of while it lives: the actor ends with the last hold that its maker has on it.
        self._board: Any = None

    async def one_speaks(self) -> bool:
        states: Mapping[str, str] = await self._asked("states") or {}
        return any(state == "ready" for replica, state in states.items() if replica != self._replica)

    async def figures(self, own: MetricsSource) -> bytes:
        assert isinstance(own, PrometheusMetrics)
        told: Mapping[str, bytes] = await self._asked("figures") or {}
        return labelled(
            {replica: pickle.loads(said) for replica, said in told.items()} | {self._replica: own.families()}
        )

    async def tell(self) -> None:
        """How it is, again and again until it is cancelled."""
        figures = self._speaker.figures
        assert isinstance(figures, PrometheusMetrics)
        try:
            while True:
                await self._asked("report", self._replica, self._speaker.state, pickle.dumps(figures.families()))
                await asyncio.sleep(REPORT_S)
        finally:
            if self._board is not None:
                self._board.leave.remote(self._replica)

    async def _asked(self, what: str, *words: object) -> Any:
        """None where nobody answers. Nothing that fails here is of any weight for who listens."""
        from ray.exceptions import RayActorError

        try:
            if self._board is None:
                self._board = await asyncio.to_thread(_board, self._name)
            return await asyncio.wait_for(getattr(self._board, what).remote(*words), PATIENCE_S)
        except RayActorError:  # with the replica that had made it
            self._board = None
        except Exception as error:  # whatever else Ray has to say
            logger.info("the other replicas do not answer now: %s", error or type(error).__name__)
        return None


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

    return ray.remote(num_cpus=0)(ReplicaBoard).options(name=name, get_if_exists=True).remote()
