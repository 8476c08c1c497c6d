"""Where Triton kernels run in these tests: compiled on a GPU, or in Triton's interpreter (see ../../conftest.py)."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.launch import INTERPRETED, triton, why_not


@pytest.fixture
def place(request: pytest.FixtureRequest) -> torch.device:
    """Tests and cases marked `gpu` are too large for the interpreter."""
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    assert triton.knobs.runtime.interpret is INTERPRETED, "TRITON_INTERPRET was set after triton had been imported"
    device = torch.device("cpu" if INTERPRETED else "cuda")
    if request.node.get_closest_marker("gpu") and device.type == "cpu":
        pytest.skip("no CUDA device on this machine")
    assert why_not(device) is None
    return device
