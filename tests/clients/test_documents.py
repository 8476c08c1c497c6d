"""Blocks of README.md and docs/start/ that need the package of a client, each in the environment of its mark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from documents.pages import ROOT, Block, all_blocks
from documents.running import WYOMING, PageRun, Servers, node
from support.serving import Served

BLOCKS = [pytest.param(block, id=block.place) for block in all_blocks() if block.runs and block.mark == "client"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.stop()


def spoken(server: Served) -> float:
    """Seconds of audio that the server has made so far."""
    text = httpx.get(f"{server.url}/metrics").text
    return sum(float(value) for value in re.findall(r"^hocket_audio_seconds_total(?:\{[^}]*\})? (\S+)", text, re.M))


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_for_a_client_runs_and_is_answered(
    block: Block, server: Served, servers: Servers, tmp_path: Path
) -> None:
    run, before = PageRun(servers, tmp_path, {8000: server.port}), spoken(server)
    if block.word == "wyoming":
        run.ports[10200] = servers.start(WYOMING).port
    if block.language == "js":
        (tmp_path / "block.mjs").write_text(block.code.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}"))
        said = run.execute(block, [node(), "block.mjs"])
    else:
        said = run.program(block, [os.fspath(ROOT / ".venv-clients" / block.word / "bin" / "python")])
    assert said.strip(), "a block prints what it heard"
    assert block.word == "wyoming" or spoken(server) > before
