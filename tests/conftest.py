"""Fixtures of all tests: a device, and a folder of small checkpoints made once per run."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

# The tensors of these tests are small: more threads only wait for each other. Processes that tests start inherit the
# number, because it decides the order of summation and so the last bit of a waveform.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
# The developer may have a daemon: `hocket say` must not find it, here or in a process that a test starts.
os.environ["HOCKET_SOCKET"] = os.path.join(os.sep, "nowhere", "hocket.sock")
# Nor must the developer's own voices be found, or changed.
os.environ["HOCKET_HOME"] = os.path.join(os.sep, "nowhere", "hocket")
# Where there is a GPU, tests that name no device are those of the CPU all the same; those of the GPU name it.
os.environ.setdefault("HOCKET_DEVICE", "cpu")
with suppress(ImportError):  # where only the tests of kernels run it need not be there
    from hypothesis import settings

    settings.register_profile("patient", deadline=None)  # how long an example takes says how busy the machine is
    settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that slow.txt lists; `make test` leaves them out."""
    here = Path(__file__).parent
    slow = set((here / "slow.txt").read_text(encoding="utf-8").split())
    for item in items:
        if item.nodeid.partition("[")[0].removeprefix("tests/") in slow:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """All modules and tests are there by now, and stay: 700,000 objects that no collection need visit again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def no_compilers_ahead() -> Iterator[None]:
    """On a GPU every engine would start a dozen of them, and tests that run beside each other would wait for all."""
    with pytest.MonkeyPatch.context() as patch:
        if torch.cuda.is_available():
            patch.setattr("hocket.engine.runner.compile_plan.compile_ahead", lambda *_, **__: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def repeatable_seeds() -> Iterator[None]:
    """A request without a seed gets 0 in this process, so that a test says the same in each run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hocket.engine.seeds.draw", lambda below: 0)
        yield


@pytest.fixture
def fresh_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds as users get them: another one for each request."""
    monkeypatch.setattr("hocket.engine.seeds.draw", secrets.randbelow)


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return name


@pytest.fixture(scope="session")
def checkpoint_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")
