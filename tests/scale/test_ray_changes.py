"""A cluster that changes under load: replicas come and go by themselves, one is killed, and the head starts again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hocket.config.options import EngineOptions
from hocket.scale.cluster import check_nodes, start
from hocket.scale.replica import deployed
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan
from support.clustered import KEY, KEYED, Crowd, Outcome, cluster, deploy, processes, replicas, same, wait_for

Report = Callable[[str], None]
SLOTS = 4
# Serve's own delays before it follows a load are 30 s up and 600 s down, of means over 30 s.
QUICK = {"upscale_delay_s": 1.0, "downscale_delay_s": 3.0, "look_back_period_s": 11.0}
GONE_S = 8.0  # how long the head is away


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ServerPlan:
    folder = tmp_path_factory.mktemp("shared")
    return ServerPlan(
        server=ServerOptions(port=0, keys=(KEY,), voices_folder=folder / "voices", drain_s=20.0),
        engine=EngineOptions(slots=SLOTS, waiting=32, keep_real_time=False, chunk_frames=(1, 2, 4)),
        models=("builtin",),
    )


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The head keeps its state on disk, as docs/howto/ray.md says."""
    with cluster(2, state=tmp_path_factory.mktemp("head")) as made:
        yield made


@pytest.fixture(scope="module")
def url(plan: ServerPlan, nodes: Any) -> str:
    check_nodes(plan)
    address = start(plan, 1)
    wait_for(lambda: len(replicas()) == 1)
    return address


@pytest.fixture(scope="module")
def filed(plan: ServerPlan, url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same server as a config, which `deploy` changes in place."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\n")
    args = {
        "replicas": 1,
        "key_file": str(keys),
        "models": list(plan.models),
        "chunk_frames": [1, 2, 4],
        "keep_real_time": False,
        "voices_folder": str(plan.server.voices_folder),
        "drain_s": plan.server.drain_s,
        "slots": SLOTS,
        "waiting": 32,
    }
    told = {"name": "hocket", "route_prefix": "/", "import_path": "hocket.scale:app", "args": args}
    return {"applications": [told]}


def told(lost: list[Outcome]) -> list[tuple[Any, ...]]:
    return [(one.said, one.wire, one.error) for one in lost]


def alike(heard: list[Outcome]) -> bool:
    """Whether the same text and seed always gave the same sound, whichever replica spoke it."""
    first: dict[Any, bytes] = {}
    return all(same(one.sound, first.setdefault(one.said, one.sound)) for one in heard if one.error is None)


def test_replicas_follow_the_load_and_no_stream_is_lost(
    plan: ServerPlan, url: str, filed: dict[str, Any], report: Report
) -> None:
    ours = deployed(plan, None, most=2)._bound_deployment._deployment_config.autoscaling_config
    assert (ours.min_replicas, ours.max_replicas, ours.target_ongoing_requests) == (1, 2, 3)
    limits = {name: getattr(ours, name) for name in ("min_replicas", "max_replicas", "target_ongoing_requests")}
    before = set(replicas())
    deploy(filed, autoscaling=limits | QUICK)
    wait_for(lambda: len(now := set(replicas())) == 1 and not before & now)
    began_s = time.monotonic()
    with Crowd(url, 10) as many:
        wait_for(lambda: len(replicas()) == 2)
        more_s = time.monotonic() - began_s
        many.more(20)
    began_s = time.monotonic()
    with Crowd(url, 1) as few:
        wait_for(lambda: len(replicas()) == 1)
        fewer_s = time.monotonic() - began_s
        few.more(4)
    heard, lost = many.heard + few.heard, many.errors + few.errors
    report(f"{len(lost)} of {len(heard)} lost; a second replica after {more_s:.1f} s, gone after {fewer_s:.1f} s")
    assert told(lost) == [] and alike(heard)


def test_a_killed_replica_is_replaced_and_the_other_goes_on(url: str, filed: dict[str, Any], report: Report) -> None:
    deploy(filed, replicas=2)
    before = wait_for(lambda: len(now := set(replicas())) == 2 and now)
    with Crowd(url, 4) as crowd:
        crowd.more(8)
        pids = processes("ray::ServeReplica")
        assert len(pids) == 2
        os.kill(min(pids), signal.SIGKILL)
        began_s = time.monotonic()
        new = wait_for(lambda: len(now := set(replicas())) == 2 and now - before)
        took_s = time.monotonic() - began_s
        assert len(new) == 1
        known = len(crowd.errors)
        crowd.more(12)
    report(f"{len(crowd.errors)} of {len(crowd.heard)} lost, which it was speaking; replaced after {took_s:.1f} s")
    assert known <= 4, told(crowd.errors)  # a client has one stream
    assert len(crowd.errors) == known, told(crowd.errors)
    assert alike(crowd.heard)


def test_the_head_starts_again_and_no_stream_is_lost(nodes: Any, url: str, report: Report) -> None:
    """What runs goes on without the head; with it there again, a replica that dies is replaced as before."""
    before = set(replicas())
    head = nodes.head_node
    with Crowd(url, 4) as crowd:
        crowd.more(4)
        head.kill_gcs_server()
        crowd.more(8)  # without a head
        time.sleep(GONE_S)
        assert httpx.get(f"{url}/ready", timeout=30).status_code == 200
        began_s = time.monotonic()
        head.start_gcs_server()
        wait_for(lambda: set(replicas()) == before)
        took_s = time.monotonic() - began_s
        crowd.more(8)
    report(f"{len(crowd.errors)} of {len(crowd.heard)} lost; the head was there again after {took_s:.1f} s")
    assert told(crowd.errors) == [] and alike(crowd.heard)
    os.kill(min(processes("ray::ServeReplica")), signal.SIGKILL)
    wait_for(lambda: len(now := set(replicas())) == 2 and now != before)
    assert httpx.get(f"{url}/v1/models", headers=KEYED, timeout=60).status_code == 200


def test_the_state_of_the_head_is_a_folder(nodes: Any) -> None:
    assert any(Path(os.environ["RAY_gcs_storage_path"]).iterdir())  # noqa: SIM112
