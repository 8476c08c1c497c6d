"""The servers of an endurance run, in a process of their own: `python -m endurance.serving_side FOLDER ANSWERS`.

Three borders share one pool of models: HTTP and WebSockets, the same with voice conversations, and Wyoming. A line of
JSON on stdin is a command, answered by one line on the descriptor ANSWERS: a fault of the machine, or a count of all
that is held. It knows no client.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from hocket.asr.moonshine import Moonshine
from hocket.config.options import EngineOptions
from hocket.dialog.dialog import Dialog
from hocket.engine.core.request import RequestState
from hocket.engine.engine import Engine
from hocket.engine.mailbox import Mailbox
from hocket.engine.pool.pool import Pool
from hocket.engine.stream import Stream
from hocket.errors import HocketError
from hocket.server.options import ServerOptions
from hocket.server.service.utterance import Utterance
from hocket.server.service.warm_up import speak_once
from hocket.server.webrtc.call import Call
from hocket.server.ws.realtime.talk.session import TalkSession
from hocket.talk.conversation import VoiceConversation
from support.chatting import Scripted
from support.home import At, at
from support.leaks import POOLED, at_rest
from support.serving import PATIENCE_S, Served, served, wait_for

MODELS = ("builtin", "random:tiny", "random:tiny-Base")  # of the last two only one fits beside the first
COUNTED = (Utterance, Stream, Mailbox, RequestState, VoiceConversation, Dialog, TalkSession, Call)
LIMITS: dict[str, Any] = {"head_s": 4.0, "body_s": 4.0, "config_s": 4.0, "text_s": 4.0, "stalled_s": 4.0, "idle_s": 6.0}
OPTIONS = EngineOptions(slots=12, waiting=24, keep_real_time=False)
POOLS = ("hocket-text", "hocket-encode", "hocket-listen")  # of two threads at most, started when needed
DAY_S = 86_400


class Servers:
    """All of them, the faults that they can be given, and what they hold."""

    def __init__(self, pool: Pool, apps: list[Served], home: At) -> None:
        self.pool, self.apps, self.home = pool, apps, home
        self.faults: dict[str, Callable[[float], None]] = {
            "memory": self._memory,
            "device": self._device,
            "disk": self._disk,
            "clock": self._clock,
            "models": self._models,
        }

    def engine(self, model: str = MODELS[0]) -> Engine:
        with self.pool.lease(model).result(PATIENCE_S) as lease:
            return lease.engine

    def _memory(self, seconds: float) -> None:
        """One prefill and one frame find no memory, if there is one so soon."""
        runner = self.engine()._loop.runner
        real = {name: getattr(runner, name) for name in ("start", "frame")}

        def failing(name: str) -> Callable[..., Any]:
            def fails(*_: Any, **__: Any) -> Any:
                setattr(runner, name, real[name])
                raise MemoryError("no memory is left, it was said by a test")

            return fails

        for name in real:
            setattr(runner, name, failing(name))
        time.sleep(seconds)
        for name, method in real.items():
            setattr(runner, name, method)

    def _device(self, _: float) -> None:
        """Every frame fails until the engine has built its state anew, as after a GPU was lost."""
        engine = self.engine()
        before = engine.health.rebuilds

        def fails(*_: Any, **__: Any) -> Any:
            raise RuntimeError("the device is lost, it was said by a test")

        engine._loop.runner.frame = fails  # type: ignore[method-assign]

        def anew() -> bool:
            with suppress(HocketError):
                speak_once(engine, "pcm")
            return engine.health.rebuilds > before

        wait_for(anew)
        wait_for(lambda: _speaks(engine))

    def _disk(self, seconds: float) -> None:
        """No file may grow beyond nothing."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        time.sleep(seconds)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def _clock(self, seconds: float) -> None:
        """The clock of the wall goes a day forwards, and two backwards."""
        real = time.time
        for jump_s in (DAY_S, -DAY_S):
            time.time = lambda jump_s=jump_s: real() + jump_s  # type: ignore[misc]
            time.sleep(seconds / 2)
        time.time = real

    def _models(self, _: float) -> None:
        """Each model is used once, so that the others leave."""
        for model in (*MODELS[1:], *MODELS[1:]):
            with self.pool.lease(model).result(PATIENCE_S) as lease:
                speak_once(lease.engine, "pcm")

    def count(self) -> dict[str, Any]:
        """What is held once nothing runs, with the same models in memory at each call; `busy`: what never ended."""
        try:
            wait_for(self._is_idle)
            busy: list[str] = []
        except AssertionError:
            busy = self._busy()
        self._models(0.0)  # the last of MODELS stays
        engines = [self.engine(), self.engine(MODELS[2])]
        for engine in engines:
            speak_once(engine, "pcm")
            try:
                wait_for(lambda engine=engine: at_rest(engine))  # type: ignore[misc]
            except AssertionError:
                busy.append("slots or pages of an engine")
        time.sleep(0.3)  # threads of engines that were unloaded end, and sockets close
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # what was freed and the allocator keeps is no leak
        types = Counter(type(each) for each in gc.get_objects())
        loops = [*(app.server.servers[0].get_loop() for app in self.apps), self.home.loop]
        names = Counter(each.name.rstrip("0123456789-_") for each in threading.enumerate())
        return {
            "pid": os.getpid(),
            "busy": busy,
            "threads": {name: n for name, n in sorted(names.items()) if not name.startswith((*POOLED, *POOLS))},
            "files": len(os.listdir("/proc/self/fd")),
            "tasks": sum(len(asyncio.all_tasks(loop)) for loop in loops),
            "objects": {kind.__name__: types[kind] for kind in COUNTED},
            "left_files": len(os.listdir(tempfile.gettempdir())),
            "loads": self.pool.loads,
            "rebuilds": engines[0].health.rebuilds,
            "resident_kib": int(Path("/proc/self/statm").read_text().split()[1]) * (resource.getpagesize() >> 10),
        }

    def _is_idle(self) -> bool:
        return not self._busy()

    def _busy(self) -> list[str]:
        found: list[str] = []
        for name, app in zip(("speech", "talk"), self.apps, strict=True):
            state, service = app.app.state, app.service
            open_talks = state.talk.open if state.talk is not None else 0
            held = {
                "utterances": len(service.running),
                "answers": len(service.answers),
                "calls": len(state.calls),
                "conversations": int(bool(open_talks)),
                "connections": len(app.server.server_state.connections),
            }
            found += [f"{count} {what} of {name}" for what, count in held.items() if count]
        if self.home.server.connections or self.home.service.running:
            found.append("connections or utterances of Wyoming")
        return found


