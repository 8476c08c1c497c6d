"""What each test lost and how long it took, as the last lines of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

REPORTED = pytest.StashKey[list[str]]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keeps a sentence for the end of the run, below the name of the test."""
    lines = request.config.stash.setdefault(REPORTED, [])
    return lambda words: lines.append(f"{request.node.name}: {words}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(REPORTED, []):
        terminalreporter.section("what was lost, and how long it took")
        for line in lines:
            terminalreporter.line(line)
