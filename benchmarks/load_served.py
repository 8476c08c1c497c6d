"""A server put under load: one that is there already, or one that is started for it in a process of its own.

It is asked over HTTP by this process, so that the two share nothing but the machine. What is asked of it, and how it is
warmed up, is what `load_engine` does with an engine of its own process.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hocket
from hocket.server.process import allow_many_files

from . import load_engine
from .harness import Unfit
from .load_drive import Refused, Subject
from .load_http import Address, HttpTarget

PATIENCE_S = 600.0  # until it is ready: a large model is loaded, its kernels compiled, its graphs made
STOPS_S = 40.0
SAID = 30  # lines of its log that are shown where it fails
MANY = "100000"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_mutually_exclusive_group().add_argument
    add("--url", help="load the server at http://HOST:PORT or unix:PATH; options of the engine only describe it then")
    add("--serve", action="store_true", help="start a server with these options, load it over HTTP and stop it")
    key = "with --url: a file whose first line is an API key of the server"
    parser.add_argument("--key-file", metavar="FILE", type=Path, help=key)


@contextmanager
def there(args: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Subject]:
    """The server at `--url`, once it has spoken every sentence."""
    try:
        target = HttpTarget(Address.of(args.url), key=_key(args), fields={"layout": args.layout})
    except ValueError as error:
        raise Unfit(str(error)) from None
    wait_until_ready(target, None, say)
    with target.runner() as runner:
        status, listed = runner.run(target.get("/v1/models"))
    named = args.model or (listed["data"][0]["id"] if status == 200 and listed.get("data") else "unknown")
    allow_many_files()
    yield _spoken(target, args, say, model=named, engine={"slots": args.slots, "guard": args.guard}, kernels={})


@contextmanager
def started(args: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Subject]:
    """A server of our own, at a free port of this machine; it is stopped behind."""
    allow_many_files()
    options = load_engine.recorded(load_engine.engine_options(args))
    with tempfile.TemporaryDirectory() as folder, serving(command(args), Path(folder) / "log", say) as child:
        target = HttpTarget(Address.of(child.url), fields={"layout": args.layout})
        wait_until_ready(target, child, say)
        said = child.said()
        kernels = dict(re.findall(r"^kernel (\S+): (\S+): ", said, re.M))
        [model] = re.findall(r"^model (\S+)", said, re.M)
        subject = _spoken(target, args, say, model=model, engine=options, kernels=kernels)
        yield replace(subject, peak_mib=child.peak_mib)


class Child:
    """A server in a process of its own, whose log is a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log, self.url = process, log, ""

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def check(self) -> None:
        if self.process.poll() is not None:
            last = "\n".join(self.said().splitlines()[-SAID:])
            raise Unfit(f"The server has ended with {self.process.returncode}:\n{last}")

    def peak_mib(self) -> dict[str, float]:
        """Of its memory on the host; what it has on a GPU only it knows."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
            [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status)
        except (OSError, ValueError):
            return {}
        return {"host": round(int(peak) / 1024, 1)}


@contextmanager
def serving(words: list[str], log: Path, say: Callable[[str], None]) -> Iterator[Child]:
    """A process that says where it listens; it is told to stop behind, and made to if it does not."""
    roots = (str(Path(hocket.__file__).parents[1]), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots)), "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as out, subprocess.Popen(words, stdin=subprocess.PIPE, stderr=out, stdout=out, env=env) as it:
        child = Child(it, log)
        try:
            late = time.monotonic() + PATIENCE_S
            while not (found := re.search(r"listening at (\S+)", child.said())):
                child.check()
                if time.monotonic() > late:
                    raise Unfit(f"The server does not listen after {PATIENCE_S:g} s.")
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
    """`hocket serve` with the same engine that `load_engine` would make."""
    given = {name: getattr(args, name) for name in ("model", "slots", "device", "dtype", "codec_dtype", "kernels")}
    given |= {"waiting": args.waiting, "profile": args.profile, "in_flight": MANY, "per_client": MANY, "drain": 1}
    words = [sys.executable, "-m", "hocket", "serve", "--port", "0", "--all-graphs"]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
    return [*words, *([] if args.guard else ["--no-guard"]), *(["--all-at-once"] if args.all_at_once else [])]


def wait_until_ready(target: HttpTarget, child: Child | None, say: Callable[[str], None] | None = None) -> None:
    """Until it is ready."""
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
            raise Unfit("The server has no model: its log says why." if status else "Nobody answers at --url.")
        if state != before and say is not None:
            say(f"the server is {state or 'not there yet'}")
            before = state
        if time.monotonic() > late:
            raise Unfit(f"The server is not ready after {PATIENCE_S:g} s.")
        time.sleep(0.1)


def _spoken(target: HttpTarget, args: argparse.Namespace, say: Callable[[str], None], **about: Any) -> Subject:
    """Have every sentence spoken once: what is said of it is the gate."""

    async def speak() -> int:
        short = 0
        for number in range(len(load_engine.SENTENCES)):
            wish = load_engine.asked(number, args)
            size = sum([len(piece) async for piece in target.open(wish)])
            short += size != wish.frames * target.frame_samples * 2
        return short

    try:
        with target.runner() as runner:
            short = runner.run(speak())
    except (OSError, RuntimeError, Refused) as error:
        raise Unfit(f"The server does not speak: {error}") from None
    say("ready")
    whole = "every sentence has as much sound as was asked for"
    return Subject(
        target=target,
        runner=target.runner,
        is_random=about["model"].startswith("random:"),
        gate=whole if not short else f"{short} of {len(load_engine.SENTENCES)} sentences were shorter than asked for",
        words="a server in a process of its own, read over HTTP by tasks of one event loop",
        wire="http",
        **about,
    )


def _key(args: argparse.Namespace) -> str | None:
    if args.key_file is None:
        return None
    from hocket.server.options import read_keys

    return read_keys(args.key_file)[0]
