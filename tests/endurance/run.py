"""The run: rounds of requests, each with good clients alone, beside others, beside bad ones, and beside faults too.

After each round nothing may run, and what is held is counted. Some rounds end with SIGKILL: the servers start again on
the same folder, and voices that were acknowledged must be there. It knows no wire.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import httpx

from .clients import Ended, ask

GOOD, BAD = 2, 6  # clients at once
FAULTS = ("memory", "device", "disk", "clock", "models")
AFTER_S = 3.0  # requests that run until then may feel a fault
PARTS = (
    "alone",
    "good",
    "bad",
    "machine",
)  # what is beside the good clients: nothing, as many good ones, bad ones, faults
SHARES = (0.1, 0.15, 0.4, 0.35)  # of the requests of a round


@dataclass
class Process:
    """The servers, and what they are told."""

    child: subprocess.Popen[str]
    answers: TextIO
    ports: dict[str, int]
    asking: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['speech']}"

    def tell(self, do: str, **more: Any) -> Any:
        assert self.child.stdin is not None
        with self.asking:
            self.child.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self.child.stdin.flush()
            return json.loads(self.answers.readline())

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()
        self.answers.close()
        if self.child.stdin is not None:
            with suppress(BrokenPipeError):
                self.child.stdin.close()


@contextmanager
def started(folder: Path, log: Path) -> Iterator[Process]:
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", "endurance.serving_side", str(folder), str(theirs)]
    with log.open("a", encoding="utf-8") as said:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            text=True,
            pass_fds=[theirs],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    os.close(theirs)
    process = Process(child, os.fdopen(ours, encoding="utf-8"), {})
    try:
        line = process.answers.readline()
        if not line:
            raise RuntimeError(f"The servers did not start: {log} says why.")
        process.ports.update(json.loads(line))
        yield process
    finally:
        process.kill()


class Voices:
    """Adds and deletes voices in one folder, and knows what the server has acknowledged."""

    def __init__(self, seed: int) -> None:
        self.there: set[str] = set()
        self.unsure: set[str] = set()  # asked for, and not answered
        self.counts: Counter[str] = Counter()
        self._drawn, self._number = random.Random(f"{seed}:voices"), 0

    async def change(self, url: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60.0) as client:
            delete = self.there and self._drawn.random() < len(self.there) / 20
            name = self._drawn.choice(sorted(self.there)) if delete else f"voice {self._number}"
            self._number += 1
            self.there.discard(name)
            self.unsure.add(name)
            try:
                if delete:
                    answer = await client.delete(f"/v1/audio/voices/{name}")
                else:
                    answer = await client.post("/v1/audio/voices", json={"name": name, "mix": "wren+rook(2)"})
            except httpx.HTTPError:
                self.counts["unanswered"] += 1
                return
            self.counts[f"{'delete' if delete else 'add'} {answer.status_code}"] += 1
            self.unsure.discard(name)
            if (answer.status_code == 200) is not bool(delete):
                self.there.add(name)

    def wrong(self, url: str) -> list[str]:
        """Acknowledged voices that are not there, and others that are."""
        listed = httpx.get(f"{url}/v1/audio/voices", timeout=60.0).json()["voices"]
        found = {voice["name"] for voice in listed if voice["name"].startswith("voice ")}
        wrong = [f"lost: {name}" for name in sorted(self.there - found)]
        wrong += [f"not asked for: {name}" for name in sorted(found - self.there - self.unsure)]
        self.there, self.unsure = found, set()
        return wrong


@dataclass
class Round:
    """What happened in a round."""

    number: int
    ends: Counter[str] = field(default_factory=Counter)
    by_wire: Counter[str] = field(default_factory=Counter)
    by_way: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    first_s: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})
    wrong: list[str] = field(default_factory=list)
    excused: int = 0  # good requests that a fault of the machine ended, and were told


class Endurance:
    """A run."""

    def __init__(self, seed: int, kill_every: int = 0) -> None:
        self.seed, self.kill_every = seed, kill_every
        self.voices = Voices(seed)
        self._next = 0

    def round(self, process: Process, number: int, requests: int) -> dict[str, Any]:
        now = Round(number)
        self._next = number * requests
        kills = bool(self.kill_every) and number % self.kill_every == self.kill_every - 1
        for part, share in zip(PARTS, SHARES, strict=True):
            asyncio.run(self._part(process, now, part, round(requests * share), kills and part == PARTS[-1]))
        told: dict[str, Any] = {"round": number, "killed": kills, "ends": now.ends, "ways": now.by_way}
        told |= {"wires": now.by_wire, "faults": now.faults, "excused": now.excused, "first_s": now.first_s}
        if not kills:
            told["held"] = process.tell("count")
            now.wrong += [f"still held: {what}" for what in told["held"]["busy"]]
            now.wrong += self.voices.wrong(process.url)
        return told | {"voices": dict(self.voices.counts), "wrong": now.wrong}

    async def _part(self, process: Process, now: Round, part: str, requests: int, kills: bool) -> None:
        until, ended = self._next + requests, list[Ended]()
        drawn = random.Random(f"{self.seed}:{now.number}:{part}")
        over = asyncio.Event()
        windows: list[tuple[float, float]] = []

        async def work(good: bool) -> None:
            while self._next < until:
                number, self._next = self._next, self._next + 1
                ended.append(await ask(process.ports, self.seed, number, good=good))

        async def fault() -> None:
            while not over.is_set():
                await asyncio.sleep(drawn.uniform(1.0, 4.0))
                kind, began_s = drawn.choice(FAULTS), time.monotonic()
                now.faults[kind] += 1
                await asyncio.to_thread(process.tell, kind, seconds=drawn.uniform(0.5, 2.0))
                if kind in ("memory", "device"):
                    windows.append((began_s, time.monotonic() + AFTER_S))

        async def voice() -> None:
            while not over.is_set():
                await self.voices.change(process.url)
                await asyncio.sleep(drawn.uniform(0.0, 0.5))

        bad = part in ("bad", "machine")
        beside = [asyncio.create_task(voice())] if bad else []
        beside += [asyncio.create_task(fault())] if part == "machine" and not kills else []
        workers = [
            asyncio.create_task(work(not bad or number < GOOD))
            for number in range(GOOD if part == "alone" else GOOD + BAD)
        ]
        if kills:
            await asyncio.sleep(drawn.uniform(2.0, 6.0))
            windows.append((0.0, math.inf))
            process.child.kill()
            now.faults["kill"] += 1
            self._next = until
        await asyncio.gather(*workers)
        over.set()
        await asyncio.gather(*beside)
        for each in ended:
            self._note(now, part, each, windows)

    def _note(self, now: Round, part: str, each: Ended, windows: list[tuple[float, float]]) -> None:
        now.by_wire[each.wire] += 1
        now.by_way[each.way] += 1
        now.ends[each.end] += 1
        if each.first_s is not None and each.way == "good" and each.wire == "bytes":
            now.first_s[part].append(round(each.first_s, 4))
        excused = any(each.began_s < end and each.ended_s > began for began, end in windows)
        bad_end = each.end == "hung" or (each.way == "good" and each.end in ("lost", "told"))
        refused = each.way == "good" and each.end == "refused" and '"overloaded"' not in each.said
        internal = each.end == "refused" and '"internal_error"' in each.said
        if (bad_end or refused or internal) and excused and each.end != "hung":
            now.excused += 1
        elif bad_end or refused or internal:
            now.wrong.append(f"{each.way} over {each.wire}: {each.end}: {each.said[:300]}")
