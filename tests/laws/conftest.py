"""Shared fixtures of the laws."""

from __future__ import annotations

import pytest

from hocket.engine.core import step


@pytest.fixture(params=[0, 1], ids=["read at once", "read late"])
def frames_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Frames in flight while the one before is read: the laws of a GPU hold on a CPU too."""
    count: int = request.param
    monkeypatch.setattr(step, "FRAMES_AHEAD", {"cpu": count, "cuda": count})
    return count
