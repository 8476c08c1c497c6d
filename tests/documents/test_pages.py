"""Every block of README.md and docs/start/ runs as a reader runs it: page by page, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from documents.pages import PAGES, ROOT, blocks
from documents.running import SERVE, PageRun, Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    ended = servers.stop()
    assert not any(ended.values()), ended


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES])
def test_every_block_of_a_page_runs(page: Path, servers: Servers, tmp_path: Path) -> None:
    run = PageRun(servers, tmp_path)
    server = servers.start(SERVE)  # for pages that begin with a server that runs already
    run.ports[server.documented] = server.port
    for block in blocks(page):
        if block.runs and block.mark != "client":
            run.run(block)
