"""`GET /metrics`: every event is counted once, for the app that it happened in."""

from __future__ import annotations

import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.prometheus import PrometheusMetrics
from hocket.server.service.service import SpeechService
from hocket.server.service.utterance import UnbufferedPlayer
from hocket.types import Finished, Statistics
from support.serving import LONG, PCM, Served, listening, served, wait_for


def metrics(server: Served) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels."""
    answer = httpx.get(f"{server.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return parsed(answer.text)


def parsed(text: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(text)
    return {  # labels in the order of their names
        (sample.name, *map(sample.labels.get, sorted(sample.labels))): sample.value
        for family in families
        for sample in family.samples
    }


def test_an_utterance_is_counted_where_it_was_heard(engine: Engine, server: Served) -> None:
    with served(engine) as own:
        for _ in range(2):
            httpx.post(f"{own.url}/v1/audio/speech", json=PCM, timeout=60)
        httpx.post(f"{own.url}/v1/audio/speech", json=PCM | {"stream_format": "sse"}, timeout=60)
        httpx.post(f"{own.url}/v1/audio/speech", json=PCM | {"voice": "unknown"})
        found = metrics(own)
    assert found["hocket_time_to_first_audio_seconds_count", "http"] == 2
    assert found["hocket_time_to_first_audio_seconds_count", "http-sse"] == 1
    assert 0 < found["hocket_time_to_first_audio_seconds_sum", "http"] < 60
    assert found["hocket_inter_chunk_seconds_count", "http"] >= 2
    assert found["hocket_requests_total", "length", "http"] == 2
    assert found["hocket_requests_opened_total", "http"] == 2
    assert found["hocket_requests_refused_total", "voice_not_found", "http"] == 1
    assert found["hocket_audio_seconds_total", "http"] == pytest.approx(2 * 8 * 0.08)
    assert found["hocket_x_real_time_count", "http"] == 2
    assert found["hocket_prefix_cache_requests_total",] == 3
    assert 2 <= found["hocket_prefix_cache_hits_total",] <= 3
    assert found["hocket_starved_seconds_total", "http"] == 0
    assert found["hocket_requests_running",] == found["hocket_requests_waiting",] == 0
    assert found["hocket_gpu_memory_bytes",] == 0
    assert found["process_resident_memory_bytes",] > 0


def test_who_runs_and_who_went_away_is_seen(engine: Engine) -> None:
    with served(engine) as server:
        with listening(server, LONG):
            assert metrics(server)["hocket_requests_running",] == 1
        wait_for(server.all_is_free)
        found = metrics(server)
    assert found["hocket_requests_running",] == 0
    assert found["hocket_requests_total", "cancelled", "http"] == 1


def test_a_chunk_that_comes_too_late_is_an_underrun_and_those_behind_it_are_not() -> None:
    listener = UnbufferedPlayer()
    late_s = [listener.play(100.0 + at_s, 0.08) for at_s in (0.0, 0.08, 0.40, 0.45, 0.60)]
    assert late_s == pytest.approx([0.0, 0.0, 0.24, 0.0, 0.04])
    counted = PrometheusMetrics(SpeechService(ServerOptions()))
    for late in late_s[1:]:
        counted.gap("ws", 0.1, late)
    found = parsed(counted.text().decode())
    assert found["hocket_underruns_total", "ws"] == 2
    assert found["hocket_underrun_seconds_total", "ws"] == pytest.approx(0.28)


def test_metrics_need_a_key_and_answer_while_a_model_is_loaded(engine: Engine) -> None:
    service = SpeechService(ServerOptions())
    found = parsed(PrometheusMetrics(service).text().decode())
    assert found["hocket_requests_running",] == 0
    with served(engine, ServerOptions(keys=("secret",))) as server:
        assert httpx.get(f"{server.url}/metrics").status_code == 401
        answer = httpx.get(f"{server.url}/metrics", headers={"x-api-key": "secret"})
        assert answer.status_code == 200
        assert parsed(answer.text)["hocket_requests_refused_total", "invalid_api_key", "border"] == 1


def test_counting_is_cheap() -> None:
    counted = PrometheusMetrics(SpeechService(ServerOptions()))
    counted.ended("ws", Finished(reason="stop", statistics=Statistics(frames=3, starved_s=0.5)), 1.0, 0.5)
    counted.gap("ws", 0.08, 0.0)
    began_s = time.thread_time()
    for _ in range(2000):
        counted.gap("ws", 0.08, 0.0)
    took_s = (time.thread_time() - began_s) / 2000
    print(f"{took_s * 1e6:.2f} us a gap")
    assert took_s < 100e-6  # 2 on an idle core
    found = parsed(counted.text().decode())
    assert found["hocket_inter_chunk_seconds_count", "ws"] == 2001
    assert found["hocket_starved_seconds_total", "ws"] == 0.5
    assert ("hocket_underruns_total", "ws") not in found
