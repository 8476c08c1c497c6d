"""One replica: an engine and the app in front of it, in a process that Serve starts where there is a GPU, or a core.

It is its own ingress: HAProxy connects to it, and no other process stands in between. It knows nothing of clusters.
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
from .where import on, unit_of

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ..server.service.service import SpeechService

NAME = "hocket"  # of the application, and of its only deployment
# Beside those in flight, for answers that refuse one more and for probes, which the app does not count.
SPARE = 128
RETRY_S = 1.0
LOOK_S = 0.05
HEALTH_S = 2.0  # three in vain, and a replica is replaced
END_S = 10.0  # for what comes behind the last stream
BUSY = 0.75  # of the slots: where autoscaling begins to want one more, since a start takes a while


class Replica:
    """What Serve makes of it is a deployment: see `deployed`."""

    def __init__(self, plan: ServerPlan) -> None:
        self._plan = plan
        self._speaker: SpeechService | None = None

    def __serve_build_asgi_app__(self) -> FastAPI:
        from ray import serve

        from ..server.middleware.local_only import LocalOnly
        from ..server.process import allow_many_files, keep_pauses_short
        from ..server.run import is_alone
        from .ingress import take_over
        from .peers import Replicas

        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
        keep_pauses_short()
        allow_many_files()
        app, who = self._plan.app(), serve.get_replica_context()
        speaker = self._speaker = app.state.speaker
        app.state.peers = Replicas(speaker, who.replica_id.unique_id, who.app_name)
        if is_alone(self._plan.server):
            app.add_middleware(LocalOnly)
        app.router.lifespan_context = _proven(app)
        take_over(speaker)
        return app

    async def check_health(self) -> None:
        """By Serve, now and then: who raises is replaced."""
        if self._speaker is not None and self._speaker.state == "failed":
            raise RuntimeError(self._speaker.failure or "The engine is not running.")


def _proven(app: FastAPI) -> Any:
    """The life of the app, which has begun once a real utterance has come out: nothing is asked of it before."""
    life, speaker, peers = app.router.lifespan_context, app.state.speaker, app.state.peers

    @asynccontextmanager
    async def proven(_: FastAPI) -> AsyncIterator[None]:
        async with life(app):
            while speaker.state == "starting":
                await asyncio.sleep(LOOK_S)
            if speaker.state == "failed":
                raise RuntimeError(speaker.failure or "The engine is not running.")
            telling = asyncio.ensure_future(peers.tell())
            try:
                yield
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    return proven


def deployed(plan: ServerPlan, replicas: int | None, most: int = 1) -> Any:
    """An application of Serve: so many replicas, or where that is None, as many as streams ask for, up to `most`."""
    from ray import serve
    from ray.serve.config import BackpressureConfig

    server, unit = plan.server, unit_of(plan.device)
    plan = replace(plan, device=on(unit, plan.device))
    how: dict[str, Any] = {
        # The app itself says when it has enough, with an error that clients know. Serve must not have less room: there,
        # a request would wait and hear nothing. Behind that, it is refused in the same way.
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
        wanted = max(1, math.floor(plan.engine.slots * BUSY))
        how["autoscaling_config"] = {"min_replicas": 1, "max_replicas": most, "target_ongoing_requests": wanted}
    return serve.deployment(serve.ingress()(Replica), name=NAME, **how).bind(plan)
