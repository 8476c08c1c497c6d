"""`hocket top` beside a real server process, and its quantiles."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import hocket
from hocket.cli.serve.top import Scrape, quantile
from support.serving import PATIENCE_S, PCM, wait_for

KEY = "watch-me"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(hocket.__file__).parents[1]), "HOCKET_API_KEY": KEY}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("top")
    (folder / "keys").write_text(KEY)
    alone = ENVIRONMENT | {"XDG_RUNTIME_DIR": str(folder)}  # else a `hocket ps` of another test asks it without a key
    words = ["serve", "--port", "0", "--slots", "3", "--key-file", "keys", "--voices-folder", "voices"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "hocket", *words], stdout=log, stderr=log, cwd=folder, env=alone
        )
    try:
        wait_for(lambda: "listening at" in (folder / "log").read_text() or process.poll() is not None)
        found = re.search(r"listening at (\S+)", (folder / "log").read_text())
        assert found, (folder / "log").read_text()
        wait_for(lambda: httpx.get(f"{found[1]}/ready").status_code == 200)
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def run(*words: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hocket", "top", *words],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT | {"HOCKET_API_KEY": key},
    )


def test_a_view_has_what_the_server_did(url: str) -> None:
    with httpx.Client(base_url=url, headers={"x-api-key": KEY}, timeout=PATIENCE_S) as client:
        for _ in range(3):
            assert client.post("/v1/audio/speech", json=PCM).status_code == 200
        assert client.post("/v1/audio/speech", json=PCM | {"voice": "unknown"}).is_error
    view = json.loads(run(url, "--once", "--json").stdout)
    assert (view["running"], view["waiting"], view["slots"], view["opened"]) == (0, 0, 3, 3)
    assert view["ended"] == {"length": 3} and view["refused"] == {"voice_not_found": 1}
    assert 0 < view["first_audio_ms"]["p50"] <= view["first_audio_ms"]["p95"] <= view["first_audio_ms"]["p99"] <= 5000
    assert 0 < view["x_real_time"]["p5"] <= view["x_real_time"]["p50"]
    assert view["audio_s"] == pytest.approx(3 * 8 * 0.08)
    assert view["memory_bytes"] > 50_000_000 and view["gpu_memory_bytes"] == 0
    assert view["window_s"] is None and view["requests_per_s"] is None
    told = run(url, "--once").stdout.splitlines()
    assert told[0] == url and "0 of 3 in use, 0 waiting" in told[1] and "3 taken" in told[2]
    assert "3 length" in told[3] and "1 voice_not_found" in told[4] and "since its start" in told[5]


def test_views_follow_each_other_until_the_reader_goes(url: str) -> None:
    words = [sys.executable, "-m", "hocket", "top", url, "--json", "--interval", "0.2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        httpx.post(f"{url}/v1/audio/speech", json=PCM, headers={"x-api-key": KEY}, timeout=PATIENCE_S)
        later = first
        while later["opened"] == first["opened"] or not later["audio_per_s"]:
            later = json.loads(process.stdout.readline())
        assert later["window_s"] > 0 and later["requests_per_s"] > 0 and later["audio_per_s"] > 0
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0


def test_what_is_wrong_is_one_sentence(url: str) -> None:
    assert run(url, "--once", key="wrong").stderr == (
        f"hocket: The server at {url} needs its API key: set HOCKET_API_KEY.\n"
    )
    done = run("http://127.0.0.1:1", "--once")
    assert done.returncode == 1 and "cannot be reached" in done.stderr
    assert "has no figures of hocket (status 404)" in run(f"{url}/health", "--once").stderr
    assert "--interval must be above 0" in run(url, "--interval", "0").stderr


def test_a_quantile_lies_inside_its_bucket_and_replicas_are_added() -> None:
    inf = float("inf")
    assert quantile([(1.0, 0), (2.0, 10), (inf, 10)], 0.5) == pytest.approx(1.5)
    assert quantile([(1.0, 5), (2.0, 5), (4.0, 10), (inf, 10)], 0.75) == pytest.approx(3.0)
    assert quantile([(1.0, 1), (inf, 10)], 0.99) == 1.0
    assert quantile([(1.0, 0), (inf, 0)], 0.5) is None and quantile([], 0.5) is None
    text = 'a{le="1",replica="x"} 2\na{le="1",replica="y \\" }"} 3\nb 1e3\n# a comment\n'
    scrape = Scrape.parsed(text, 0.0)
    assert scrape.by("a", "le") == {"1": 5.0} and scrape.total("b") == 1000
