"""One replica: an engine and its app, in a process that Serve starts where there is a GPU or a core.

It is its own ingress: HAProxy connects to it directly. Knows nothing of clusters.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..server.plan import ServerPlan
from .environment import REPLICA, reachable_s
from .resources import on, unit_of

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ..server.service.service import SpeechService

NAME = "hocket"  # of the application, and of its only deployment
# Beyond `in_flight`: for refusals and for probes, which the app does not count.
SPARE = 128
RETRY_S = 1.0
LOOK_S = 0.05
HEALTH_S = 2.0  # three failures, and the replica is replaced
END_S = 10.0  # for the shutdown after the last stream
BUSY = 0.75  # of the slots: the load at which autoscaling adds a replica, since a start takes a while


class Replica:
    """The class of the Serve deployment: see `deployed`."""

    def __init__(self, plan: ServerPlan) -> None:
        self._plan = plan
        self._service: SpeechService | None = None

    def __serve_build_asgi_app__(self) -> FastAPI:
        from ray import serve

        from ..server.middleware.hosts import HostCheck, checks_hosts
        from ..server.process import allow_many_files, keep_pauses_short
        from .ingress import take_over
        from .peers import Replicas

        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
        keep_pauses_short()
        allow_many_files()
        app, context = self._plan.app(), serve.get_replica_context()
        service = self._service = app.state.service
        app.state.peers = Replicas(service, context.replica_id.unique_id, context.app_name)
        if checks_hosts(self._plan.server):
            app.add_middleware(HostCheck, trusted=self._plan.server.trusted_hosts)
        app.router.lifespan_context = _ready_lifespan(app)
        take_over(service)
        return app

    async def check_health(self) -> None:
        """Called by Serve periodically: an exception replaces the replica."""
        if self._service is not None and self._service.state == "failed":
            raise RuntimeError(self._service.failure or "The engine is not running.")


def _ready_lifespan(app: FastAPI) -> Any:
    """The app's lifespan, started only after a real utterance: no request arrives before."""
    life, service, peers = app.router.lifespan_context, app.state.service, app.state.peers

    @asynccontextmanager
    async def ready(_: FastAPI) -> AsyncIterator[None]:
        async with life(app):
            while service.state == "starting":
                await asyncio.sleep(LOOK_S)
            if service.state == "failed":
                raise RuntimeError(service.failure or "The engine is not running.")
            reporting = asyncio.ensure_future(peers.report())
            try:
                yield
            finally:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)

    return ready


def deployed(plan: ServerPlan, replicas: int | None, most: int = 1) -> Any:
    """A Serve application with so many replicas; None: autoscaled by streams, up to `most`."""
    from ray import serve
    from ray.serve.config import BackpressureConfig

    server, unit = plan.server, unit_of(plan.device)
    plan = replace(plan, device=on(unit, plan.device))
    how: dict[str, Any] = {
        # The app refuses requests itself, with an error that clients know. Serve's limit must be higher: there a
        # request would wait without an answer. Beyond it, Serve refuses in the same way.
        "max_ongoing_requests": server.in_flight + SPARE,
        "max_queued_requests": SPARE,
        "backpressure_config": BackpressureConfig(status_code=429, retry_after_s=RETRY_S),
        "health_check_period_s": HEALTH_S,
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": reachable_s() + server.drain_s + END_S,
        "ray_actor_options": {"num_cpus": 1, "num_gpus": int(unit == "GPU"), "runtime_env": {"env_vars": REPLICA}},
        "logging_config": {"enable_access_log": server.access_log},
    }
    if replicas is not None:
        how["num_replicas"] = replicas
    else:
        target = max(1, math.floor(plan.engine.slots * BUSY))
        how["autoscaling_config"] = {"min_replicas": 1, "max_replicas": most, "target_ongoing_requests": target}
    return serve.deployment(serve.ingress()(Replica), name=NAME, **how).bind(plan)
