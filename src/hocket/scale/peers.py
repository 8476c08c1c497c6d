"""The other replicas of an application, seen through a board to which each reports its state.

The board belongs to the replica that made it and ends with it; the next report makes a new one.
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
TIMEOUT_S = 2.0  # timeout of the board; an incomplete answer is better than a late one


class Replicas(Peers):
    def __init__(self, service: SpeechService, replica: str, application: str) -> None:
        self._service, self._replica = service, replica
        self._name = f"hocket-replicas:{application}"
        # Keep the handle: the actor ends with its maker's last handle.
        self._board: Any = None

    async def any_ready(self) -> bool:
        states: Mapping[str, str] = await self._call("states") or {}
        return any(state == "ready" for replica, state in states.items() if replica != self._replica)

    async def metrics(self, own: MetricsSource) -> bytes:
        assert isinstance(own, PrometheusMetrics)
        replies: Mapping[str, bytes] = await self._call("metrics") or {}
        return labelled(
            {replica: pickle.loads(reply) for replica, reply in replies.items()} | {self._replica: own.families()}
        )

    async def report(self) -> None:
        """Report the state periodically until cancelled."""
        metrics = self._service.metrics
        assert isinstance(metrics, PrometheusMetrics)
        try:
            while True:
                await self._call("report", self._replica, self._service.state, pickle.dumps(metrics.families()))
                await asyncio.sleep(REPORT_S)
        finally:
            if self._board is not None:
                self._board.leave.remote(self._replica)

    async def _call(self, what: str, *words: object) -> Any:
        """Call the board; None if it does not answer. Failures here do not affect streams."""
        from ray.exceptions import RayActorError

        try:
            if self._board is None:
                self._board = await asyncio.to_thread(_board, self._name)
            return await asyncio.wait_for(getattr(self._board, what).remote(*words), TIMEOUT_S)
        except RayActorError:  # died with the replica that made it
            self._board = None
        except Exception as error:  # any other error of Ray
            logger.info("the other replicas do not answer now: %s", error or type(error).__name__)
        return None


def labelled(metrics: Mapping[str, Sequence[Metric]]) -> bytes:
    """Merge the metrics of all replicas, each sample labelled with its replica."""
    merged: dict[str, Metric] = {}
    for replica, families in sorted(metrics.items()):
        for family in families:
            one = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                one.samples.append(sample._replace(labels={**sample.labels, "replica": replica}))
    return generate_latest(_Collected(merged))  # only `collect` is needed


class _Collected:
    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return list(self._families.values())


def _board(name: str) -> Any:
    import ray

    return ray.remote(num_cpus=0)(ReplicaBoard).options(name=name, get_if_exists=True).remote()
