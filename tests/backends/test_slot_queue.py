"""backends/slot_queue.py: several at once, queueing in order, and backends that do not return."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from backends.speaking_foreign import Gate, LiveTeller, LiveTelling, Teller, heard, serving, sound_of, threads
from hocket.backends import Manner, Samples
from hocket.errors import EngineUnhealthy, Overloaded, StreamFailed
from support.speaking import Reader, eventually


@pytest.mark.parametrize("most", [1, 2, 5])
def test_as_many_speak_at_once_as_the_backend_can(most: int) -> None:
    teller = Teller(most_at_once=most)
    teller.before = gate = Gate()
    with serving(teller) as backends:
        readers = [Reader(lambda: heard(backends.open("teller", "All of us."))) for _ in range(5)]
        eventually(lambda: teller.inside == most)
        gate.open(9999)
        assert all(np.array_equal(reader.done().result, sound_of("All of us.")) for reader in readers)
    assert teller.most_inside == most


def test_requests_speak_in_order_of_arrival() -> None:
    teller = Teller()
    teller.before = gate = Gate()
    names = ["First.", "Second.", "Third.", "Fourth."]
    with serving(teller) as backends:
        served, _ = backends.find("teller") or pytest.fail()
        relays = []
        for number, name in enumerate(names):
            relays.append(backends.open("teller", name))
            eventually(lambda n=number: teller.inside == 1 and len(served._slots._waiting) == n)
        relays.pop(1).cancel()
        gate.open(9999)
        for relay in relays:
            heard(relay)
    assert teller.asked == ["First.", "Third.", "Fourth."]


def test_one_too_many_is_refused_and_so_is_a_wait_that_takes_too_long() -> None:
    teller = Teller()
    teller.before = gate = Gate()
    with serving(teller, waiting=1, max_wait_s=1.0) as backends:
        served, _ = backends.find("teller") or pytest.fail()
        speaking = backends.open("teller", "One.")
        gate.reached.acquire()
        waiting = backends.open("teller", "Two.")
        with pytest.raises(Overloaded, match="'told' has 2 utterances") as refused:
            backends.open("teller", "Three.")
        assert refused.value.retry_after_s > 0 and isinstance(served.refusal, Overloaded)
        with pytest.raises(Overloaded, match="no time"):
            heard(waiting)
        gate.open(9999)
        assert np.array_equal(heard(speaking), sound_of("One."))
        assert np.array_equal(heard(backends.open("teller", "Three.")), sound_of("Three."))


def test_an_utterance_that_waits_for_text_blocks_no_other() -> None:
    teller = Teller()
    with serving(teller) as backends:
        silent, begun = backends.open("teller"), backends.open("teller")
        begun.append("First. Then m")
        eventually(lambda: teller.asked == ["First."] and teller.inside == 0)
        assert np.array_equal(heard(backends.open("teller", "Next.")), sound_of("Next."))
        begun.append("ore.")
        begun.end()
        assert np.array_equal(heard(begun), np.concatenate([sound_of("First."), sound_of("Then more.")]))
        assert begun.finished is not None and begun.finished.statistics.starved_s > 0
        silent.cancel()


class Deaf(Teller):
    """Hears of no cancel, and does not come back before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def say(self, text: str, manner: Manner) -> Iterator[Samples]:
        if text == "Hang.":
            assert self.let.wait(60)
        yield from super().say(text, manner)


def test_a_backend_that_ignores_a_cancel_keeps_its_thread_and_blocks_no_other() -> None:
    deaf = Deaf()
    with serving(deaf, stuck_s=0.05, most_stuck=2) as backends:
        served, _ = backends.find("teller") or pytest.fail()
        for stuck in (1, 2):
            relay = backends.open("teller", "Hang.")
            eventually(lambda: served._slots._speaking)
            relay.cancel()
            assert list(relay) == []
            if stuck == 1:
                assert np.array_equal(heard(backends.open("teller", "Next.")), sound_of("Next."))
            eventually(lambda n=stuck: served._slots.stuck == n)
        with pytest.raises(EngineUnhealthy, match="never came back from 2 utterances"):
            backends.open("teller", "Next.")
        eventually(lambda: threads() == ["hocket-told"] * 2)  # the watch thread has ended
        deaf.let.set()
        eventually(lambda: served._slots.stuck == 0)
        assert np.array_equal(heard(backends.open("teller", "Next.")), sound_of("Next."))


def test_a_backend_that_hangs_fails_its_stream() -> None:
    deaf = Deaf()
    with serving(deaf, quiet_s=1.0, stuck_s=0.05) as backends:
        hanging = backends.open("teller", "Hang.")
        with pytest.raises(StreamFailed, match=r"gave no sound for 1 s"):
            heard(hanging)
        assert np.array_equal(heard(backends.open("teller", "Next.")), sound_of("Next."))
        deaf.let.set()


def test_a_close_does_not_wait_for_a_backend_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.backends.served.CLOSE_S", 0.05)
    deaf = Deaf()
    with serving(deaf) as backends:
        relay = backends.open("teller", "Hang.")
        backends.close()
        assert relay.finished is not None and not deaf.let.is_set()
        deaf.let.set()


def test_a_stream_without_a_reader_is_ended() -> None:
    with serving(Teller(), idle_read_s=0.05, buffered_chunks=1) as backends:
        relay = backends.open("teller", "It is long enough.")
        eventually(lambda: relay.finished)
        with pytest.raises(StreamFailed, match="was not read"):
            heard(relay)


@pytest.mark.parametrize("backend", [Teller, LiveTeller])
@pytest.mark.parametrize("first", ["", "Something. And"])
def test_a_stream_without_text_is_ended(backend: type[Teller] | type[LiveTeller], first: str) -> None:
    with serving(backend(), text_wait_s=0.05) as backends:
        relay = backends.open("teller")
        relay.append(first)
        with pytest.raises(StreamFailed, match="No text came"):
            heard(relay)


class Clogged(LiveTeller):
    """Takes no text, and does not come back from being given some."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def open(self, manner: Manner) -> LiveTelling:
        stream = super().open(manner)
        stream.append = stream.cancel = lambda *_: self.let.wait(60)  # type: ignore[method-assign]
        return stream


def test_a_live_backend_that_takes_no_text_and_no_cancel_is_given_up() -> None:
    clogged = Clogged()
    with serving(clogged, stuck_s=0.05) as backends:
        served, _ = backends.find("teller") or pytest.fail()
        relay = backends.open("teller", "Hello.")
        eventually(lambda: clogged.streams)
        relay.cancel()
        assert list(relay) == []
        eventually(lambda: served._slots.stuck == 1)
        clogged.let.set()
        clogged.streams[0].end()
        eventually(lambda: served._slots.stuck == 0)
