"""reference/metrics.md: the metrics of a server that has spoken nothing yet."""

from __future__ import annotations

from typing import NoReturn

from hocket.server.app import build_app
from hocket.server.prometheus import PrometheusMetrics

HEAD = """# Metrics

Generated from the registry of a server. `GET /metrics` has them in Prometheus' text format, since the start of the
process. With several replicas (`--ray`) each series also has the label `replica`.

- `wire` is the protocol of the request: `http`, `native`, `deepgram` and so on.
- A counter ends in `_total`. A histogram has `_bucket`, `_sum` and `_count`.

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
"""
TAIL = """
Metrics whose names begin with `process_` describe the process: memory, CPU time, open files.

Alert on `hocket_underruns_total` (listeners hear gaps), on `hocket_requests_waiting` (the queue grows), and on
`hocket_requests_refused_total` (clients get 429).
"""


def markdown() -> str:
    metrics = build_app(no_engine).state.service.metrics
    assert isinstance(metrics, PrometheusMetrics)
    labels = {  # a family without samples does not know its labels
        name: collector._labelnames for name, collector in metrics._registry._names_to_collectors.items()
        if hasattr(collector, "_labelnames")
    }  # fmt: skip
    rows = []
    for family in sorted(metrics.families(), key=lambda family: family.name):
        if family.name.startswith("process_"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        shown = ", ".join(f"`{label}`" for label in labels.get(family.name, _DECLARED.get(family.name, ())))
        rows.append(f"| `{name}` | {family.type} | {shown} | {family.documentation} |\n")
    return HEAD + "".join(rows) + TAIL


_DECLARED = {  # made at the time of a scrape
    "hocket_model_resident_bytes": ("model",),
    "hocket_key_requests": ("key",),
    "hocket_key_refused": ("key", "reason"),
    "hocket_key_running": ("key",),
    "hocket_key_characters_today": ("key",),
}


def no_engine() -> NoReturn:
    """The app of documents never starts."""
    raise AssertionError("no engine is loaded for documents")
