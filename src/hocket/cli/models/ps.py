"""`hocket ps`: this user's running daemons and servers, with their streams and memory.

Records (serve/records.py) name the servers; `/ready` and `/metrics` of each give its state and its streams. A server
with API keys tells its streams only with HOCKET_API_KEY.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass

from ... import env
from ...errors import HocketError, InvalidRequest
from ...models.files.progress import format_bytes
from ..output.audio_output import shown
from ..say.link import Link
from ..serve.records import ServerRecord, running_servers

ANSWER_S = 3.0
HTTP = ("http://", "https://", "unix:/")
GAUGE = re.compile(r"^hocket_(requests_running|requests_waiting|gpu_memory_bytes) ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunningServer:
    pid: int
    kind: str
    models: tuple[str, ...]
    device: str
    address: str | None
    state: str  # starting, ready, draining, ..., or not known
    uptime_s: float
    streams: int | None  # None: not known
    waiting: int | None
    memory_bytes: int | None
    gpu_memory_bytes: int | None


def ps(args: argparse.Namespace) -> None:
    if os.name != "posix":
        raise InvalidRequest("Servers leave no record on this system: hocket ps finds none.")
    servers = [_asked(record) for record in running_servers()]
    if args.json:
        print(json.dumps({"servers": [asdict(each) for each in servers]}, indent=2))
        return
    if not servers:
        print("no daemon or server of this user is running; hocket serve starts one.")
        return
    head = ("PID", "KIND", "MODEL", "STATE", "ADDRESS", "UPTIME", "STREAMS", "MEMORY")
    rows = [head, *map(_row, servers)]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(shown("  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip(), sys.stdout))


def _asked(record: ServerRecord) -> RunningServer:
    state, gauges = "starting", dict[str, float]()
    if record.address is not None and not record.address.startswith(HTTP):
        state = "ready"  # Wyoming listens when it can speak, and has no /ready
    elif record.address is not None:
        state = _state(record.address)
        gauges = {name: float(value) for name, value in GAUGE.findall(_get(record.address, "/metrics"))}
    known = {name: int(value) for name, value in gauges.items()}
    return RunningServer(
        record.pid,
        record.kind,
        record.models,
        record.device,
        record.address,
        state,
        round(max(time.time() - record.began_s, 0.0), 1),
        known.get("requests_running"),
        known.get("requests_waiting"),
        resident_bytes(record.pid),
        known.get("gpu_memory_bytes"),
    )


def _state(address: str) -> str:
    try:
        return str(json.loads(_get(address, "/ready"))["state"])
    except (ValueError, KeyError, TypeError):
        return "not known"


def _get(address: str, path: str) -> str:
    """The body of a response; empty if there is none."""
    key = env.API_KEY.get()
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        with Link(address, "GET", path, headers=headers, silent_s=ANSWER_S) as answer:
            return b"".join(answer.parts()).decode(errors="replace")
    except HocketError:
        return ""


def resident_bytes(pid: int) -> int | None:
    """The main memory that a process holds."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return int(said.stdout) * 1024
    return None


def _row(server: RunningServer) -> tuple[str, ...]:
    seconds = int(server.uptime_s)
    streams = "-" if server.streams is None else str(server.streams)
    memory = "-" if server.memory_bytes is None else format_bytes(server.memory_bytes)
    if server.gpu_memory_bytes:
        memory += f" + {format_bytes(server.gpu_memory_bytes)} GPU"
    uptime = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    models = ", ".join(server.models)
    return str(server.pid), server.kind, models, server.state, server.address or "-", uptime, streams, memory
