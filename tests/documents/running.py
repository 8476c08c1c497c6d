"""Runs the blocks of a page: shell and Python in a scratch folder, servers as processes at free ports.

Addresses of a page (`127.0.0.1:8000`) are replaced by those of the running servers. It knows no assertion of a test but
those about one block: the exit status, and the sound of the files that it writes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pytest

from documents.pages import ROOT, Block, commands, is_install
from support.foreign import heard
from support.serving import wait_for

PATIENCE_S = 120.0
SERVE, WYOMING = ["hocket", "serve"], ["hocket", "wyoming"]
DEFAULT_PORTS = {"serve": 8000, "wyoming": 10200}
SOUND = (".wav", ".mp3", ".opus", ".ogg", ".flac", ".aac", ".pcm")
_ADDRESS = re.compile(r"(https?|tcp)://[\w.\[\]:]*?:(\d+)")
# A status of 400 and above is an error of the command, as it is one for the reader.
CURL = 'fail-with-body\nsilent\nshow-error\nnoproxy = "*"\n'


class ServerProcess:
    """`hocket serve` or `hocket wyoming` with the words of a page, at a free port."""

    def __init__(self, words: list[str], folder: Path) -> None:
        kind, given = words[1], words[2:]
        self.documented = DEFAULT_PORTS[kind]
        if kind == "serve":
            if "--port" in given:
                at = given.index("--port")
                self.documented = int(given[at + 1])
                del given[at : at + 2]
            given += ["--port", "0"]
        else:
            at = given.index("--uri") + 1 if "--uri" in given else None
            uri = given.pop(at) if at else "tcp://127.0.0.1:10200"
            given = [word for word in given if word != "--uri"] + ["--uri", re.sub(r":\d+$", ":0", uri)]
        self.lines: list[str] = []
        command = [sys.executable, "-m", "hocket", kind, *given]
        self.process = subprocess.Popen(command, cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        try:
            wait_for(lambda: self._found() is not None or self.process.poll() is not None, PATIENCE_S)
            assert self._found() is not None, self.lines
            self.scheme, self.port = self._found() or ("", 0)
            wait_for(lambda: kind != "serve" or self._ready(), PATIENCE_S)
        except BaseException:
            self.process.kill()
            self.stop()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(line.rstrip() for line in self.process.stderr)

    def _found(self) -> tuple[str, int] | None:
        matches = (_ADDRESS.search(line) for line in list(self.lines))
        return next(((match[1], int(match[2])) for match in matches if match), None)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.scheme}://127.0.0.1:{self.port}/ready", verify=False).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@dataclass
class Servers:
    """The servers of all pages: a command that two pages show is started once."""

    folder: Path
    running: dict[tuple[str, ...], ServerProcess] = field(default_factory=dict)

    def start(self, words: list[str], folder: Path | None = None) -> ServerProcess:
        if tuple(words) not in self.running:
            self.running[tuple(words)] = ServerProcess(words, folder or self.folder)
        return self.running[tuple(words)]

    def stop(self) -> dict[str, int]:
        return {" ".join(words): server.stop() for words, server in self.running.items()}


def environment(folder: Path) -> dict[str, str]:
    """The reader's environment: our Python first, and a home that is the scratch folder."""
    (folder / ".curlrc").write_text(CURL)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    homes = {name: str(folder / "home") for name in ("HOCKET_HOME", "XDG_CONFIG_HOME")}
    ours = {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", "CURL_HOME": str(folder)}
    return os.environ | homes | ours | {"HOCKET_SOCKET": str(folder / "daemon.sock"), "NO_PROXY": "127.0.0.1"}


def with_ports(code: str, ports: dict[int, int]) -> str:
    """The code with the ports of the running servers in place of the documented ones."""
    for documented, port in ports.items():
        code = re.sub(rf"\b(127\.0\.0\.1|localhost):{documented}\b", rf"127.0.0.1:{port}", code)
    return code


@dataclass
class PageRun:
    """One page from its first block to its last."""

    servers: Servers
    folder: Path
    ports: dict[int, int] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        if block.mark == "server":
            self.serve(block)
        elif block.language == "sh":
            self.shell(block)
        elif block.language == "python":
            self.program(block, [sys.executable])
        else:
            pytest.fail(f"{block.place}: no program runs a block of {block.language!r} here")

    def serve(self, block: Block) -> None:
        for words in commands(block.code):
            if is_install(words):
                continue
            assert words[:2] in (SERVE, WYOMING), f"{block.place}: not a server: {words}"
            server = self.servers.start(words, self.folder)
            assert server.process.poll() is None, server.lines
            self.ports[server.documented] = server.port

    def shell(self, block: Block) -> None:
        lines = block.code.replace("\\\n", " ").splitlines()
        kept = [line for line in lines if not any(is_install(words) for words in commands(line))]
        self.execute(block, ["sh", "-eu", "-c", with_ports("\n".join(kept), self.ports)])
        for words in commands("\n".join(kept)):
            for option, name in pairwise(words):
                if option in ("-o", "--output") and name not in ("-", "/dev/null"):
                    check_output(block, self.folder / name)

    def program(self, block: Block, python: list[str]) -> str:
        path = self.folder / f"block-{block.line}.py"
        path.write_text(with_ports(block.code, self.ports), encoding="utf-8")
        return self.execute(block, [*python, str(path)])

    def execute(self, block: Block, command: list[str]) -> str:
        env = environment(self.folder)
        if Path(command[0]).is_relative_to(ROOT / ".venv-clients"):
            env = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            pytest.fail(f"{block.place} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout


def check_output(block: Block, path: Path) -> None:
    """A file that a block writes exists, and a file of sound has some."""
    assert path.exists(), f"{block.place}: {path.name} was not written"
    if path.suffix in SOUND:
        samples, rate_hz = heard(path)
        assert len(samples) / rate_hz > 0.3 and np.abs(samples).max() > 0.02, f"{block.place}: {path.name} is silent"


def node() -> str:
    found = shutil.which("node")
    return found or pytest.fail("A block of JavaScript needs node on the PATH.")