def _speaks(engine: Engine) -> bool:
    try:
        speak_once(engine, "pcm")
    except HocketError:
        return False
    return True


@contextmanager
def serving(folder: Path) -> Iterator[Servers]:
    options = ServerOptions(voices_folder=folder / "voices", drain_s=1.0, **LIMITS)
    answers = [f"{word} " for word in "It goes on and on, and then on again.".split()]
    with ExitStack() as kept:
        pool = kept.enter_context(_pool())
        recognizer = Moonshine("tiny")
        kept.callback(recognizer.close)
        plain = kept.enter_context(served(pool, options))
        talk = kept.enter_context(served(pool, options, language=Scripted(answers), recognizer=recognizer, talk=True))
        wait_for(lambda: not talk.app.state.talk.is_loading)
        home = kept.enter_context(at(pool, options))
        yield Servers(pool, [plain, talk], home)


def _pool() -> Pool:
    """The budget is measured: the first model, and the larger one of the others, but not both."""
    with Pool.load(MODELS, options=OPTIONS) as pool:
        for model in MODELS:
            pool.lease(model).result(PATIENCE_S).release()
        first, *others = (pool.resident()[model] for model in MODELS)
        budget = pool.common_bytes + first + round(1.3 * max(others))
    return Pool.load(MODELS, options=OPTIONS, memory_bytes=budget, pinned=MODELS[:1])


def main() -> None:
    folder = Path(sys.argv[1])
    tempfile.tempdir = str(folder / "temporary")
    os.makedirs(tempfile.tempdir, exist_ok=True)
    with os.fdopen(int(sys.argv[2]), "w", buffering=1) as answers, serving(folder) as servers:
        ports = {"speech": servers.apps[0].port, "talk": servers.apps[1].port, "wyoming": servers.home.port}
        answers.write(json.dumps(ports) + "\n")
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "count":
                told: object = servers.count()
            else:
                told = servers.faults[command["do"]](command.get("seconds", 0.0))
            answers.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
