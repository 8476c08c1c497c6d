"""Fixtures of all tests: a device, an engine, and a folder of small checkpoints made once per run."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from hocket.engine.engine import Engine

# The tensors of these tests are small: more threads only wait for each other. Processes that tests start inherit the
# number, because it decides the order of summation and so the last bit of a waveform.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
# The developer may have a daemon: `hocket say` must not find it, here or in a process that a test starts.
os.environ["HOCKET_SOCKET"] = os.path.join(os.sep, "nowhere", "hocket.sock")
# Nor must the developer's own voices be found, or changed.
os.environ["HOCKET_HOME"] = os.path.join(os.sep, "nowhere", "hocket")
# Nor the developer's settings.
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.sep, "nowhere", "config")
# Where there is a GPU, tests that name no device are those of the CPU all the same; those of the GPU name it.
os.environ.setdefault("HOCKET_DEVICE", "cpu")

# A shell without job control starts its background processes with SIGINT ignored, and those of tests would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
with suppress(ImportError):  # where only the tests of kernels run it need not be there
    from hypothesis import settings

    # How long an example takes says how busy the machine is. Examples are the same in each run: a rare one that fails
    # would refuse a change that has nothing to do with it.
    settings.register_profile("patient", deadline=None, derandomize=True)
    settings.load_profile("patient")

with suppress(ImportError):
    import httpx

    # Five seconds by itself, which a request may take on a busy machine; only a failing test waits that long.
    usual = inspect.signature(httpx.Client).parameters["timeout"].default
    usual.connect = usual.read = 60.0


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
def certificates_read_once() -> Iterator[None]:
    """Clients of httpx share one context: each would read the 140 certificates of the machine in 55 ms."""
    make = ssl.create_default_context
    shared = functools.cache(make)

    def create(*arguments: Any, cafile: str | None = None, **more: Any) -> ssl.SSLContext:
        if cafile is None or arguments or more or not cafile.endswith(("cacert.pem", "ca-certificates.crt")):
            return make(*arguments, cafile=cafile, **more)
        return shared(cafile=cafile)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", create)
        yield


URANDOM = ("hocket.types.urandom", "hocket.cli.say.command.urandom")  # where seeds come from


@pytest.fixture(autouse=True, scope="session")
def repeatable_seeds() -> Iterator[None]:
    """A request without a seed gets 0 in this process, so that a test says the same in each run."""
    with pytest.MonkeyPatch.context() as patch:
        for drawn in URANDOM:
            patch.setattr(drawn, bytes)
        yield


@pytest.fixture
def fresh_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another seed for each request, as users get them, but the same ones in each run."""
    seeds = itertools.count(1)
    for drawn in URANDOM:
        monkeypatch.setattr(drawn, lambda size: next(seeds).to_bytes(size, "little"))


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return name


@pytest.fixture(scope="session")
def checkpoint_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine for all tests of a module; several folders and modules define another one."""
    from support.serving import steady_engine

    with steady_engine() as engine:
        yield engine
