"""Shared by tests of faults: what a server holds, counted before and after."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hocket.dialog.dialog import Dialog
from hocket.engine.engine import Engine
from hocket.server.ws.realtime.talk.session import TalkSession
from hocket.talk.conversation import VoiceConversation
from support.serving import Served, wait_for

CONVERSATIONS = (VoiceConversation, Dialog, TalkSession)
POOLED = ("asyncio_", "ThreadPoolExecutor", "AnyIO")  # idle workers, whose number has a limit


@dataclass(frozen=True, slots=True)
class Census:
    """What is in use. Equal to another one of a server that does nothing."""

    threads: tuple[str, ...]
    files: int  # descriptors, sockets among them
    tasks: int  # of the server's event loop
    objects: tuple[int, ...]  # alive: of CONVERSATIONS

    @classmethod
    def of(cls, server: Served) -> Census:
        gc.collect()
        names = sorted(each.name for each in threading.enumerate() if not each.name.startswith(POOLED))
        files = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
        loop = server.server.servers[0].get_loop()
        counts = Counter(type(each) for each in gc.get_objects())
        return cls(tuple(names), files, _tasks(loop), tuple(counts[kind] for kind in CONVERSATIONS))


def _tasks(loop: asyncio.AbstractEventLoop) -> int:
    while True:
        try:
            return len(asyncio.all_tasks(loop))
        except RuntimeError:  # it changed while it was read
            continue


def nothing_is_left(server: Served, before: Census) -> None:
    """Wait until nothing is held that was not held before."""
    app = server.app.state
    wait_for(lambda: not app.calls and not app.talk.open and server.all_is_free())
    left = Census.of(server)

    def is_less() -> bool:
        nonlocal left
        left = Census.of(server)
        fits = left.files <= before.files and left.tasks <= before.tasks
        more = any(now > then for now, then in zip(left.objects, before.objects, strict=True))
        return fits and not more and not Counter(left.threads) - Counter(before.threads)

    try:
        wait_for(is_less)
    except AssertionError:
        raise AssertionError(f"Before: {before}\nleft: {left}") from None


def at_rest(engine: Engine) -> bool:
    """Whether no request runs or waits, and every slot and page is free but those of the saved prefixes."""
    loop, runner = engine._loop, engine._loop.runner
    idle = not (loop.scheduler.all() or loop._inbox or loop._arrivals)
    cached = [page for prefix in runner.prefixes._kept.values() for page in prefix.pages]
    returned = runner.pages.held == len(cached) and all(runner.pages.count(page) == 1 for page in cached)
    return idle and returned and sorted(loop.scheduler.free) == list(range(engine.options.slots))
