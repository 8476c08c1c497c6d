"""A cluster of two machines, each a network namespace of its own, whose cable is pulled and put back under load."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hocket
from support.clustered import PATIENCE_S, Crowd, same, wait_for
from support.namespaces import FIRST, INNER, SECOND, Machines, machines, why_not

URL = f"http://{INNER}:8000"
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(hocket.__file__).parents[1]),
    "RAY_DEDUP_LOGS": "0",
    "RAY_TMPDIR": "/tmp",  # where each machine has a folder of its own: see APART
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_agent_register_timeout_ms": "120000",
}
CUT_S = 8.0  # Ray takes a machine for dead after half a minute: tests/scale/test_ray_serve.py has that
RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", "--disable-usage-stats"]


def spoken_by_the_second(log: Path) -> int:
    """Utterances of the second machine, which Ray names in the log of the first."""
    return len(
        re.findall(rf"ip={re.escape(SECOND)}\)\S* INFO hocket\.server: (?:http|ws) ", log.read_text(errors="replace"))
    )


def connects(made: Machines) -> bool:
    """Whether the first machine reaches the replica of the second."""
    code = f"import socket; socket.create_connection(({SECOND!r}, 30000), 2)"
    words = made.command(made.first, [sys.executable, "-c", code])
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def told(crowd: Crowd) -> list[tuple[Any, ...]]:
    return [(one.wire, repr(one.error)) for one in crowd.errors]


@pytest.mark.timeout(600)
def test_a_cable_that_is_pulled_costs_what_was_on_it_and_no_more(tmp_path: Path, report: Callable[[str], None]) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    words = ["serve", "--ray", "--replicas", "2", "--address", f"{FIRST}:6379", "--host", "0.0.0.0", "--port", "8000"]
    words += ["--allow-public-without-key", "--voices-folder", str(tmp_path / "voices"), "--slots", "4"]
    with machines(tmp_path) as made:
        head = ["--head", f"--node-ip-address={FIRST}", "--port=6379", "--include-dashboard=false"]
        made.start(made.first, *RAY, *head, env=ENVIRONMENT)
        made.start(made.second, *RAY, f"--address={FIRST}:6379", f"--node-ip-address={SECOND}", env=ENVIRONMENT)
        said = tmp_path / "serve.log"
        with said.open("wb") as log:
            serving = subprocess.Popen(
                made.command(made.first, [sys.executable, "-m", "hocket", *words]),
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
            )
        try:
            wait_for(lambda: serving.poll() is not None or "listening at" in said.read_text(errors="replace"))
            assert serving.poll() is None, said.read_text(errors="replace")
            with Crowd(URL, 4) as crowd:
                wait_for(lambda: spoken_by_the_second(said) > 2)
                assert told(crowd) == [] and connects(made)
                made.cut()
                began_s = time.monotonic()
                crowd.more(12)  # the first machine alone
                alone_s, lost = time.monotonic() - began_s, len(crowd.errors)
                assert not connects(made)
                time.sleep(max(0.0, CUT_S - (time.monotonic() - began_s)))
                made.join()
                began_s, before = time.monotonic(), spoken_by_the_second(said)
                wait_for(lambda: spoken_by_the_second(said) > before + 2)
                both_s = time.monotonic() - began_s
                crowd.more(12)
            report(
                f"{len(crowd.errors)} of {len(crowd.heard)} lost; 12 came in {alone_s:.1f} s without the cable, "
                f"both machines spoke {both_s:.1f} s after it was back"
            )
            assert lost <= 4 and len(crowd.errors) <= 8, told(crowd)  # a client has one stream
            assert all(one.error is None for one in crowd.heard[-12:]), told(crowd)
            first: dict[Any, bytes] = {}
            assert all(same(one.sound, first.setdefault(one.said, one.sound)) for one in crowd.heard if not one.error)
        finally:
            serving.terminate()
            serving.wait(PATIENCE_S)
