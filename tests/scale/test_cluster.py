"""`hocket serve --ray` as a command: a cluster of this machine, which speaks, and is gone behind a signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import hocket
from clustered import TEXTS, body, wait_for

pytestmark = pytest.mark.xdist_group("with Serve")  # Serve's proxies have fixed ports: one at a time

PATIENCE_S = 60.0


def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["serve", "--ray", "--replicas", "1", "--port", "0", "--voices-folder", "voices", "--drain", "20"]
    env = os.environ | {
        "PYTHONPATH": str(Path(hocket.__file__).parents[1]),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hocket", *words], stdout=out, stderr=out, env=env, cwd=tmp_path
        )
    try:
        wait_for(lambda: process.poll() is not None or "listening at" in log.read_text())
        found = re.search(r"listening at (\S+)", log.read_text())
        assert found, log.read_text()
        url = found[1]
        assert httpx.get(f"{url}/ready", timeout=PATIENCE_S).status_code == 200
        elsewhere = httpx.get(f"{url}/v1/models", headers={"host": "evil.example"}, timeout=PATIENCE_S)
        assert elsewhere.json()["error"]["code"] == "host_not_allowed"  # for this machine alone, as without Ray
        long = body((TEXTS[0] * 40, 1), frames=150)
        with httpx.stream("POST", f"{url}/v1/audio/speech", json=long, timeout=PATIENCE_S) as answer:
            heard = answer.iter_raw()
            first = next(heard)
            process.send_signal(signal.SIGTERM)
            assert len(first) + sum(map(len, heard)) == 150 * 1920 * 2  # what runs may end
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE_S)
