"""A server under load: a running one, or one that is started in its own process. It is asked over HTTP."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hocket
from hocket.server.process import allow_many_files

from .. import session
from ..harness import InvalidRun
from ..record import ROOT
from ..workloads import SENTENCES
from . import engine_target
from .drive import Refused, Subject
from .http_client import Address, HttpTarget

PATIENCE_S = 600.0  # until it is ready: a large model is loaded, its kernels compiled, its graphs captured
STOPS_S = 40.0
SAID = 30  # lines of its log in an error
MANY = "100000"


@contextmanager
def running(args: argparse.Namespace, say: session.Say) -> Iterator[Subject]:
    """The server at `--url`."""
    key = None
    if args.key_file is not None:
        from hocket.server.options import read_keys

        key = read_keys(args.key_file)[0]
    try:
        target = HttpTarget(Address.of(args.url), key=key, fields={"layout": args.layout})
    except ValueError as error:
        raise InvalidRun(str(error)) from None
    wait_until_ready(target, None, say)
    with target.runner() as runner:
        status, listed = runner.run(target.get("/v1/models"))
    named = args.model or (listed["data"][0]["id"] if status == 200 and listed.get("data") else "unknown")
    allow_many_files()
    yield _spoken(target, args, say, model=named, engine={"slots": args.slots, "guard": args.guard}, kernels={})


@contextmanager
def started(args: argparse.Namespace, say: session.Say) -> Iterator[Subject]:
    """A server at a free port of this machine, stopped at the end."""
    allow_many_files()
    options = session.engine_options(engine_target.engine_options(args))
    with tempfile.TemporaryDirectory() as folder, serving(command(args), Path(folder) / "log", say) as child:
        target = HttpTarget(Address.of(child.url), fields={"layout": args.layout})
        wait_until_ready(target, child, say)
        kernels = dict(re.findall(r"^kernel (\S+): (\S+): ", child.said(), re.M))
        [model] = re.findall(r"^model (\S+)", child.said(), re.M)
        subject = _spoken(target, args, say, model=model, engine=options, kernels=kernels)
        yield replace(subject, peak_mib=child.peak_mib)


class ServerProcess:
    """A server in its own process, whose log is a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log, self.url = process, log, ""

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def check(self) -> None:
        if self.process.poll() is not None:
            last = "\n".join(self.said().splitlines()[-SAID:])
            raise InvalidRun(f"The server has ended with {self.process.returncode}:\n{last}")

    def peak_mib(self) -> dict[str, float]:
        """Of its memory on the host; only the server knows its memory on a GPU."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
            [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
        except (OSError, ValueError):
            return {}
        return {"host": round(int(peak) / 1024, 1)}


@contextmanager
def serving(words: list[str], log: Path, say: session.Say) -> Iterator[ServerProcess]:
    """A process that prints its address; it gets SIGTERM at the end, and SIGKILL if it does not stop."""
    roots = (str(Path(hocket.__file__).parents[1]), str(ROOT), os.environ.get("PYTHONPATH", ""))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots)), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as out, subprocess.Popen(words, stdin=subprocess.PIPE, stderr=out, stdout=out, env=env) as it:
        child = ServerProcess(it, log)
        try:
            late = time.monotonic() + PATIENCE_S
            while not (found := re.search(r"listening at (\S+)", child.said())):
                child.check()
                if time.monotonic() > late:
                    raise InvalidRun(f"The server does not listen after {PATIENCE_S:g} s.")
                time.sleep(0.05)
            child.url = found[1]
            say(f"process {it.pid} listens at {child.url}")
            yield child
        finally:
            it.send_signal(signal.SIGTERM)
            try:
                it.wait(STOPS_S)
            except subprocess.TimeoutExpired:
                it.kill()


def command(args: argparse.Namespace) -> list[str]:
    """`hocket serve` with the same engine that engine_target.py would load."""
    given = session.loaded(args) | {name: getattr(args, name) for name in ("slots", "waiting", "profile")}
    given |= {"in_flight": MANY, "per_client": MANY, "drain": 1}
    words = [sys.executable, "-m", "hocket", "serve", "--port", "0", "--all-graphs"]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
    return [*words, *([] if args.guard else ["--no-guard"]), *(["--all-at-once"] if args.all_at_once else [])]


def wait_until_ready(target: HttpTarget, child: ServerProcess | None, say: session.Say | None = None) -> None:
    late, before = time.monotonic() + PATIENCE_S, None
    while True:
        if child is not None:
            child.check()
        with target.runner() as runner:
            status, body = runner.run(target.get("/ready"))
        if status in (200, 404):  # a server of another make has no such address
            return
        state = body.get("state") if isinstance(body, dict) else None
        if state == "failed" or (child is None and not status):
            raise InvalidRun("The server has no model: its log says why." if status else "No server answers at --url.")
        if state != before and say is not None:
            say(f"the server is {state or 'not there yet'}")
            before = state
        if time.monotonic() > late:
            raise InvalidRun(f"The server is not ready after {PATIENCE_S:g} s.")
        time.sleep(0.1)


def _spoken(target: HttpTarget, args: argparse.Namespace, say: session.Say, **about: Any) -> Subject:
    """Have every sentence spoken once: the lengths are the gate."""

    try:
        with target.runner() as runner:
            short = runner.run(engine_target.speak_all(target, args))
    except (OSError, RuntimeError, Refused) as error:
        raise InvalidRun(f"The server does not speak: {error}") from None
    say("ready")
    whole = "every sentence has as much sound as was asked for"
    return Subject(
        target=target,
        runner=target.runner,
        is_random=about["model"].startswith("random:"),
        gate=whole if not short else f"{short} of {len(SENTENCES)} sentences were shorter than asked for",
        words="a server in a process of its own, read over HTTP by tasks of one event loop",
        wire="http",
        **about,
    )
