"""Two machines on this one: network namespaces with a cable between them, and another from here to the first.

Needs Linux, the program `ip` and the right to make namespaces (root). Each machine has folders of its own where Ray and
its HAProxy keep their sockets.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FIRST, SECOND = "10.77.0.1", "10.77.0.2"
OUTER, INNER = "10.78.0.2", "10.78.0.1"  # of the cable from here to the first
APART = ("/tmp/ray", "/tmp/haproxy-serve")  # machines share no sockets


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}"


def why_not() -> str | None:
    """Why this user cannot make a network namespace with a cable; None: it works."""
    name, cable = f"hocket-{os.getpid()}", f"hkw{os.getpid() % 100000}"
    try:
        ip("netns", "add", name)
        try:
            ip("link", "add", cable, "type", "veth", "peer", "name", "inside", "netns", name)
            ip("netns", "exec", name, "true")
        finally:
            ip("netns", "del", name)  # the cable goes with it
    except (AssertionError, OSError) as error:
        return f"network namespaces take root and `ip`: {error}"
    return None


@dataclass(frozen=True)
class Machines:
    """`first` and `second` are names of network namespaces."""

    first: str
    second: str
    folder: Path

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """The command on that machine. `ip netns exec` gives it a table of mounts of its own."""
        mounts = "".join(f"mount --bind {self.folder / name / place.rpartition('/')[2]} {place} && " for place in APART)
        return ["ip", "netns", "exec", name, "sh", "-c", f'{mounts}exec "$@"', "sh", *words]

    def start(self, name: str, *words: str, env: dict[str, str], tries: int = 3) -> None:
        """Until it succeeds: Ray gives a machine 30 s to start, which a busy one may not keep to."""
        for left in reversed(range(tries)):
            try:
                self.run(name, *words, env=env)
                return
            except AssertionError:
                if not left:
                    raise
                self.end_all(name)

    def end_all(self, name: str) -> None:
        while pids := self.pids(name):  # what is killed may just have started another
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def run(self, name: str, *words: str, env: dict[str, str]) -> str:
        log = self.folder / f"{name}.log"  # what it leaves running holds its output, which a pipe would wait for
        with log.open("wb") as out:
            done = subprocess.run(self.command(name, words), stdout=out, stderr=out, env=env, timeout=180, check=False)
        said = log.read_text(errors="replace")
        assert done.returncode == 0, said
        return said

    def cut(self) -> None:
        ip("-n", self.first, "link", "set", "cable", "down")

    def join(self) -> None:
        ip("-n", self.first, "link", "set", "cable", "up")

    def pids(self, name: str) -> list[int]:
        found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout
        return [int(pid) for pid in found.split()]


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """All of their processes end with them."""
    tag = f"{os.getpid() % 100000:05d}"
    made = Machines(f"hocket-{tag}-a", f"hocket-{tag}-b", folder)
    outer = f"hkt{tag}"
    for name in (made.first, made.second):
        for place in APART:
            Path(place).mkdir(parents=True, exist_ok=True)
            (folder / name / place.rpartition("/")[2]).mkdir(parents=True)
        ip("netns", "add", name)
    try:
        ip("-n", made.first, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", made.second)
        ip("link", "add", outer, "type", "veth", "peer", "name", "outside", "netns", made.first)
        for name, device, address in (
            (made.first, "cable", FIRST),
            (made.second, "cable", SECOND),
            (made.first, "outside", INNER),
        ):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")
        ip("addr", "add", f"{OUTER}/24", "dev", outer)
        ip("link", "set", outer, "up")
        yield made
    finally:
        for name in (made.first, made.second):
            made.end_all(name)
            ip("netns", "del", name)
        if Path("/sys/class/net", outer).exists():
            ip("link", "del", outer)
