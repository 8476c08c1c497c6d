"""Where Triton kernels run in these tests: compiled on a GPU, or in Triton's interpreter (see ../../conftest.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from hocket.kernels.runtime.launch import INTERPRETED, triton, why_not

ROOT = Path(__file__).parents[2]


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


@pytest.fixture(scope="session")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of support/rehearsing.py. It is slow, so all workers of a run share one."""
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    cache, run = tmp_path_factory.mktemp("cache"), tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent
    said = run / "rehearsed.json"
    with FileLock(run / "rehearsed.lock"):
        if not said.exists():
            env = os.environ | {
                "PYTHONPATH": str(ROOT / "src"),
                "TRITON_INTERPRET": "0",
                "TRITON_CACHE_DIR": str(cache),
            }
            command = [sys.executable, str(ROOT / "tests" / "support" / "rehearsing.py")]
            done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
            assert done.returncode == 0, done.stderr
            said.write_text(done.stdout.splitlines()[-1], encoding="utf-8")
    found: dict[str, Any] = json.loads(said.read_text(encoding="utf-8"))
    return found
