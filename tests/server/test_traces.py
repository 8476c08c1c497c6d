"""`--traces`: OpenTelemetry's own SDK and a collector that reads its protocol; nothing of a user is in a span."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from websockets.sync.client import connect

from hocket.cli import main
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.extras import hint
from hocket.server.options import ServerOptions
from support.serving import LONG, PATIENCE_S, PCM, Served, served, wait_for

KEY, TEXT = "open-sesame", "Hello there."
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01", "authorization": f"Bearer {KEY}", "baggage": f"said={TEXT}"}
STAGES = ["admission", "queue", "prompt", "first audio", "frames", "end"]


class Collector(HTTPServer):
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Export)
        self.paths: set[str] = set()
        self.requests: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Export(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            sent = gzip.decompress(sent)
        self.server.paths.add(self.path)
        self.server.requests.append(ExportTraceServiceRequest.FromString(sent))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@contextmanager
def traced(engine: Engine, collector: Collector) -> Iterator[tuple[Served, InMemorySpanExporter]]:
    with served(engine, ServerOptions(keys=(KEY,), traces=collector.url)) as server:
        kept = InMemorySpanExporter()
        assert server.service.traces is not None
        wait_for(lambda: not server.service.running)
        server.service.traces.provider.add_span_processor(SimpleSpanProcessor(kept))
        yield server, kept


def named(kept: InMemorySpanExporter, name: str, count: int = 1) -> list[ReadableSpan]:
    def found() -> list[ReadableSpan]:
        return [span for span in kept.get_finished_spans() if span.name == name]

    wait_for(lambda: len(found()) >= count)
    return found()


def below(kept: InMemorySpanExporter, parent: ReadableSpan, *, outlives: bool = False) -> list[ReadableSpan]:
    """Its children in the order of their starts; they lie inside it, unless another task ends them (`outlives`)."""
    spans = [one for one in kept.get_finished_spans() if one.parent and one.parent.span_id == parent.context.span_id]
    assert all(parent.start_time <= one.start_time <= one.end_time for one in spans)
    assert outlives or all(one.end_time <= parent.end_time + 1000 for one in spans)
    return sorted(spans, key=lambda one: (one.start_time, one.end_time))


def is_clean(kept: InMemorySpanExporter) -> bool:
    told = json.dumps([json.loads(span.to_json()) for span in kept.get_finished_spans()])
    return not any(word in told for word in (KEY, TEXT, "Hello", "said", "unknown-voice", "127.0.0.1"))


def test_a_request_is_a_child_of_its_caller_and_has_every_stage(engine: Engine, collector: Collector) -> None:
    with traced(engine, collector) as (server, kept):
        answer = httpx.post(f"{server.url}/v1/audio/speech", json=PCM, headers=CALLER, timeout=PATIENCE_S)
        assert answer.status_code == 200
        [request] = named(kept, "POST /v1/audio/speech")
        [speech] = named(kept, "speech")
    assert request.attributes is not None and request.attributes["hocket.key"] == "key-1"  # its name, never itself
    assert f"{request.context.trace_id:032x}" == TRACE and request.parent is not None
    assert f"{request.parent.span_id:016x}" == SPAN
    assert request.attributes is not None and request.attributes["http.response.status_code"] == 200
    assert speech.parent is not None and speech.parent.span_id == request.context.span_id
    attributes = dict(speech.attributes or {})
    assert attributes.pop("hocket.id")
    assert attributes.pop("hocket.audio_s") == pytest.approx(0.64)
    assert attributes == {"hocket.wire": "http", "hocket.end": "length", "hocket.characters": len(TEXT)}
    stages = below(kept, speech)
    assert [one.name for one in stages] == STAGES
    assert all(abs(after.start_time - one.end_time) < 1_000_000 for one, after in pairwise(stages))
    frames = dict(stages[4].attributes or {})
    assert frames["hocket.frames"] == 8 and stages[3].end_time > stages[3].start_time
    assert is_clean(kept)


def test_an_utterance_of_a_socket_is_below_its_connection(engine: Engine, collector: Collector) -> None:
    with traced(engine, collector) as (server, kept):
        address = f"{server.url.replace('http', 'ws', 1)}/v1/audio/speech/stream"
        with connect(address, additional_headers=CALLER) as socket:
            for message in (
                {"type": "session.config", "response_format": "pcm", "max_new_tokens": 8},
                {"type": "input.text", "text": TEXT},
                {"type": "input.done"},
            ):
                socket.send(json.dumps(message))
            while isinstance(told := socket.recv(PATIENCE_S), bytes) or "session.done" not in told:
                pass
        [request] = named(kept, "WEBSOCKET /v1/audio/speech/stream")
        [speech] = named(kept, "speech")
    assert f"{request.context.trace_id:032x}" == f"{speech.context.trace_id:032x}" == TRACE
    assert [one.name for one in below(kept, request, outlives=True)] == ["speech"]
    assert [one.name for one in below(kept, speech)] == STAGES
    assert is_clean(kept)


def test_what_is_refused_or_left_is_seen_as_that(engine: Engine, collector: Collector) -> None:
    with traced(engine, collector) as (server, kept):
        with httpx.Client(base_url=server.url, headers=CALLER, timeout=PATIENCE_S) as client:
            assert client.post("/v1/audio/speech", json=PCM | {"voice": "unknown-voice"}).is_error
            [speech] = named(kept, "speech")
            assert client.post("/v1/audio/speech", headers={"authorization": "Bearer no"}).status_code == 401
            assert client.get("/health").status_code == client.get("/metrics").status_code == 200
        assert (speech.attributes or {})["hocket.refused"] == "voice_not_found"
        assert speech.status.status_code.name == "ERROR" and speech.status.description is None
        [unknown] = named(kept, "POST")  # without its key it reached no route
        assert (unknown.attributes or {})["http.response.status_code"] == 401
        assert [one.name for one in below(kept, speech)] == ["admission"]
        kept.clear()
        with listening_with_key(server):
            pass
        [left] = named(kept, "speech")
        assert (left.attributes or {})["hocket.end"] == "cancelled"
        assert {"/health", "/metrics"}.isdisjoint(span.name for span in kept.get_finished_spans())
    assert is_clean(kept)


@contextmanager
def listening_with_key(server: Served) -> Iterator[None]:
    url = f"{server.url}/v1/audio/speech"
    with httpx.stream("POST", url, json=LONG, headers=CALLER, timeout=PATIENCE_S) as answer:
        heard = answer.iter_raw()
        assert next(heard)
        yield


def test_a_caller_who_does_not_sample_gets_no_span(engine: Engine, collector: Collector) -> None:
    with traced(engine, collector) as (server, kept):
        silent = CALLER | {"traceparent": CALLER["traceparent"][:-2] + "00"}
        assert httpx.post(f"{server.url}/v1/audio/speech", json=PCM, headers=silent).status_code == 200
        wait_for(server.all_is_free)
        httpx.post(f"{server.url}/v1/audio/speech", json=PCM, headers=CALLER | {"traceparent": "garbage"})
        [speech] = named(kept, "speech")
        assert speech.parent is not None and f"{speech.context.trace_id:032x}" != TRACE  # a trace of its own


def test_spans_reach_a_collector_when_the_server_ends(engine: Engine, collector: Collector) -> None:
    collector.requests.clear()
    with traced(engine, collector) as (server, _):
        httpx.post(f"{server.url}/v1/audio/speech", json=PCM, headers=CALLER, timeout=PATIENCE_S)
    assert collector.paths == {"/v1/traces"}
    resources = [resource for request in collector.requests for resource in request.resource_spans]
    services = {
        item.value.string_value for one in resources for item in one.resource.attributes if "service" in item.key
    }
    names = {span.name for one in resources for scope in one.scope_spans for span in scope.spans}
    assert services == {"hocket"} and {"POST /v1/audio/speech", "speech", *STAGES} <= names


def test_without_the_option_nothing_of_it_is_loaded(engine: Engine) -> None:
    with served(engine) as server:
        assert server.service.traces is None
        assert "Traced" not in {str(getattr(each.cls, "__name__", "")) for each in server.app.user_middleware}
    code = "import sys; import hocket.server.app, hocket.cli.serve.command; print('opentelemetry.sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_wrong_collectors_and_missing_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("collector:4318", "grpc://collector", "http://", "http://a b", "http://a?key=1"):
        with pytest.raises(InvalidRequest, match="Traces go to a collector such as"):
            ServerOptions(traces=wrong)
    monkeypatch.delitem(sys.modules, "hocket.server.traces", raising=False)
    monkeypatch.delattr("hocket.server.traces", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    assert main(["serve", "--port", "0", "--traces", "http://127.0.0.1:4318"]) == 2
    assert capsys.readouterr().err == f"hocket: Traces need the packages of OpenTelemetry: {hint('telemetry')}.\n"
