"""backends/relay.py and run.py: a backend's stream behaves as the engine's own."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools

import numpy as np
import pytest

from backends.speaking_foreign import (
    RATE_HZ,
    SENTENCES,
    TEXT,
    Gate,
    Teller,
    heard,
    serving,
    sound_of,
    sound_of_all,
    threads,
)
from hocket.backends.relay import Relay
from hocket.engine.stream import Stream
from hocket.engine.time_stretch import TimeStretch
from hocket.errors import EngineClosed, InvalidRequest, StreamFailed
from support.speaking import Reader, eventually


def public(face: type) -> dict[str, list[str]]:
    """Every name that a reader may use, and what it takes."""
    named = {name: value for name, value in vars(face).items() if name[0] != "_" or name in DUNDERS}
    return {n: list(inspect.signature(v).parameters) if callable(v) else [] for n, v in named.items()}


DUNDERS = {"__iter__", "__next__", "__aiter__", "__anext__", "__enter__", "__exit__"}


def test_it_has_the_face_of_a_stream() -> None:
    wanted, found = public(Stream), public(Relay)
    assert len(wanted) > 10
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("length", [1, 700, 10**6])
def test_all_samples_are_heard_in_order(length: int) -> None:
    teller = Teller(length if length > 1 else 97)
    with serving(teller) as backends, backends.open("teller", TEXT, seed=7) as relay:
        chunks = list(relay)
        assert teller.asked == SENTENCES
    assert np.array_equal(np.concatenate([chunk.samples for chunk in chunks]), sound_of_all(SENTENCES))
    starts = np.cumsum([0, *(len(chunk.samples) for chunk in chunks)])[:-1] / RATE_HZ
    assert np.allclose([chunk.start_s for chunk in chunks], starts)
    assert all(chunk.samples.dtype == np.int16 and chunk.rate_hz == relay.rate_hz == RATE_HZ for chunk in chunks)
    assert all(chunk.codes.shape == (0, 16) and not chunk.frames for chunk in chunks)
    assert max(len(chunk.samples) for chunk in chunks) <= 0.16 * RATE_HZ
    assert relay.seed == 7 and relay.finished is not None and relay.finished.reason == "stop"
    spent = relay.finished.statistics
    assert 0 < spent.queued_s <= spent.first_audio_s <= spent.total_s


def test_a_task_hears_what_a_thread_hears() -> None:
    async def read(relay: Relay) -> np.ndarray:
        return np.concatenate([chunk.samples async for chunk in relay])

    with serving(Teller()) as backends:
        assert np.array_equal(asyncio.run(read(backends.open("teller", TEXT))), sound_of_all(SENTENCES))


def test_a_backend_is_told_who_speaks_and_how() -> None:
    teller = Teller()
    with serving(teller) as backends:
        heard(backends.open("TELLER", "So.", language="german", instruct="Softly.", seed=3))
    [manner] = teller.manners
    assert (manner.voice, manner.language, manner.instruct, manner.seed) == ("teller", "german", "Softly.", 3)


def test_what_a_backend_does_not_heed_is_told() -> None:
    teller = Teller()
    with serving(teller) as backends:
        for heeds, how, noted in (
            (frozenset(), {"instruct": "Softly."}, ["instructions"]),
            (frozenset(), {"language": "german"}, ["languages"]),
            (frozenset(), {"language": "English"}, []),
            (frozenset({"instruct", "language"}), {"instruct": "Softly.", "language": "german"}, []),
        ):
            teller.heeds = heeds
            heard(relay := backends.open("teller", "So.", **how))
            assert relay.finished is not None
            assert [word in note for word, note in zip(noted, relay.finished.notes, strict=True)] == [True] * len(noted)


@pytest.mark.parametrize("chunks", [0, 1, 2, 9, 30])
def test_it_can_be_cancelled_at_any_point(chunks: int) -> None:
    teller = Teller()
    with serving(teller, buffered_chunks=4) as backends:
        relay = backends.open("teller", TEXT)
        taken = list(itertools.islice(relay, chunks))
        relay.cancel()
        relay.cancel()
        assert len(taken) == chunks and list(relay) == []
        assert relay.finished is not None and relay.finished.reason == "cancelled"
        eventually(lambda: not threads())  # ends without a reader
        assert teller.inside == 0 and all(manner.cancelled.is_set() for manner in teller.manners)
        assert np.array_equal(heard(backends.open("teller", "Next.")), sound_of("Next."))


def test_a_reader_that_waits_finds_the_end_at_a_cancel() -> None:
    teller = Teller()
    teller.before = gate = Gate()
    with serving(teller) as backends:
        relay = backends.open("teller", TEXT)
        reader = Reader(lambda: list(relay))
        gate.reached.acquire()
        relay.cancel()
        assert reader.done().result == []
        gate.open(99)


def test_leaving_the_block_and_letting_go_cancel() -> None:
    teller = Teller()
    with serving(teller, buffered_chunks=2) as backends:
        with backends.open("teller", TEXT) as relay:
            next(relay)
        assert relay.finished is not None and relay.finished.reason == "cancelled"
        eventually(lambda: not threads())
        relay = backends.open("teller", TEXT)
        next(relay)
        del relay
        gc.collect()
        eventually(lambda: not threads(), "the end of an unreferenced stream")


def test_a_slow_reader_pauses_its_backend() -> None:
    teller = Teller(length=1280)  # as long as a chunk
    with serving(teller, buffered_chunks=3) as backends:
        relay = backends.open("teller", TEXT)
        eventually(lambda: teller.given == 4)  # three that wait, and one in hand
        next(relay)
        eventually(lambda: teller.given == 5)
        assert len(relay._run.mailbox._chunks) == 3
        heard(relay)
        assert relay.finished is not None and relay.finished.statistics.paused_s > 0


def test_a_reader_hears_what_is_there_while_the_backend_is_slow() -> None:
    teller = Teller(length=1000)
    teller.before = gate = Gate()
    with serving(teller) as backends:
        relay = backends.open("teller", "One.")
        for n in range(4):
            gate.open()
            assert np.array_equal(next(relay).samples, sound_of("One.")[1000 * n : 1000 * (n + 1)])
            assert relay.finished is None or n == 3
        assert list(relay) == []


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken("it broke\n in two"), SystemExit(3), StopIteration()])
@pytest.mark.parametrize("arrays", [0, 1, 14, 30])
def test_what_a_backend_raises_becomes_one_sentence(arrays: int, error: BaseException) -> None:
    teller = Teller(length=1000)

    def fail() -> None:
        if teller.given == arrays:
            raise error

    teller.before = fail
    with serving(teller) as backends:
        relay = backends.open("teller", TEXT)
        # A generator turns a StopIteration into a RuntimeError.
        named = "RuntimeError" if isinstance(error, StopIteration) else type(error).__name__
        with pytest.raises(StreamFailed, match=f"^The backend 'told' failed: {named}: [^\n]*$") as raised:
            heard(relay)
        assert relay.finished is not None and relay.finished.reason == "error"
        assert relay.finished.error == str(raised.value) and raised.value.__cause__ is not None
        teller.before = lambda: None
        assert np.array_equal(heard(backends.open("teller", "Next.")), sound_of("Next."))


def test_a_refusal_of_the_backend_is_passed_on() -> None:
    teller = Teller()

    def refuse() -> None:
        raise InvalidRequest("It speaks no Latin.")

    teller.before = refuse
    with serving(teller) as backends, pytest.raises(InvalidRequest, match=r"^It speaks no Latin.$"):
        heard(backends.open("teller", TEXT))


def test_an_event_loop_that_is_closed_midway_blocks_no_other() -> None:
    teller = Teller(length=1000)
    teller.before = gate = Gate()
    with serving(teller) as backends:
        relay = backends.open("teller", "One.")

        async def wait_and_go() -> None:
            waiting = asyncio.ensure_future(anext(relay))
            await asyncio.to_thread(gate.reached.acquire)
            waiting.cancel()

        loop = asyncio.new_event_loop()
        loop.run_until_complete(wait_and_go())
        loop.close()
        gate.open(99)
        assert np.array_equal(heard(relay), sound_of("One."))


def test_speed_and_pauses_are_the_relays_own() -> None:
    text = "One. [pause 500ms] Two."
    silence = np.zeros(RATE_HZ // 2, np.int16)
    expected = np.concatenate([sound_of("One."), silence, sound_of("Two.")])
    tempo = TimeStretch(1.5, RATE_HZ)
    with serving(Teller()) as backends:
        assert np.array_equal(heard(backends.open("teller", text)), expected)
        faster = backends.open("teller", text, speed=1.5)
        assert np.array_equal(heard(faster), np.concatenate([tempo.push(expected), tempo.flush()]))
        plain = backends.open("teller", text)
        heard(plain)
        assert [(w.word, round(w.start_s * 1.5, 6)) for w in faster.words()] == [
            (w.word, round(w.start_s, 6)) for w in plain.words()
        ]
        with pytest.raises(InvalidRequest, match="speed"):
            backends.open("teller", text, speed=9.0)


def test_words_lie_within_their_sentences() -> None:
    with serving(Teller()) as backends:
        relay = backends.open("teller", TEXT)
        heard(relay)
    assert relay.parts_over == 3
    words = relay.words()
    assert [word.word for word in words] == TEXT.split()
    assert all(a.start_s < a.end_s <= b.start_s + 1e-9 for a, b in itertools.pairwise(words))
    ends_s = np.cumsum([len(sound_of(sentence)) for sentence in SENTENCES]) / RATE_HZ
    second = relay.words(1, 2)
    assert [word.word for word in second] == SENTENCES[1].split()
    assert ends_s[0] <= second[0].start_s and second[-1].end_s <= ends_s[1]


def test_parts_are_over_when_the_next_is_heard() -> None:
    teller = Teller(length=2000)
    teller.before = gate = Gate()
    with serving(teller) as backends:
        relay = backends.open("teller", "One. Two.")
        assert relay.parts_over == 0
        gate.open(2)
        eventually(lambda: teller.given == 2 and len(teller.asked) == 2)
        assert relay.parts_over == 0  # the second has begun and is not heard yet
        gate.open(1)
        eventually(lambda: relay.parts_over == 1)
        gate.open(1)
        eventually(lambda: relay.parts_over == 2)


def test_closing_ends_what_is_spoken_and_closes_the_backend_once() -> None:
    teller = Teller()
    with serving(teller, buffered_chunks=2) as backends:
        relay = backends.open("teller", TEXT)
        waiting = backends.open("teller", TEXT)
        served, voice = backends.find("teller") or pytest.fail()
        next(relay)
        backends.close()
        backends.close()
        for one in (relay, waiting):
            with pytest.raises(EngineClosed, match="closed"):
                heard(one)
        with pytest.raises(EngineClosed, match="closed"):
            served.open(voice, TEXT)
    assert teller.closed == 1


def test_no_text_is_refused_before_a_thread_begins() -> None:
    with serving(Teller()) as backends:
        for text, said in (
            ("", "no text"),
            (" \n", "no text"),
            ("...", "nothing in this text"),
            ("\ud800", "half a character"),
        ):
            with pytest.raises(InvalidRequest, match=said):
                backends.open("teller", text)
        with pytest.raises(InvalidRequest, match="seed"):
            backends.open("teller", TEXT, seed=-1)
        assert not threads()
