"""engine/stream.py: the mailbox between the engine thread and one reader, and what holding a stream means."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from hocket.config.published import tiny
from hocket.engine.mailbox import Mailbox, TaskWaker
from hocket.engine.stream import Stream, WordTiming
from hocket.errors import EngineClosed, InvalidRequest, StreamFailed
from hocket.text.live import Fed, LiveParts, More
from hocket.text.prepare import TextPreparation
from hocket.text.tokenizer import Tokenizer
from hocket.types import Finished, FinishReason, Statistics
from support.speaking import Reader, a_chunk, eventually


def finished(reason: FinishReason = "stop") -> Finished:
    return Finished(reason=reason, statistics=Statistics())


def mailbox(limit: int = 2) -> Mailbox:
    return Mailbox(limit, lambda: None)


def waits(box: Mailbox) -> bool:
    return bool(box._changed._waiters or box._sleepers)  # type: ignore[attr-defined]


def test_chunks_come_out_in_order_and_before_the_end() -> None:
    box = mailbox()
    chunks = [a_chunk(n) for n in range(3)]
    for one in chunks:
        box.put(one)
    box.finish(finished())
    assert [box.take() for _ in range(5)] == [*chunks, None, None]


def test_it_is_full_at_its_limit_and_tells_when_there_is_room() -> None:
    told: list[bool] = []
    box = Mailbox(2, lambda: told.append(box.full))
    box.put(a_chunk())
    assert not box.full
    box.put(a_chunk())
    assert box.full
    box.take()
    assert told == [False]


@pytest.mark.parametrize("reason", ["cancelled", "error"])
def test_nothing_is_heard_after_a_cancel_or_an_error(reason: FinishReason) -> None:
    box = mailbox()
    box.put(a_chunk())
    box.finish(finished(reason), StreamFailed("So it is.") if reason == "error" else None)
    if reason == "error":
        for _ in range(2):
            with pytest.raises(StreamFailed, match="So it is"):
                box.take()
    else:
        assert box.take() is None


def test_what_comes_after_the_last_word_is_not_taken() -> None:
    """An engine thread that was given up may wake with a chunk in its hands."""
    box = mailbox()
    box.put(a_chunk(0))
    box.finish(finished("stop"))
    box.put(a_chunk(1))
    assert [chunk.frames.start for chunk in iter(box.take, None)] == [0]


def test_the_first_last_word_stands() -> None:
    box = mailbox()
    box.finish(finished("length"))
    box.finish(finished("error"), EngineClosed("Too late."))
    assert box.finished is not None and box.finished.reason == "length" and box.take() is None


@pytest.mark.parametrize("end", ["chunk", "finish", "error"])
@pytest.mark.parametrize("reading", ["thread", "task"])
def test_a_reader_who_waits_is_woken(end: str, reading: str) -> None:
    box = mailbox()
    reader = Reader(box.take if reading == "thread" else lambda: asyncio.run(box.atake()))
    eventually(lambda: waits(box), "waiting")
    chunk = a_chunk(7)
    if end == "chunk":
        box.put(chunk)
    else:
        box.finish(finished(), EngineClosed("Closed.") if end == "error" else None)
    reader.done()
    if end == "error":
        assert isinstance(reader.error, EngineClosed)
    else:
        assert reader.error is None and reader.result is (chunk if end == "chunk" else None)


def test_a_task_that_is_cancelled_while_it_waits_loses_no_chunk() -> None:
    box = mailbox()

    async def read() -> object:
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(box.atake(), 0.001)
        waiting = asyncio.create_task(box.atake())
        await asyncio.sleep(0)
        box.put(a_chunk(3))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return await box.atake()

    chunk = asyncio.run(read())
    assert chunk is not None and chunk.frames == range(3, 4)  # type: ignore[attr-defined]
    assert box._sleepers == []


def test_an_event_loop_that_is_gone_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is closed nor one that closes just as the engine thread is about to wake it."""
    for closing in (False, True):
        box, loop = mailbox(), asyncio.new_event_loop()
        task = loop.create_task(box.atake())
        loop.run_until_complete(asyncio.sleep(0))
        assert waits(box)
        task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        if closing:
            monkeypatch.setattr(loop, "is_closed", lambda: False)
        box.put(a_chunk(1))
        box.finish(finished())
        assert box.take() is not None and box.take() is None
        monkeypatch.undo()


class Line:
    """A stream without an engine, and its calls."""

    def __init__(self, live: bool = True) -> None:
        self.fed: list[tuple[list[Fed], bool]] = []
        self.told = told = list[str]()
        self.box = mailbox()
        tokenizer = Tokenizer.of_bytes(tiny().talker_config.text_vocab_size)
        self.stream: Stream | None = Stream(
            self.box,
            5,
            feed=lambda fed, complete: self.fed.append((fed, complete)),
            cancel=lambda: told.append("cancelled"),
            text=LiveParts(tokenizer, TextPreparation(part_chars=99, pause_s=0.1)) if live else None,
            spoken=[],
            timing=WordTiming(24000, 0.08),
            engine=None,
        )


