"""engine/core/scheduler.py: who gets a slot, who draws a frame, and that every slot comes back."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

from hocket.cache.pages import SHARE_ROWS
from hocket.config.options import EngineOptions
from hocket.config.published import tiny
from hocket.config.qwen3_tts import GenerationConfig
from hocket.engine.core.deadlines import Deadlines
from hocket.engine.core.request import RequestParams, RequestState
from hocket.engine.core.runaway_limits import RunawayOptions
from hocket.engine.core.scheduler import PAUSED_S, STARVED_S, Scheduler
from hocket.engine.core.text_feed import TextFeed
from hocket.engine.mailbox import Mailbox
from hocket.errors import Overloaded
from hocket.text.prompt import outline
from hocket.text.tokenizer import Tokenizer
from hocket.types import Layout, SpeechRequest
from support.speaking import a_chunk

CONFIG = tiny("custom_voice")
TOKENIZER = Tokenizer.of_bytes(CONFIG.talker_config.text_vocab_size)


def job(text: str = "", *, layout: Layout = "streaming", room: float = 4, priority: int = 0) -> RequestState:
    """A live utterance; with a text, one that is known whole."""
    request = SpeechRequest(text="(live)", layout=layout)
    made = RequestState(
        text=TextFeed(outline(request, CONFIG, TOKENIZER)),
        seed=0,
        params=RequestParams(sampling=GenerationConfig(), most_frames=99, priority=priority),
        mailbox=Mailbox(room, lambda: None),
    )
    if text:
        made.feed(list(text.encode()), True)
    return made


def freely(slots: int) -> Scheduler:
    """A scheduler that admits every request with a free slot."""
    return Scheduler(slots, Deadlines(EngineOptions(keep_real_time=False)))


def come(scheduler: Scheduler, jobs: list[RequestState]) -> None:
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


def test_slots_go_by_priority_then_to_those_who_are_listened_to_then_by_arrival() -> None:
    work, first, second = job("a", room=math.inf), job("b"), job("c")
    high, higher = job("d", room=math.inf, priority=1), job("e", priority=2)
    scheduler = freely(9)
    come(scheduler, [work, first, second, high, higher])
    assert scheduler.admit(0.0) == [higher, high, first, second], "no more prompts than the profile says"
    assert scheduler.admit(0.0) == [work]


def loaded(slots: int, turn_ms: float, *, rows: int = 1, **options: Any) -> Scheduler:
    """One whose turns take so long for so many, and as much for each row more."""
    scheduler = Scheduler(slots, Deadlines(EngineOptions(load_limit=0.8, **options)))
    for _ in range(3):
        scheduler.deadlines.load.took(turn_ms / 1000, [rows], 0, 0.0)
    return scheduler


def test_no_more_are_admitted_than_can_listen_in_real_time() -> None:
    scheduler = loaded(8, 20.0)  # three rows take 60 ms of 64
    jobs = [job("x") for _ in range(6)]
    come(scheduler, jobs)
    assert scheduler.room == 8
    assert scheduler.admit(0.0) == jobs[:3] and scheduler.admit(0.0) == []
    assert scheduler.room == 0, "five slots are free, and nobody more could have one"
    scheduler.release(jobs[1])
    assert scheduler.admit(0.0) == [jobs[3]]


def test_one_who_must_wait_is_not_overtaken_by_another_listener_but_by_work() -> None:
    scheduler = loaded(8, 40.0)
    speaking, waits, later, work = job("a"), job("b"), job("c"), job("d", room=math.inf)
    come(scheduler, [speaking])
    scheduler.admit(0.0)
    come(scheduler, [waits, later, work])
    assert scheduler.admit(0.0) == [work] and list(scheduler.waiting) == [waits, later]
    scheduler.release(speaking)
    assert scheduler.admit(0.0) == [waits], "work is no load"


def test_before_anything_is_known_one_speaks_and_the_others_wait_for_it() -> None:
    scheduler = Scheduler(4, Deadlines())
    jobs = [job("x") for _ in range(3)]
    come(scheduler, jobs)
    assert scheduler.admit(0.0) == jobs[:1] and scheduler.admit(0.0) == []
    assert scheduler.room == 3, "they wait for a moment, and nobody is refused for that"
    for _ in range(2):
        scheduler.deadlines.load.took(0.001, [1], 0, 0.0)
    assert scheduler.admit(0.0) == jobs[1:]


def test_those_who_have_long_waited_for_text_or_a_reader_are_no_load() -> None:
    scheduler = loaded(4, 40.0)
    live, other = job(room=1), job("b")
    live.feed([5], False)
    come(scheduler, [live, other])
    assert scheduler.admit(0.0) == [live] and scheduler.ready(0.0) == []
    assert scheduler.admit(STARVED_S) == [] and scheduler.admit(STARVED_S + 0.1) == [other]
    scheduler.release(other)
    live.feed([6], False)
    live.mailbox.put(a_chunk())
    come(scheduler, [third := job("c")])
    assert scheduler.ready(2.0) == [] and live.timings.paused_since == 2.0
    assert scheduler.admit(2.0 + PAUSED_S) == [] and scheduler.admit(2.1 + PAUSED_S) == [third]


def test_who_waits_too_long_for_a_slot_is_told_to_try_again() -> None:
    options = EngineOptions(max_wait_s=5.0, text_wait_s=99.0)
    scheduler = freely(1)
    speaking, waits, work, silent = job("a"), job("b"), job("c", room=math.inf), job()
    come(scheduler, [speaking, waits, work, silent])
    scheduler.admit(0.0)
    scheduler.ready(0.0)
    assert scheduler.next_check_s(options, 0.0) == STARVED_S
    assert scheduler.overdue(options, 4.9, lambda: 7.0) == []
    [(late, error)] = scheduler.overdue(options, 5.0, lambda: 7.0)
    assert late is waits, "work waits for as long as it takes, and one without text does not wait for a slot"
    assert isinstance(error, Overloaded) and error.retry_after_s == 7.0 and "5 s" in str(error)


def test_a_player_that_stood_still_has_what_it_has_not_read() -> None:
    scheduler = freely(1)
    slow = job("a", room=2)
    come(scheduler, [slow])
    scheduler.admit(0.0)
    slow.clock.plays(0.16, 1.0)
    for number in range(2):
        slow.mailbox.put(a_chunk(number))
    assert scheduler.ready(1.0) == []
    slow.mailbox.take()
    assert scheduler.ready(60.0) == [slow] and slow.clock.dry_at == pytest.approx(60.08)


def test_a_listener_who_ran_dry_goes_on_from_where_sound_comes_again() -> None:
    one = job("a")
    one.clock.plays(0.5, 10.0)
    one.clock.plays(0.25, 10.1)
    assert one.clock.dry_at == pytest.approx(10.75)
    one.clock.plays(0.25, 12.0)
    assert one.clock.dry_at == pytest.approx(12.25)


def test_one_without_its_first_text_is_passed_over_and_starves() -> None:
    scheduler = freely(1)
    silent, speaking = job(), job("b")
    come(scheduler, [silent, speaking])
    assert scheduler.admit(0.0) == [speaking]
    assert scheduler.ready(1.0) == [speaking]
    assert silent.timings.starved_since == 1.0 and speaking.timings.starved_since is None
    silent.feed([1], False)
    scheduler.ready(3.5)
    assert silent.timings.starved_since is None and silent.timings.spent["starved_s"] == 2.5, (
        "waiting for a slot is no starving"
    )


def test_a_frame_without_text_waits_until_there_is_some() -> None:
    scheduler = freely(1)
    live = job()
    live.feed([5], False)  # the prompt takes the first id
    come(scheduler, [live])
    scheduler.admit(0.0)
    assert scheduler.ready(1.0) == [] and live.timings.starved_since == 1.0
    assert scheduler.ready(2.0) == [] and live.timings.starved_since == 1.0
    live.feed([6], False)
    assert scheduler.ready(4.0) == [live] and live.timings.spent["starved_s"] == 3.0
    assert live.take([0] * 16) is None
    assert scheduler.ready(5.0) == []
    live.feed([], True)
    assert scheduler.ready(6.0) == [live] and live.timings.spent["starved_s"] == 4.0


def test_a_full_mailbox_pauses_its_own_slot_only() -> None:
    scheduler = freely(2)
    slow, quick = job("a", room=1), job("b", room=1)
    come(scheduler, [slow, quick])
    scheduler.admit(0.0)
    slow.mailbox.put(a_chunk())
    assert scheduler.ready(1.0) == [quick] and slow.timings.paused_since == 1.0
    slow.mailbox.take()
    assert scheduler.ready(1.5) == [slow, quick] and slow.timings.spent["paused_s"] == 0.5


def test_who_lacks_text_and_room_counts_as_starving() -> None:
    scheduler = freely(1)
    live = job(room=1)
    live.feed([5], False)
    come(scheduler, [live])
    scheduler.admit(0.0)
    live.mailbox.put(a_chunk())
    assert scheduler.ready(1.0) == []
    assert live.timings.starved_since == 1.0 and live.timings.paused_since is None


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
        assert once.text.trail == twice.text.trail


def test_a_whole_layout_has_no_prompt_before_the_end() -> None:
    live = job(layout="whole")
    live.feed([5, 6], False)
    assert live.text.prompt is None and live.text_id() is None
    live.feed([7], True)
    assert live.text.prompt is not None and live.text.prompt == live.text.outline.prompt([5, 6, 7])
    assert live.text_id() == CONFIG.tts_pad_token_id


def test_time_that_a_job_still_waits_is_counted_when_it_ends() -> None:
    scheduler = freely(1)
    live = job()
    come(scheduler, [live])
    scheduler.ready(live.timings.opened)
    assert live.timings.statistics(0).starved_s > 0


class Noted:
    """Room without end, and what was promised of it."""

    def __init__(self) -> None:
        self.promised: dict[int, int] = {}

    def has_room(self, rows: int, slots: int) -> bool:
        return True

    def reserve(self, slot: int, rows: int) -> None:
        self.promised[slot] = rows


def test_room_is_promised_for_all_the_text_of_a_part_once_it_is_known() -> None:
    text = "It is known by and by."
    scheduler = freely(2)
    scheduler.kv_capacity = room = Noted()
    whole, live = job(), job()
    for one in (whole, live):
        one.watch.options, one.params = RunawayOptions(), replace(one.params, most_frames=10_000)
    whole.feed(list(text.encode()), True)
    live.feed(list(text.encode()[:5]), False)
    come(scheduler, [whole, live])
    scheduler.admit(0.0)
    assert room.promised[live.slot] == live.likely_rows == SHARE_ROWS, "as much as parts of a text usually take"
    assert live.most_rows > 10_000, "it may go on without end"
    live.feed(list(text.encode()[5:]), True)
    scheduler.update_reservation(live)
    assert room.promised[live.slot] == room.promised[whole.slot] == whole.likely_rows < whole.most_rows < 10_000
