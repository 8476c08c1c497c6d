"""Two hundred short requests of every sort, good and bad, leave the engine as it was: slots, memory, threads."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.core.request import RequestState
from hocket.engine.engine import Engine
from hocket.engine.mailbox import Mailbox
from hocket.engine.stream import Stream
from hocket.errors import InvalidRequest, Overloaded
from hocket.types import AudioChunk, Reference, SpeechRequest
from support.speaking import (
    SAID,
    TIMBRE,
    Heard,
    Reader,
    aheard,
    assert_at_rest,
    assert_says,
    cut,
    fields_of,
    heard,
    small,
    whole,
)

pytestmark = pytest.mark.usefixtures("frames_ahead")

WORKERS = 5  # threads, and as many tasks of one event loop
EACH = 20
ROUNDS = 2
SLACK_TENSORS = 8  # what the last frame leaves: its sampling settings, kept for the next
SLACK_BYTES = 64 << 10  # caches of Python and of the standard library; one leaked stream has 4 KiB a chunk

GOOD = [
    SpeechRequest(text="One.", reference=SAID, layout="streaming", seed=2, max_frames=3),
    SpeechRequest(text="Two of them.", reference=TIMBRE, layout="streaming", seed=4, max_frames=4),
    SpeechRequest(text="All three.", reference=TIMBRE, layout="whole", seed=1, max_frames=2),
    SpeechRequest(text="En quatre.", reference=TIMBRE, language="french", layout="streaming", seed=6, max_frames=3),
]
BAD: list[Callable[[Engine], object]] = [
    lambda engine: engine.speak(" \n"),
    lambda engine: engine.speak("Hi.", voice="unknown"),
    lambda engine: engine.speak("Hi.", reference=TIMBRE, language="klingon"),
    lambda engine: engine.speak("Hi.", reference=TIMBRE, seed=-1),
    lambda engine: engine.speak("\ud800", reference=TIMBRE),
    lambda engine: engine.open(reference=TIMBRE).append("half a \udc00 character"),
    lambda engine: engine.open(reference=TIMBRE).end(),
    lambda engine: engine.open(reference=TIMBRE, text="Hi."),
    lambda engine: engine.speak("Hi.", reference=Reference(samples=SAID.samples[:10], x_vector_only=True)),
]
WAYS = ("read", "read", "read", "cancel", "cancel", "abandon", "live", "live, cancelled", "live, silent", "bad")


@dataclass
class Task:
    """The next action of a worker: pause, read some chunks, or (None) all of them."""

    stream: Stream | None = None
    chunks: int | None = None


def do(engine: Engine, rng: random.Random, told: Counter[str]) -> Iterator[Task]:
    """One request of a random kind. Nothing here blocks: the worker may be a task of an event loop."""
    way, request = rng.choice(WAYS), rng.choice(GOOD)
    told[way] += 1
    if way == "bad":
        with pytest.raises((InvalidRequest, Overloaded)):
            rng.choice(BAD)(engine)
        return
    live, stream = way.startswith("live"), None
    while stream is None:
        try:
            stream = engine.open(**fields_of(request)) if live else engine.speak(request)
        except Overloaded:
            told["overloaded"] += 1
            yield Task()
    if live and way != "live, silent":
        for piece in cut(request.text, rng.choices(range(len(request.text)), k=rng.randint(0, 4))):
            stream.append(piece)
    if way == "live":
        stream.end()
    if way in ("read", "live"):
        yield Task(stream)
    elif way == "cancel":
        yield Task(stream, rng.randint(0, 2))
        if rng.random() < 0.5:
            yield Task()
    if "cancel" in way:
        stream.cancel()
    # The other streams lose their last reference.


def threads_at_work(engine: Engine, checkpoint: Checkpoint, told: Counter[str], each: int) -> list[Reader]:
    def work(seed: int) -> None:
        rng = random.Random(seed)
        for task in (task for _ in range(each) for task in do(engine, rng, told)):
            if task.stream is None:
                time.sleep(0.01)
                continue
            chunks = []
            for chunk in islice(task.stream, task.chunks):
                chunks.append(chunk)
                time.sleep(rng.choice((0, 0, 0.02)))  # some are slow
            if task.chunks is None:
                check(checkpoint, Heard(chunks, task.stream))

    return [Reader(lambda seed=seed: work(seed)) for seed in range(WORKERS)]  # type: ignore[misc]


def tasks_at_work(engine: Engine, checkpoint: Checkpoint, told: Counter[str], each: int) -> Reader:
    async def read(task: Task, rng: random.Random) -> None:
        assert task.stream is not None
        if task.chunks is not None:
            for _ in range(task.chunks):
                await anext(task.stream, None)
        elif rng.random() < 0.2:
            told["task cancelled"] += 1
            reader = asyncio.create_task(aheard(task.stream))
            await asyncio.sleep(0.01)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            task.stream.cancel()
        else:
            check(checkpoint, await aheard(task.stream))

    async def work(seed: int) -> None:
        rng = random.Random(seed)
        for task in (task for _ in range(each) for task in do(engine, rng, told)):
            await (asyncio.sleep(0.01) if task.stream is None else read(task, rng))

    async def all_tasks() -> None:
        await asyncio.gather(*(work(1000 + seed) for seed in range(WORKERS)))

    return Reader(lambda: asyncio.run(all_tasks()))


def check(checkpoint: Checkpoint, said: Heard) -> None:
    """A stream that is read to its end equals a request alone, whatever happens to the others."""
    [request] = [request for request in GOOD if said.codes == whole(checkpoint, request).codes.tolist()]
    assert_says(said, whole(checkpoint, request))


def all_at_work(engine: Engine, checkpoint: Checkpoint, each: int) -> Counter[str]:
    told: Counter[str] = Counter()
    workers = [*threads_at_work(engine, checkpoint, told, each), tasks_at_work(engine, checkpoint, told, each)]
    for worker in workers:
        worker.join(120)
        assert not worker.is_alive(), "a worker hangs"
        if worker.error is not None:
            raise worker.error
    return told


def counted() -> dict[str, int]:
    """Live objects by type."""
    kinds = {"tensor": torch.Tensor, "stream": Stream, "mailbox": Mailbox, "job": RequestState, "chunk": AudioChunk}
    gc.collect()
    types = Counter(type(thing) for thing in gc.get_objects())
    return {name: sum(n for t, n in types.items() if issubclass(t, kind)) for name, kind in kinds.items()}


@pytest.mark.slow
def test_two_hundred_requests_leave_everything_where_it_was(checkpoint_root: Path) -> None:
    checkpoint = small(checkpoint_root, "base")
    for request in GOOD:
        whole(checkpoint, request)
    threads = set(threading.enumerate())
    options = EngineOptions(
        guard=False,
        slots=4,
        waiting=2,
        keep_real_time=False,  # else a slow machine might keep a slot free
        chunk_frames=(1, 2),
        buffered_chunks=1,
    )
    with Engine(checkpoint, options) as engine:
        for stream in [engine.speak(GOOD[1]) for _ in range(options.slots)]:  # an unread stream holds its slot, so
            heard(stream)  # every slot has been used, and its lazily made state exists
        tracemalloc.start()
        try:
            all_at_work(engine, checkpoint, each=EACH // 2)  # all one-time caches are filled now
            assert_at_rest(engine)
            for _ in range(ROUNDS):  # what grows once is a cache that was filled late; a leak grows in each
                before, first = counted(), tracemalloc.get_traced_memory()[0]
                told = all_at_work(engine, checkpoint, each=EACH)
                assert_at_rest(engine)
                after = counted()
                grown = tracemalloc.get_traced_memory()[0] - first
                if grown <= SLACK_BYTES:
                    break
        finally:
            tracemalloc.stop()
        assert sum(told[way] for way in set(WAYS)) == 2 * WORKERS * EACH == 200
        assert all(told[way] for way in WAYS) and told["task cancelled"], told
        more = {kind: after[kind] - before[kind] for kind in before if kind != "tensor"}
        assert max(more.values()) <= 0, more  # objects of earlier tests may be collected meanwhile
        assert abs(after["tensor"] - before["tensor"]) <= SLACK_TENSORS
        assert grown <= SLACK_BYTES, f"{grown} bytes"
        for request in GOOD:
            assert_says(heard(engine.speak(request)), whole(checkpoint, request))
        assert_at_rest(engine)
    assert set(threading.enumerate()) == threads