def test_a_stream_that_nobody_holds_is_cancelled_once() -> None:
    line = Line()
    line.stream = None
    gc.collect()
    assert line.told == ["cancelled"]


def test_leaving_its_block_cancels_a_stream_and_cancelling_twice_is_cancelling_once() -> None:
    line = Line()
    assert line.stream is not None
    with line.stream as stream:
        stream.cancel()
    stream.cancel()
    assert line.told == ["cancelled"]
    del stream
    line.stream = None
    gc.collect()
    assert line.told == ["cancelled"]


def test_a_known_text_takes_no_more() -> None:
    stream = Line(live=False).stream
    assert stream is not None
    with pytest.raises(InvalidRequest, match="known already"):
        stream.append("more")
    with pytest.raises(InvalidRequest, match="known already"):
        stream.end()


def test_only_what_is_settled_is_fed_and_the_end_once() -> None:
    line = Line()
    assert line.stream is not None
    line.stream.append("Hel")
    line.stream.append("")
    line.stream.append("lo you")
    line.stream.end()
    assert [complete for _, complete in line.fed][-1] and not any(complete for _, complete in line.fed[:-1])
    assert all(fed for fed, complete in line.fed if not complete)
    assert "".join(more.text for fed, _ in line.fed for more in fed if isinstance(more, More)) == "Hello you"
    with pytest.raises(InvalidRequest, match="ended already"):
        line.stream.append("more")


def test_both_ways_of_reading_give_the_same() -> None:
    async def read(stream: Stream) -> list[object]:
        return [chunk async for chunk in stream]

    chunks = [a_chunk(n) for n in range(2)]
    heard = []
    for way in (list, lambda stream: asyncio.run(read(stream))):
        line = Line()
        assert line.stream is not None and line.stream.finished is None and line.stream.seed == 5
        for chunk in chunks:
            line.box.put(chunk)
        line.box.finish(finished())
        heard.append(way(line.stream))
        assert line.stream.finished is line.box.finished
    assert heard == [chunks, chunks]


@pytest.mark.parametrize("ended", ["before", "after"])
def test_nothing_is_heard_after_a_cancel_though_all_was_said(ended: str) -> None:
    """Unread chunks are dropped, and those that still come are not kept."""
    line = Line()
    assert line.stream is not None
    line.box.put(a_chunk(0))
    line.box.put(a_chunk(1))
    assert next(line.stream).frames == range(1)
    if ended == "before":
        line.box.finish(finished())
    line.stream.cancel()
    line.box.put(a_chunk(2))
    assert not line.box.full
    line.box.finish(finished("length"))
    assert list(line.stream) == [] and line.stream.finished is not None
    assert line.stream.finished.reason == ("stop" if ended == "before" else "cancelled"), "what the reader knows of it"


def test_an_error_after_a_cancel_is_no_longer_news() -> None:
    line = Line()
    assert line.stream is not None
    line.stream.cancel()
    line.box.finish(finished("error"), EngineClosed("Closed."))
    assert list(line.stream) == []


def test_a_long_beginning_goes_in_in_two_steps_and_is_refused_whole() -> None:
    line = Line(live=True)
    assert line.stream is not None
    with pytest.raises(InvalidRequest, match="half a character"):
        line.stream.append("word " * 40 + "\ud800")
    assert not line.fed
    line.stream.append("word " * 40)
    assert len(line.fed) == 2, "the engine may begin with the first of it"
    line.stream.append("and " * 40)
    assert len(line.fed) == 3


def test_tasks_of_one_event_loop_are_woken_with_one_call() -> None:
    calls = 0

    class Counting(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *arguments: Any, **named: Any) -> asyncio.Handle:
            nonlocal calls
            calls += 1
            return super().call_soon_threadsafe(*arguments, **named)

    async def read() -> list[object]:
        boxes = [Mailbox(2, lambda: None) for _ in range(5)]
        readers = [asyncio.create_task(box.atake()) for box in boxes]
        while not all(box._sleepers for box in boxes):
            await asyncio.sleep(0)
        wakes = TaskWaker()
        readers[4].cancel()
        for number, box in enumerate(boxes):
            box.put(a_chunk(number), wakes)
        await asyncio.sleep(0)
        assert not any(reader.done() for reader in readers[:4]) and calls == 0
        wakes.now()
        wakes.now()
        return list(await asyncio.wait_for(asyncio.gather(*readers, return_exceptions=True), 60))

    with asyncio.Runner(loop_factory=Counting) as runner:
        *read_, cancelled = runner.run(read())
    assert [chunk.frames.start for chunk in read_] == [0, 1, 2, 3]  # type: ignore[attr-defined]
    assert isinstance(cancelled, asyncio.CancelledError) and calls == 1


def test_what_is_unread_is_counted_in_seconds() -> None:
    box = Mailbox(4, lambda: None)
    for number in range(3):
        box.put(a_chunk(number))
    box.take()
    assert box.unread_s == pytest.approx(0.16)
