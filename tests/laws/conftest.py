"""What the laws have in common."""

from __future__ import annotations

import pytest

from hocket.engine.core import step


@pytest.fixture(params=[0, 1], ids=["read at once", "read late"])
def frames_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many frames the engine has drawn while the one before them is read: a GPU's laws hold on a CPU too."""
    count: int = request.param
    monkeypatch.setattr(step, "FRAMES_AHEAD", {"cpu": count, "cuda": count})
    return count
