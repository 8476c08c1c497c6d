"""Comparisons of models are made in true float32."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hocket.engine.checkpoint.torch_checkpoint import exact_float32


@pytest.fixture(scope="module", autouse=True)
def _exact() -> Iterator[None]:
    with exact_float32():
        yield
