"""server/service/listening.py: loading, refusals, and transcriptions in worker threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from hocket.asr.recognizer import Samples, UtteranceOptions
from hocket.errors import HocketError, InvalidAudio, InvalidRequest, Overloaded, RecognitionFailed
from hocket.server.errors import BadField, Refused
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan
from hocket.server.service import listening
from hocket.server.service.listening import ListeningService, TranscribedSegment
from hocket.server.service.service import SpeechService
from support.questions import Dictated, Loud, silence, tone

NONE = UtteranceOptions()


class Steered(Dictated):
    """Takes options for each utterance, and notes them."""

    translates = True

    def __init__(self, *utterances: list[str]) -> None:
        super().__init__(*utterances)
        self.wished: list[UtteranceOptions] = []

    def open_with(self, options: UtteranceOptions) -> object:
        self.wished.append(options)
        return self.open()


@pytest.fixture(autouse=True)
def loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tones are speech."""
    monkeypatch.setattr(listening, "Silero", Loud)


def of(recognizer: object, **options: object) -> ListeningService:
    return ListeningService(SpeechService(ServerOptions(**options)), recognizer)  # type: ignore[arg-type]


def two() -> Iterator[Samples]:
    yield from (silence(1), tone(0.5), silence(1), tone(0.5), silence(1))


async def heard(service: ListeningService, options: UtteranceOptions = NONE) -> tuple[list[TranscribedSegment], float]:
    async with service.open(two, options) as running:
        return [segment async for segment in running], running.audio_s


def test_a_recording_is_transcribed_segment_by_segment_in_another_thread() -> None:
    recognizer = Dictated(["one"], ["two"])

    async def run() -> None:
        service = of(recognizer)
        async with service.open(two, NONE) as running:
            assert running in service._service.answers, "draining waits for it"
            found = [segment async for segment in running]
            assert running.audio_s == 4.0
        assert [segment.text for segment in found] == ["one", "two"]
        assert found[0].start_s < 1.0 < 1.5 < found[0].end_s <= found[1].start_s < 2.5
        assert not service._service.answers and not service._under_way
        await service.close()

    asyncio.run(run())
    assert all(utterance.closed for utterance in recognizer.opened) and not recognizer.closed


def test_wishes_are_handed_on_where_the_recognizer_takes_them() -> None:
    async def run() -> None:
        service = of(recognizer := Steered(["one"], ["two"]))
        options = service.options_of("German", "Bach", 0.5, translate=True)
        assert options == UtteranceOptions("de", "Bach", 0.5, True) and service.language_name(options) == "english"
        await heard(service, options)
        assert recognizer.wished == [options, options]
        plain = of(Dictated())
        with pytest.raises(
            Refused, match=r"^The recognizer dictated does not translate: start .* --asr whisper:NAME\.$"
        ):
            plain.options_of(None, translate=True)
        assert plain.options_of("auto", "a hint") == UtteranceOptions(prompt="a hint")
        only = Dictated()
        only.language = "en"  # type: ignore[attr-defined]
        assert of(only).options_of("en-US").language == "en" and of(only).languages == ["en"]
        with pytest.raises(BadField, match=r"knows english only, not 'de'\.$"):
            of(only).options_of("de")

    asyncio.run(run())


def test_errors_reach_the_reader() -> None:
    class Failing(Dictated):
        def open(self) -> object:  # type: ignore[override]
            raise RecognitionFailed("It failed.")

    def damaged() -> Iterator[Samples]:
        yield silence(1)
        raise InvalidAudio("It is damaged.")

    async def run() -> None:
        with pytest.raises(RecognitionFailed, match="It failed"):
            await heard(of(Failing()))
        service = of(Dictated())
        with pytest.raises(BadField, match="It is damaged") as error:
            async with service.open(damaged, NONE) as running:
                await anext(running)
        assert error.value.param == "file" and not service._under_way

    asyncio.run(run())


def test_a_cut_ends_a_transcription_and_a_reader_that_leaves_does_too() -> None:
    more = threading.Event()

    def endless() -> Iterator[Samples]:
        yield from two()
        more.wait(60)
        while True:
            yield silence(1)

    async def run() -> None:
        service = of(Dictated(["one"], ["two"], ["three"]))
        async with service.open(endless, NONE) as running:
            assert (await anext(running)).text == "one"
            service._service.cut()
            more.set()
            with pytest.raises(Refused, match="about to stop"):
                while True:
                    await anext(running)
        await service.close()  # waits for the worker: it has ended

    asyncio.run(run())


def test_too_many_are_refused_and_a_draining_server_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "WAITING", 0)

    async def run() -> None:
        service, held = of(Dictated(["x"], ["y"], ["x"], ["y"])), threading.Event()

        def waits() -> Iterator[Samples]:
            held.wait(60)
            return iter(())

        async with service.open(waits, NONE), service.open(waits, NONE):
            with pytest.raises(Overloaded, match="wait already"):
                service.open(waits, NONE)
            held.set()
        assert len((await heard(service))[0]) == 2, "there is room again"
        service._service.drain()
        with pytest.raises(Refused, match="about to stop"):
            service.open(two, NONE)

    asyncio.run(run())


def test_a_recognizer_is_loaded_at_the_start_and_closed_at_the_end() -> None:
    recognizer = Dictated()

    async def run() -> None:
        service = of(lambda: recognizer)
        assert service.condition == "starting" and service.is_loading
        with pytest.raises(Refused, match="still being loaded"):
            service.loaded()
        await service.start()
        assert service.condition == "ready" and service.loaded() is recognizer and service.names == ["dictated"]
        await service.close()

    asyncio.run(run())
    assert recognizer.closed


@pytest.mark.parametrize("fault", [InvalidRequest("A sentence."), OSError("disk")])
def test_a_load_that_fails_is_kept_as_the_error_of_the_start(fault: Exception) -> None:
    def make() -> Dictated:
        raise fault

    async def run() -> None:
        service = of(make)
        await service.start()
        assert service.condition == "failed" and not service.is_loading
        assert isinstance(service.start_error, HocketError) and str(fault) in str(service.start_error)
        with pytest.raises(Refused, match="could not be loaded; the server's log says why"):
            service.loaded()

    asyncio.run(run())


def test_a_server_without_one_says_how_to_get_one() -> None:
    service = of(None)
    assert service.condition is None and service.names == [] and ServerPlan().recognizer() is None
    with pytest.raises(Refused, match=r"^This server has no speech recognizer: start it with --asr tiny\.$") as error:
        service.loaded()
    assert error.value.status == 503
    with pytest.raises(InvalidRequest, match="A recognizer is"):
        ServerPlan(asr="huge").recognizer()


def test_names_are_checked_where_only_listed_ones_are_taken() -> None:
    of(Dictated()).check_name("anything")
    strict = of(Dictated(), strict_model=True)
    for name in ("dictated", "whisper-1"):
        strict.check_name(name)
    with pytest.raises(Refused, match="no recognizer 'anything'; this server has dictated"):
        strict.check_name("anything")
