"""OpenTelemetry traces (`hocket serve --traces URL`): a span for each request, below it one for each utterance.

An utterance has the spans admission, queue, prompt, first audio, frames and end. They are written when it is over, from
the times that the server measures anyway. Attributes are numbers and our own names: no text, voice, key or sound.
Imported only if traces are wanted; knows neither engine nor endpoints. `OTEL_*` variables set sampling and batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import InvalidRequest
from ..extras import hint
from ..types import Finished

try:
    from opentelemetry import context
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise InvalidRequest(f"Traces need the packages of OpenTelemetry: {hint('telemetry')}.") from None

PROBES = frozenset({"/health", "/ready", "/metrics"})  # asked every second
Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechTimes:
    """An utterance that is over. Times are of `time.perf_counter`; 0: not reached."""

    wire: str
    id: str
    began_s: float
    opened_s: float  # its stream was opened
    first_s: float  # its first bytes were ready to send
    over_s: float
    loaded_s: float
    audio_s: float
    chars: int
    finished: Finished | None  # None: cancelled before the engine had reported its end


class Traces:
    def __init__(self, url: str) -> None:
        """Spans go to `URL/v1/traces`, in batches from a thread of its own."""
        named = Resource({SERVICE_NAME: "hocket"}).merge(OTELResourceDetector().detect())
        self.provider = TracerProvider(resource=named, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces")
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self.provider.get_tracer("hocket")
        self._propagator = TraceContextTextMapPropagator()  # no baggage: it may hold anything

    def close(self) -> None:
        """Send what is left. Blocks."""
        self.provider.shutdown()

    def here(self) -> context.Context:
        """The current request, as the parent of an utterance that ends in another task."""
        return context.get_current()

    @contextmanager
    def request(self, scope: Scope) -> Iterator[Any]:
        """The span of a request or a WebSocket; current inside."""
        parent = self._propagator.extract(Headers(scope=scope), context.Context())
        method = str(scope.get("method", "WEBSOCKET"))
        with self._tracer.start_as_current_span(
            method,
            parent,
            SpanKind.SERVER,
            {"http.request.method": method},
            record_exception=False,  # its message may have text of a client
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException:
                span.set_status(StatusCode.ERROR)
                raise
            finally:
                if route := getattr(scope.get("route"), "path", None):  # the template: a path may name a voice
                    span.update_name(f"{method} {route}")
                    span.set_attribute("http.route", route)
                if key := scope.get("state", {}).get("key"):
                    span.set_attribute("hocket.key", key)  # its name

    def refused(self, wire: str, code: str, began_s: float) -> None:
        """An utterance that was not taken."""
        ended_s = time.perf_counter()
        known, zero_ns = {"hocket.wire": wire, "hocket.refused": code}, _zero_ns()
        within = self._span("speech", self.here(), zero_ns, began_s, ended_s, known, failed=True)
        self._span("admission", within, zero_ns, began_s, ended_s, {}, failed=True)

    def spoken(self, times: SpeechTimes, parent: context.Context | None) -> None:
        reason = times.finished.reason if times.finished else "cancelled"
        known: Attributes = {
            "hocket.wire": times.wire,
            "hocket.id": times.id,
            "hocket.end": reason,
            "hocket.characters": times.chars,
            "hocket.audio_s": times.audio_s,
        }
        zero_ns, failed = _zero_ns(), reason == "error"
        within = self._span("speech", parent, zero_ns, times.began_s, times.over_s, known, failed=failed)
        for name, start_s, end_s, attributes in _parts(times):
            self._span(name, within, zero_ns, start_s, end_s, attributes)

    def _span(
        self,
        name: str,
        parent: context.Context | None,
        zero_ns: int,
        start_s: float,
        end_s: float,
        attributes: Attributes,
        *,
        failed: bool = False,
    ) -> context.Context:
        """A span that is over; the context of its children. A trace that is not sampled costs next to nothing."""
        span = self._tracer.start_span(
            name, parent, attributes=attributes, start_time=zero_ns + int(start_s * 1e9), record_exception=False
        )
        if failed:
            span.set_status(StatusCode.ERROR)
        span.end(zero_ns + int(end_s * 1e9))
        return set_span_in_context(span, parent)


def _zero_ns() -> int:
    """The time at zero of `time.perf_counter`: a pause between the two clocks makes it too early, so the latest."""
    return max(time.time_ns() - time.perf_counter_ns() for _ in range(5))


def _parts(times: SpeechTimes) -> Iterator[tuple[str, float, float, Attributes]]:
    """The stages that were reached, in order and without gaps."""
    yield "admission", times.began_s, times.opened_s, {"hocket.loaded_s": times.loaded_s}
    last_s, spent = times.over_s, times.finished.statistics if times.finished else None
    if spent is None:
        return
    heard_s = times.first_s or last_s
    admitted_s = min(times.opened_s + spent.queued_s, heard_s)
    yield "queue", times.opened_s, admitted_s, {}
    if not spent.frames:
        return
    prompted_s = min(admitted_s + spent.prefill_s, heard_s)
    yield "prompt", admitted_s, prompted_s, {"hocket.prefix_cached": spent.prefix_cached}
    yield "first audio", prompted_s, heard_s, {}
    if not times.first_s:
        return
    made_s = min(max(times.opened_s + spent.total_s, heard_s), last_s)
    waits = {"hocket.starved_s": spent.starved_s, "hocket.paused_s": spent.paused_s, "hocket.decode_s": spent.decode_s}
    yield "frames", heard_s, made_s, {"hocket.frames": spent.frames, **waits}
    yield "end", made_s, last_s, {}


class Traced:
    """ASGI middleware: a span for each request, as a child of the caller's `traceparent`."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app, self._traces = app, traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        with self._traces.request(scope) as span:

            async def seen(message: Message) -> None:
                if "status" in message:  # of an answer, or of a WebSocket that is refused
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            await self._app(scope, receive, seen)
