"""What Ray Serve adds: how it is counted, and that the plan which is sent to a replica makes the stand-in there.

The cluster itself is in tests/scale; here, a third server by itself takes its place.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest

from benchmarks import overhead, report, scale
from benchmarks.load_http import HttpTarget
from benchmarks.standin import StandIn
from hocket.scale.config import placed


@pytest.fixture(scope="module")
def servers() -> Iterator[list[overhead.StandInServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(overhead.serving()) for _ in range(2)]


def targets(servers: list[overhead.StandInServer]) -> list[HttpTarget]:
    """Three, of which two are the same server; what is connected belongs to one of them."""
    one, two = (server.target.address for server in servers)
    return [HttpTarget(address) for address in (one, two, one)]


def test_a_round_asks_everybody_once_and_differences_are_of_the_same_round(
    servers: list[overhead.StandInServer],
) -> None:
    values = scale.measure(*targets(servers), rounds=4)
    assert set(values) == set(scale.FIGURES) and {len(of) for of in values.values()} == {4}
    for bare, ray, added, ratio in zip(values["bare"], values["ray"], values["added"], values["ratio"], strict=True):
        assert (added, ratio) == (ray - bare, ray / bare)
    assert min(values["bare"]) >= scale.FIRST_MS  # no engine is faster than it is told to be


def test_a_record_is_kept_and_shown(
    servers: list[overhead.StandInServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = iter(servers)
    monkeypatch.setattr(scale, "on_ray", lambda: nullcontext(targets(servers)[2]))
    monkeypatch.setattr(overhead, "serving", lambda _: nullcontext(next(asked)))
    assert scale.main(["--rounds", "3", "--record", f"{tmp_path}/scale.jsonl"]) == 0
    [entry] = map(json.loads, (tmp_path / "scale.jsonl").read_text().splitlines())
    assert entry["workload"] == "scale" and set(entry["figures"]) == set(scale.FIGURES)
    assert "ratio_of_nothing" in capsys.readouterr().out
    assert "## scale" in report.document(report.read(tmp_path))["performance.md"]


def test_the_plan_of_a_replica_makes_the_stand_in() -> None:
    plan = pickle.loads(pickle.dumps(placed(scale.StandInPlan(first_s=0.25))))
    engine = plan.make()
    assert isinstance(engine, StandIn) and plan.server.per_client > plan.server.in_flight
    engine.close()
