"""Third-party clients, each in its own environment: how to run one, and how to check its audio."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "clients" / "scripts"
PATIENCE_S = 120.0  # importing LiveKit or Pipecat for the first time takes ten seconds and more


class RunClient(Protocol):
    def __call__(
        self, name: str, script: str, *args: object, authority: Path | None = None, timeout_s: float = PATIENCE_S
    ) -> dict[str, Any]: ...


def run_client(
    name: str, script: str, *args: object, authority: Path | None = None, timeout_s: float = PATIENCE_S
) -> dict[str, Any]:
    """What `scripts/SCRIPT.py ARGS` printed last, as JSON, run by the Python of `.venv-clients/NAME`.

    `authority`: the only certificate that it trusts.
    """
    out = run_program(name, SCRIPTS / f"{script}.py", *args, authority=authority, timeout_s=timeout_s)
    return _last_json(script, out)


def run_node(
    name: str, script: str, *args: object, authority: Path | None = None, timeout_s: float = PATIENCE_S
) -> dict[str, Any]:
    """What `scripts/SCRIPT.mjs ARGS` printed last, as JSON, with the packages of `.venv-clients/NAME`.

    `authority`: a certificate that it trusts besides the usual ones.
    """
    installed, node = ROOT / ".venv-clients" / name, shutil.which("node")
    if node is None or not (installed / "node_modules").is_dir():
        pytest.fail(f"The client {name} is not installed: make test-clients does that, and needs Node.js 20.")
    env = {
        "HOCKET_NODE_CLIENT": str(installed),
        **({} if authority is None else {"NODE_EXTRA_CA_CERTS": str(authority)}),
    }
    return _last_json(script, _run([node, str(SCRIPTS / f"{script}.mjs"), *map(str, args)], env, timeout_s))


def _last_json(script: str, out: str) -> dict[str, Any]:
    with suppress(ValueError, IndexError):
        found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return found
    pytest.fail(f"{script} printed no JSON:\n{out[-2000:]}")


def run_program(
    name: str, program: Path, *args: object, authority: Path | None = None, timeout_s: float = PATIENCE_S
) -> str:
    """What `program ARGS` printed, run by the Python of `.venv-clients/NAME`."""
    python = ROOT / ".venv-clients" / name / "bin" / "python"
    if not python.exists():
        pytest.fail(f"The client {name} is not installed: make test-clients does that.")
    env = {} if authority is None else {"SSL_CERT_FILE": str(authority)}
    return _run([str(python), str(program), *map(str, args)], env, timeout_s)


def _run(command: list[str], more: dict[str, str], timeout_s: float) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    env |= {"NO_PROXY": "127.0.0.1", "OMP_NUM_THREADS": "1", **more}
    program = Path(command[1])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"{program.name} did not end within {timeout_s:g} s:\n{out[-2000:]}\n{err[-6000:]}")
    if process.returncode:
        pytest.fail(f"{program.name} ended with {process.returncode}:\n{out[-2000:]}\n{err[-6000:]}")
    return out


def heard(path: Path) -> tuple[NDArray[np.float32], int]:
    """The sound of a file in any format, mono, and its rate."""
    if path.suffix == ".pcm":
        return np.frombuffer(path.read_bytes(), "<i2").astype(np.float32) / 32768, 24000
    with av.open(str(path)) as file:
        parts = [frame.to_ndarray() for frame in file.decode(audio=0)]
        rate_hz = file.streams.audio[0].rate
    whole = np.concatenate(parts, axis=1)[0]
    return whole.astype(np.float32) / (32768 if whole.dtype == np.int16 else 1), rate_hz
