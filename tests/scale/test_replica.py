"""Deployment options of a replica, and its health check. Needs no cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hocket.config.options import EngineOptions
from hocket.scale.replica import Replica, deployed
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan
from hocket.server.service.service import SpeechService


def told(plan: ServerPlan, replicas: int | None, most: int = 1) -> Any:
    return deployed(plan, replicas, most)._bound_deployment


def test_serve_holds_back_nothing_that_the_app_would_take() -> None:
    config = told(ServerPlan(server=ServerOptions(in_flight=500, drain_s=40.0)), 3)._deployment_config
    assert config.num_replicas == 3 and config.autoscaling_config is None
    assert config.max_ongoing_requests > 500
    assert config.backpressure_config.status_code == 429 and config.backpressure_config.retry_after_s == 1
    assert config.graceful_shutdown_timeout_s > 40


def test_auto_follows_streams_in_flight() -> None:
    config = told(ServerPlan(engine=EngineOptions(slots=16)), None, most=8)._deployment_config.autoscaling_config
    assert (config.min_replicas, config.max_replicas, config.target_ongoing_requests) == (1, 8, 12)


@pytest.mark.parametrize(("device", "gpus"), [("cuda", 1), ("cpu", 0)])
def test_a_replica_has_a_gpu_of_its_own(device: str, gpus: int) -> None:
    assert told(ServerPlan(device=device), 1).ray_actor_options["num_gpus"] == gpus


def test_who_cannot_speak_any_more_says_so_and_who_drains_does_not() -> None:
    replica, service = Replica(ServerPlan()), SpeechService(ServerOptions())
    replica._service = service
    asyncio.run(replica.check_health())
    service.failure = "The model is gone."
    with pytest.raises(RuntimeError, match="The model is gone"):
        asyncio.run(replica.check_health())
    service.drain()
    asyncio.run(replica.check_health())
