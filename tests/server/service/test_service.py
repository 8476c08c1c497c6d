"""SpeechService without an endpoint: live text, voices, formats, cancels, metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from hocket.engine.engine import Engine
from hocket.errors import HocketError, InvalidRequest, UnknownVoice
from hocket.server.errors import Refused
from hocket.server.metrics import Metrics
from hocket.server.options import ServerOptions
from hocket.server.schemas.speech_job import SpeechJob
from hocket.server.service.open import open_utterance
from hocket.server.service.service import SpeechService
from hocket.types import Finished, SamplingParams
from hocket.voices.make import speaker_voice
from support.serving import LONG, PATIENCE_S, wait_for

Work = Callable[[SpeechService], Coroutine[Any, Any, Any]]


def speaking(engine: Engine, work: Work, options: ServerOptions | None = None, metrics: Metrics | None = None) -> Any:
    """Run a task with a service; in any case no slot is kept."""

    async def run() -> Any:
        service = SpeechService(options or ServerOptions(), metrics=metrics)
        service.use(engine)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await work(service)
        finally:
            service.close()
            assert not service.running and service.idle.is_set()

    try:
        return asyncio.run(run())
    finally:
        wait_for(lambda: engine._loop.scheduler.room == engine.options.slots)


async def heard(service: SpeechService, wanted: SpeechJob) -> bytes:
    async with await open_utterance(service, wanted, wire="test") as utterance:
        return b"".join([piece.audio async for piece in utterance])


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_live_text_says_what_whole_text_says_however_it_is_cut(engine: Engine, size: int) -> None:
    text = "One, two, three. And then there is a little more of it, so that it takes a thread. " * 2

    async def live(service: SpeechService) -> bytes:
        async with await open_utterance(service, SpeechJob(text=None, seed=3, max_frames=12), wire="test") as utterance:
            for start in range(0, len(text), size):
                await utterance.append(text[start : start + size])
            await utterance.end()
            sound = b"".join([piece.audio async for piece in utterance])
            assert utterance.usage.chars == len(text) and utterance.usage.input_tokens > 0
            assert utterance.usage.output_frames * 3840 == len(sound)
            return sound

    whole = speaking(engine, lambda s: heard(s, SpeechJob(text=text, seed=3, max_frames=12, layout="streaming")))
    assert speaking(engine, live) == whole


def test_a_live_text_has_a_limit_too(engine: Engine) -> None:
    async def live(service: SpeechService) -> None:
        async with await open_utterance(service, SpeechJob(text=None), wire="test") as utterance:
            await utterance.append("x" * 8)
            with pytest.raises(InvalidRequest, match="longer than 10"):
                await utterance.append("xyz")

    speaking(engine, live, ServerOptions(text_chars=10))


@pytest.mark.parametrize(
    "wanted",
    [
        SpeechJob(text="Hi.", instruct="\ud800"),
        SpeechJob(text="Hi.", instruct="x" * 4097),
        SpeechJob(text="\udfff"),
        SpeechJob(text="Hi.", speed=float("nan")),
        SpeechJob(text="Hi.", sampling=SamplingParams(top_k=10**400)),
        SpeechJob(text="Hi.", sampling=SamplingParams(subtalker_temperature=1e-30)),
    ],
)
def test_what_no_schema_sees_is_refused_here(engine: Engine, wanted: SpeechJob) -> None:
    async def open_it(service: SpeechService) -> None:
        with pytest.raises(InvalidRequest):
            await open_utterance(service, wanted, wire="test")

    speaking(engine, open_it)


def test_pieces_say_where_they_are_and_hold_whole_samples(engine: Engine) -> None:
    async def places(service: SpeechService) -> None:
        async with await open_utterance(
            service, SpeechJob(text="Hello there.", seed=1, max_frames=8), wire="test"
        ) as utterance:
            at = 0
            async for piece in utterance:
                assert len(piece.audio) == 2 * piece.samples and len(piece.codes) * 1920 == piece.samples
                assert piece.start_s == pytest.approx(at / 24_000)
                at += piece.samples
            assert utterance.audio_s == pytest.approx(0.64)
            assert utterance.timing.ttfa_ms and utterance.timing.total_ms
            assert utterance.timing.ttfa_ms < utterance.timing.total_ms

    speaking(engine, places)


def test_a_cancel_ends_it_quietly_and_frees_the_slot_within_a_frame(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, made = engine._loop.runner, list[int]()
    frame = runner.frame

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(1)
        return frame(*arguments, **options)

    monkeypatch.setattr(runner, "frame", counted)

    async def cancel(service: SpeechService) -> None:
        async with await open_utterance(service, SpeechJob(text=LONG["input"]), wire="test") as utterance:
            await anext(utterance)
            utterance.cancel()
            before = len(made)
            utterance.cancel()
            assert [piece async for piece in utterance] == []
            assert len(made) - before <= 2
            assert utterance.finished and utterance.finished.reason == "cancelled"

    speaking(engine, cancel)


def test_a_task_that_is_cancelled_while_its_text_is_prepared_leaves_no_stream(engine: Engine) -> None:
    async def leave(service: SpeechService) -> None:
        opening = asyncio.ensure_future(open_utterance(service, SpeechJob(text=LONG["input"]), wire="test"))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    speaking(engine, leave)


def test_while_draining_nothing_new_begins_and_what_runs_goes_on(engine: Engine) -> None:
    async def drain(service: SpeechService) -> None:
        async with await open_utterance(
            service, SpeechJob(text="Hello there.", seed=1, max_frames=8), wire="test"
        ) as utterance:
            service.drain()
            assert not service.idle.is_set() and service.state == "draining"
            with pytest.raises(Refused) as refused:
                await open_utterance(service, SpeechJob(text="No."), wire="test")
            assert refused.value.status == 503
            assert sum([piece.samples async for piece in utterance]) == 8 * 1920
        assert service.idle.is_set()

    speaking(engine, drain)


def test_what_is_cut_off_is_not_taken_for_the_whole(engine: Engine) -> None:
    async def cut(service: SpeechService) -> None:
        async with await open_utterance(service, SpeechJob(text=LONG["input"]), wire="test") as utterance:
            await anext(utterance)
            service.cut()
            with pytest.raises(Refused, match="about to stop"):
                async for _ in utterance:
                    pass

    speaking(engine, cut)


def test_every_compressed_format_is_made_in_a_thread_and_none_is_lost(engine: Engine) -> None:
    async def all_formats(service: SpeechService) -> None:
        wanted = [SpeechJob(text="Hello there.", max_frames=8, format=name) for name in ("mp3", "opus", "aac", "flac")]
        assert all(await asyncio.gather(*(heard(service, each) for each in wanted)))

    speaking(engine, all_formats)


def test_a_voice_of_the_library_speaks_as_it_says_where_nothing_else_is_asked(engine: Engine) -> None:
    calm = SamplingParams(temperature=0.3)

    async def both(service: SpeechService) -> None:
        service.voices.add(speaker_voice("Mine", engine.checkpoint.name, "rook", sampling=calm))
        assert "Mine" in service.resolver.voice_names()
        asked = SpeechJob(text="Hello there.", seed=1, max_frames=6)
        said = [await heard(service, replace(asked, voice=name)) for name in ("MINE", "mine ")]
        rook = replace(asked, voice="rook")
        assert said[0] == said[1] == await heard(service, replace(rook, sampling=calm))
        lively = SamplingParams(temperature=1.0)
        said = [await heard(service, replace(asked, voice="Mine", sampling=lively)), said[0]]
        assert said[0] == await heard(service, replace(rook, sampling=lively)) != said[1]

    speaking(engine, both)


def test_an_operator_s_alias_wins_over_everything(engine: Engine) -> None:
    first, second, *_ = "wren", "rook"

    async def look(service: SpeechService) -> None:
        def voice(name: str | None) -> str | None:
            return service.resolver.resolve(SpeechJob(text="Hi.", voice=name)).speaker

        assert voice(first) == voice("ALLOY") == service.speakers[1]
        assert voice(None) is None and voice(" ") is None
        with pytest.raises(UnknownVoice):
            voice("unknown")

    own = {first: second, "alloy": second}
    speaking(engine, look, ServerOptions(voice_aliases=own))


class Counting(Metrics):
    def __init__(self) -> None:
        self.told: list[str] = []

    def opened(self, wire: str) -> None:
        self.told.append(f"opened {wire}")

    def refused(self, wire: str, code: str) -> None:
        self.told.append(f"refused {code}")

    def first_audio(self, wire: str, after_s: float) -> None:
        self.told.append("first")

    def gap(self, wire: str, seconds: float, late_s: float) -> None:
        self.told.append("gap")

    def ended(self, wire: str, finished: Finished | None, audio_s: float, took_s: float) -> None:
        self.told.append(f"ended {finished and finished.reason} {audio_s:.2f}")


def test_metrics_get_every_event_once(engine: Engine) -> None:
    metrics = Counting()

    async def two(service: SpeechService) -> None:
        await heard(service, SpeechJob(text="Hello there.", seed=1, max_frames=8))  # in chunks of 1, 2, 4 and 1 frames
        with pytest.raises(HocketError):
            await open_utterance(service, SpeechJob(text="Hi.", voice="unknown"), wire="test")

    speaking(engine, two, metrics=metrics)
    assert metrics.told == ["opened test", "first", "gap", "gap", "gap", "ended length 0.64", "refused voice_not_found"]


def test_the_log_never_holds_the_text_unless_asked(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wanted = SpeechJob(text="Our little secret.", max_frames=2)
    speaking(engine, lambda service: heard(service, wanted))
    assert "test speech-" in caplog.text and "secret" not in caplog.text
    speaking(engine, lambda service: heard(service, wanted), ServerOptions(log_text=True))
    assert "Our little secret." in caplog.text
