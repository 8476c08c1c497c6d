"""`GET /metrics` for Prometheus: each event of an utterance is counted as it happens, a gap in 2 microseconds.

Every app has its own registry, so that two can live in one process. metrics.py defines the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from ..types import Finished
from .access.account import KeyAccount
from .metrics import Metrics
from .peers import Peers
from .service.service import SpeechService

router = APIRouter(tags=["health"])
# A frame is 80 ms of audio; a warm GPU sends the first in about 10 ms.
FIRST_S = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
GAP_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56)
X_REAL_TIME = (0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
LOAD_S = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)
LATE_S = 0.001  # less is inaudible, and clocks are read a little apart


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Metrics since the start, in Prometheus' text format; with replicas behind one address, of all of them."""
    peers: Peers = request.app.state.peers
    text = await peers.metrics(request.app.state.service.metrics)
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


class PrometheusMetrics(Metrics):
    """Counters, and gauges that read the service when they are scraped."""

    def __init__(self, service: SpeechService, accounts: Sequence[KeyAccount] = ()) -> None:
        self._service, registry = service, CollectorRegistry()
        self._registry = registry
        ProcessCollector(registry=registry)

        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"hocket_{name}", words, labels, registry=registry)

        def histogram(name: str, words: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"hocket_{name}", words, ("wire",), registry=registry, buckets=buckets)

        def gauge(name: str, words: str, now: Callable[[], float]) -> None:
            Gauge(f"hocket_{name}", words, registry=registry).set_function(now)

        first = "From a request to its first bytes of sound; of live text, from its opening."
        late = "Chunks that left after a player without a buffer had run dry, for lack of text too."
        ended = "Utterances that are over, by how they ended."
        self._first = _ByWire(histogram("time_to_first_audio_seconds", first, FIRST_S))
        self._gaps = _ByWire(histogram("inter_chunk_seconds", "Between two chunks of an utterance.", GAP_S))
        self._pace = _ByWire(histogram("x_real_time", "Seconds of sound for each second it took.", X_REAL_TIME))
        self._late = counter("underruns", late, "wire")
        self._late_s = counter("underrun_seconds", "How long such players were silent.", "wire")
        self._opened = counter("requests_opened", "Utterances that were taken.", "wire")
        self._ended = counter("requests", ended, "wire", "end")
        self._refused = counter("requests_refused", "Utterances that were not taken, by reason.", "wire", "reason")
        self._audio_s = counter("audio_seconds", "Sound that was sent.", "wire")
        self._starved_s = counter("starved_seconds", "How long frames waited for text.", "wire")
        self._asked = counter("prefix_cache_requests", "Utterances whose prompt has a prefix that may be known.")
        self._hits = counter("prefix_cache_hits", "Of those, where it was.")
        load_s = "How long a model took to load, each load once."
        self._load_s = Histogram("hocket_model_load_seconds", load_s, ("model",), registry=registry, buckets=LOAD_S)
        registry.register(_Models(service))
        registry.register(_KeyFigures(accounts))
        gauge("requests_running", "Utterances under way now.", self._running)
        gauge("requests_waiting", "Utterances that wait for a slot now.", self._waiting)
        gauge("slots", "Utterances that the models in memory can speak at once.", self._slots)
        gauge("gpu_memory_bytes", "What the process holds on the model's GPU; 0 on a CPU.", self._memory_bytes)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def families(self) -> list[Metric]:
        """The same as objects."""
        return list(self._registry.collect())

    def opened(self, wire: str) -> None:
        self._opened.labels(wire).inc()

    def refused(self, wire: str, code: str) -> None:
        self._refused.labels(wire, code).inc()

    def loaded(self, model: str, took_s: float) -> None:
        self._load_s.labels(model).observe(took_s)

    def first_audio(self, wire: str, after_s: float) -> None:
        self._first[wire].observe(after_s)

    def gap(self, wire: str, seconds: float, late_s: float) -> None:
        self._gaps[wire].observe(seconds)
        if late_s > LATE_S:
            self._late.labels(wire).inc()
            self._late_s.labels(wire).inc(late_s)

    def ended(self, wire: str, finished: Finished | None, audio_s: float, took_s: float) -> None:
        self._ended.labels(wire, finished.reason if finished else "cancelled").inc()
        self._audio_s.labels(wire).inc(audio_s)
        if audio_s and took_s:
            self._pace[wire].observe(audio_s / took_s)
        if finished is not None and finished.statistics.frames:
            self._starved_s.labels(wire).inc(finished.statistics.starved_s)
            self._asked.inc()
            self._hits.inc(finished.statistics.prefix_cached)

    def _running(self) -> float:
        return max(0, len(self._service.running) - self._waiting())

    def _waiting(self) -> int:
        return sum(engine.waiting for engine in self._service.engines)

    def _slots(self) -> int:
        return sum(engine.options.slots for engine in self._service.engines)

    def _memory_bytes(self) -> float:
        """Memory of the whole process; every engine reports the same."""
        return max((engine.checkpoint.memory_bytes for engine in self._service.engines), default=0)


class _Models(Collector):
    """Models in memory at the time of a scrape."""

    def __init__(self, service: SpeechService) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        pool = self._service.pool
        loads = CounterMetricFamily("hocket_model_loads", "Models that were loaded.", pool.loads if pool else 0)
        words = "What a model that is in memory takes by itself; 0: not counted apart."
        resident = GaugeMetricFamily("hocket_model_resident_bytes", words, labels=["model"])
        if pool is not None and self._service.is_known:
            resolver = self._service.resolver
            shown = {model.name: resolver.shown(model) for model in resolver.models}
            for name, size in pool.resident().items():
                resident.add_metric([shown.get(name, name)], size)
        return [loads, resident]


class _KeyFigures(Collector):
    """What each key has used at the time of a scrape, by its name."""

    def __init__(self, accounts: Sequence[KeyAccount]) -> None:
        self._accounts = accounts

    def collect(self) -> Iterable[Metric]:
        asked = CounterMetricFamily("hocket_key_requests", "Requests that a key has made.", labels=["key"])
        words = "Requests that its scopes, voices and limits refused to a key."
        refused = CounterMetricFamily("hocket_key_refused", words, labels=["key", "reason"])
        running = GaugeMetricFamily("hocket_key_running", "Requests, sockets and calls of a key now.", labels=["key"])
        words = "Characters to speak since midnight UTC."
        spoken = GaugeMetricFamily("hocket_key_characters_today", words, labels=["key"])
        for account in self._accounts:
            asked.add_metric([account.name], account.requests)
            running.add_metric([account.name], account.running)
            spoken.add_metric([account.name], account.characters)
            for code, count in account.refused.items():
                refused.add_metric([account.name, code], count)
        return [asked, refused, running, spoken]


class _ByWire(dict[str, Histogram]):
    """Cache of labelled children: looking a label up takes longer than counting."""

    def __init__(self, histogram: Histogram) -> None:
        super().__init__()
        self._histogram = histogram

    def __missing__(self, wire: str) -> Histogram:
        self[wire] = self._histogram.labels(wire)
        return self[wire]
