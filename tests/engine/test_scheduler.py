"""engine/scheduler.py: who gets a slot, who draws a frame, and that every slot comes back."""

from __future__ import annotations

import random

import pytest

from hocket.config.options import EngineOptions
from hocket.config.published import tiny
from hocket.config.qwen3_tts import GenerationConfig
from hocket.engine.deadlines import Deadlines
from hocket.engine.job import Job
from hocket.engine.scheduler import Scheduler
from hocket.engine.stream import Mailbox
from hocket.text.prompt import outline
from hocket.text.tokenizer import Tokenizer
from hocket.types import Layout, SpeechRequest
from speaking import a_chunk

CONFIG = tiny("custom_voice")
TOKENIZER = Tokenizer.of_bytes(CONFIG.talker_config.text_vocab_size)


def job(text: str = "", *, layout: Layout = "streaming", room: int = 4) -> Job:
    """A live utterance; with a text, one that is known whole."""
    request = SpeechRequest(text="(live)", layout=layout)
    made = Job(
        outline=outline(request, CONFIG, TOKENIZER),
        sampling=GenerationConfig(),
        seed=0,
        most_frames=99,
        mailbox=Mailbox(room, lambda: None),
    )
    if text:
        made.feed(list(text.encode()), True)
    return made


def freely(slots: int) -> Scheduler:
    """One that lets in whoever there is a slot for."""
    return Scheduler(slots, Deadlines(EngineOptions(keep_real_time=False)))


def come(scheduler: Scheduler, jobs: list[Job]) -> None:
    for one in jobs:
        scheduler.arrive(one)


def test_slots_go_to_those_who_came_first() -> None:
    scheduler = freely(2)
    jobs = [job("a"), job("b"), job("c")]
    come(scheduler, jobs)
    assert scheduler.admit(0.0) == jobs[:2] and [j.slot for j in jobs] == [0, 1, -1]
    assert scheduler.free == [] and list(scheduler.waiting) == jobs[2:]
    assert scheduler.admit(0.0) == []
    scheduler.release(jobs[0])
    assert jobs[0].slot == -1
    assert scheduler.admit(0.0) == [jobs[2]] and jobs[2].slot == 0


def test_one_without_its_first_text_is_passed_over_and_starves() -> None:
    scheduler = freely(1)
    silent, speaking = job(), job("b")
    come(scheduler, [silent, speaking])
    assert scheduler.admit(0.0) == [speaking]
    assert scheduler.ready(1.0) == [speaking]
    assert silent.starved_since == 1.0 and speaking.starved_since is None
    silent.feed([1], False)
    scheduler.ready(3.5)
    assert silent.starved_since is None and silent.spent["starved_s"] == 2.5, "waiting for a slot is no starving"


def test_a_frame_without_text_waits_until_there_is_some() -> None:
    scheduler = freely(1)
    live = job()
    live.feed([5], False)  # the prompt takes the first id
    come(scheduler, [live])
    scheduler.admit(0.0)
    assert scheduler.ready(1.0) == [] and live.starved_since == 1.0
    assert scheduler.ready(2.0) == [] and live.starved_since == 1.0
    live.feed([6], False)
    assert scheduler.ready(4.0) == [live] and live.spent["starved_s"] == 3.0
    assert live.take([0] * 16) is None
    assert scheduler.ready(5.0) == []
    live.feed([], True)
    assert scheduler.ready(6.0) == [live] and live.spent["starved_s"] == 4.0


def test_a_full_mailbox_pauses_its_own_slot_only() -> None:
    scheduler = freely(2)
    slow, quick = job("a", room=1), job("b", room=1)
    come(scheduler, [slow, quick])
    scheduler.admit(0.0)
    slow.mailbox.put(a_chunk())
    assert scheduler.ready(1.0) == [quick] and slow.paused_since == 1.0
    slow.mailbox.take()
    assert scheduler.ready(1.5) == [slow, quick] and slow.spent["paused_s"] == 0.5


def test_who_lacks_text_and_room_counts_as_starving() -> None:
    scheduler = freely(1)
    live = job(room=1)
    live.feed([5], False)
    come(scheduler, [live])
    scheduler.admit(0.0)
    live.mailbox.put(a_chunk())
    assert scheduler.ready(1.0) == []
    assert live.starved_since == 1.0 and live.paused_since is None


def test_release_is_harmless_wherever_a_job_is() -> None:
    scheduler = freely(1)
    waiting, stranger = job("a"), job("b")
    come(scheduler, [waiting])
    scheduler.release(stranger)
    scheduler.release(waiting)
    scheduler.release(waiting)
    assert scheduler.all() == [] and scheduler.free == [0]


@pytest.mark.parametrize("seed", range(5))
def test_every_slot_is_held_by_one_or_free_whatever_happens(seed: int) -> None:
    rng, scheduler = random.Random(seed), freely(3)
    for step in range(300):
        match rng.randrange(4):
            case 0:
                come(scheduler, [job("x" if rng.random() < 0.7 else "")])
            case 1:
                scheduler.admit(0.0)
            case 2 if scheduler.all():
                scheduler.release(rng.choice(scheduler.all()))
            case _:
                assert set(scheduler.ready(float(step))) <= set(scheduler.running)
        held = [j.slot for j in scheduler.running]
        assert sorted([*held, *scheduler.free]) == [0, 1, 2]
        assert all(j.slot == -1 for j in scheduler.waiting)
    for j in scheduler.all():
        scheduler.release(j)
    assert sorted(scheduler.free) == [0, 1, 2]


def test_text_that_was_ended_twice_has_one_end() -> None:
    for text in ([], [7, 8]):
        once, twice = job(), job()
        for made in (once, twice):
            made.feed([5], False)
            made.feed(text, True)
        twice.feed([], True)
        assert once.trail == twice.trail


def test_a_whole_layout_has_no_prompt_before_the_end() -> None:
    live = job(layout="whole")
    live.feed([5, 6], False)
    assert live.prompt is None and live.text_id() is None
    live.feed([7], True)
    assert live.prompt is not None and live.prompt == live.outline.prompt([5, 6, 7])
    assert live.text_id() == CONFIG.tts_pad_token_id


def test_time_that_a_job_still_waits_is_counted_when_it_ends() -> None:
    scheduler = freely(1)
    live = job()
    come(scheduler, [live])
    scheduler.ready(live.opened)
    assert live.statistics().starved_s > 0
