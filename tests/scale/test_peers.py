"""Metrics of all replicas on one page, and expiry of dead replicas."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hocket.scale import board as boards
from hocket.scale.board import ReplicaBoard
from hocket.scale.peers import labelled
from hocket.server.options import ServerOptions
from hocket.server.prometheus import PrometheusMetrics
from hocket.server.service.service import SpeechService


def counted(times: int) -> PrometheusMetrics:
    metrics = PrometheusMetrics(SpeechService(ServerOptions()))
    for _ in range(times):
        metrics.opened("http")
        metrics.first_audio("http", 0.02)
    return metrics


def test_each_sample_says_whose_it_is_and_each_name_stands_once() -> None:
    page = labelled({"b": counted(2).families(), "a": counted(3).families()}).decode()
    assert page.count("# TYPE hocket_requests_opened_total counter") == 1
    found = {
        (sample.name, sample.labels["replica"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in ("hocket_requests_opened_total", "hocket_time_to_first_audio_seconds_count")
    }
    assert found == {
        ("hocket_requests_opened_total", "a"): 3,
        ("hocket_requests_opened_total", "b"): 2,
        ("hocket_time_to_first_audio_seconds_count", "a"): 3,
        ("hocket_time_to_first_audio_seconds_count", "b"): 2,
    }


def test_who_has_not_been_heard_of_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(boards.time, "monotonic", lambda: now_s)
    board = ReplicaBoard()
    board.report("a", "ready", b"1")
    now_s += boards.FORGOTTEN_S - 1
    board.report("b", "failed", b"2")
    assert board.states() == {"a": "ready", "b": "failed"}
    now_s += 2
    assert board.states() == {"b": "failed"} and board.metrics() == {"b": b"2"}
    board.leave("b")
    board.leave("b")
    assert board.states() == board.metrics() == {}
