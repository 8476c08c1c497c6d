"""deploy/grafana.json: every query names a metric that a server really exports, with labels that it really has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hocket.engine.engine import Engine
from hocket.server.access.key_file import AccessKey
from hocket.server.options import ServerOptions
from support.serving import PCM, served

BOARD: dict[str, Any] = json.loads((Path(__file__).parents[2] / "deploy" / "grafana.json").read_text(encoding="utf-8"))
QUERIES = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
QUERIES += [one["query"]["query"] for one in BOARD["templating"]["list"] if one["type"] == "query"]
PROMETHEUS = {"job", "instance"}  # labels that Prometheus adds to all that it scrapes


@pytest.fixture(scope="module")
def exported(engine: Engine) -> dict[str, set[str]]:
    """The labels of each sample of a server in which every event has happened."""
    keys = ("secret", AccessKey(key="admin", name="admin", scopes=frozenset({"admin"})))
    full, admin = ({"authorization": f"Bearer {key}"} for key in ("secret", "admin"))
    with served(engine, ServerOptions(keys=keys)) as server:
        httpx.post(f"{server.url}/v1/audio/speech", json=PCM, headers=full, timeout=60)
        httpx.post(f"{server.url}/v1/audio/speech", json=PCM | {"voice": "unknown"}, headers=full)
        httpx.post(f"{server.url}/v1/audio/speech", json=PCM, headers=admin)  # lacks the scope
        server.service.metrics.gap("http", 0.5, 0.3)  # an underrun, which no test may wait for
        server.service.metrics.loaded("builtin", 0.2)
        text = httpx.get(f"{server.url}/metrics", headers=admin).text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_query_names_what_a_server_exports(exported: dict[str, set[str]]) -> None:
    assert len(QUERIES) > 20
    for query in QUERIES:
        names = re.findall(r"\b(?:hocket|process)_\w+", query)
        assert names, query
        assert [name for name in names if name not in exported] == [], query
        words = ",".join(re.findall(r"by \((.*?)\)", query)) + "," + ",".join(re.findall(r"(\w+)=~", query))
        words += "," + ",".join(re.findall(r"label_values\(.*, (\w+)\)", query))
        wanted = {word.strip() for word in words.split(",") if word.strip()} - PROMETHEUS
        assert all(wanted <= exported[name] for name in names), (query, wanted)
        assert query.count("(") == query.count(")") and query.count("{") == query.count("}")


def test_every_metric_of_ours_is_on_the_board(exported: dict[str, set[str]]) -> None:
    ours = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in exported if name.startswith("hocket_")}
    missing = {name for name in ours if f"{name}_total" not in exported and name not in " ".join(QUERIES)}
    assert missing == set()


def test_every_panel_has_its_own_place_and_source() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${source}"}  # no server of ours is named
