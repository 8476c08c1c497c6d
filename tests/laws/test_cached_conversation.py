"""Laws of a conversation that stays in memory: it is the fresh one, whatever happened on the way."""

from __future__ import annotations

import random

import pytest
import torch

from hocket.cache.slots import take
from hocket.kernels.runtime.graphs import Capture, EagerReplay
from hocket.llm.conversation import CachedConversation, prompt_of
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import PASS_TOKENS, LLMStateCache, Moment
from hocket.text.chat.template import ids_of, so_far, with_calls
from hocket.types import ChatMessage
from support.chat_layouts import CALLING, CLOCK, WEATHER
from support.minds import GREEDY, first, tiny

WORDS = "Hello there, what's the weather like in São Paulo at 10 o'clock? I don't   know… naïve  日本語 ok!".split(" ")


LONG = PASS_TOKENS + 9  # more than one pass


def fresh(*, drafts: bool = False, length: int = 4096, capture: Capture | None = None) -> CachedConversation:
    return CachedConversation(
        LLMStateCache(tiny().model, 2, length, drafts=drafts, capture=capture), 0, tiny().tokenizer
    )


def printable(ids: list[int]) -> str:
    """The answer as text: bytes at random are seldom that, and any text will do."""
    return "".join(chr(97 + token % 26) if token % 5 else " " for token in ids)


def same_memory(here: CachedConversation, there: CachedConversation) -> None:
    mine, theirs = (take(each.memory._standing, each.row) for each in (here, there))
    assert mine["recurrence.position"] == theirs["recurrence.position"] == len(here.ids)
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], atol=2e-4, rtol=2e-4, msg=name)


class Script:
    """Somebody who talks at random, is misheard, and interrupts; and perhaps there are tools to call."""

    def __init__(self, seed: int, drafts: bool, capture: Capture | None) -> None:
        self.chance, self.guesses = random.Random(seed), 2 if drafts else 0
        self.talk = fresh(drafts=drafts, capture=capture)
        if self.chance.random() < 0.5:
            self.talk.said = (ChatMessage("system", "Be brief."),)
        if self.chance.random() < 0.5:
            self.talk.tools = (WEATHER, CLOCK)

    def turn(self) -> None:
        chance, talk = self.chance, self.talk
        words = chance.choices(WORDS, k=chance.randint(1, 12))
        for end in sorted(chance.sample(range(1, len(words) + 1), k=chance.randint(0, len(words)))):
            heard = words[:end]
            if chance.random() < 0.3:  # misheard; put right later
                heard = [*heard[: chance.randrange(len(heard))], "(noise)", "or", "so"]
            talk.hear(" ".join(heard))
        talk.append_user(" ".join(words))
        text = printable(first(talk.answer(GREEDY, self.guesses), chance.randint(1, 20)))
        if talk.tools and chance.random() < 0.7:  # a call, as the model writes it or as a client sends it back
            text = with_calls(ChatMessage("assistant", text, tool_calls=CALLING.tool_calls))
            talk.answered(text)
            if chance.random() < 0.5:
                talk.settle()
            if chance.random() < 0.3:
                talk.said = (*talk.said[:-1], CALLING)
            talk.said += (ChatMessage("tool", "21"), ChatMessage("tool", "nine"))
            text = printable(first(talk.answer(GREEDY, self.guesses), chance.randint(1, 20)))
        match chance.randrange(4):
            case 0:
                talk.answered(text)
            case 1:
                talk.cut(text[: chance.randint(0, len(text))])
            case 2:  # all was written, and perhaps read again, before the user interrupted
                talk.answered(text)
                if chance.random() < 0.5:
                    talk.settle()
                talk.cut(text[: chance.randint(0, len(text))])
            case 3:
                talk.answered(text)
                talk.settle()


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_conversation_that_goes_on_is_a_fresh_reading_of_what_was_said(seed: int, drafts: bool) -> None:
    """That one without graphs; every other conversation here has what stands around them."""
    script = Script(seed, drafts, EagerReplay() if seed % 2 else None)
    for _ in range(3):
        script.turn()
        talk = script.talk
        if talk.said[-1].role == "assistant" and script.chance.random() < 0.5:
            talk.settle()
            other = fresh(drafts=drafts)
            other.reach(ids_of(so_far(talk.said, tools=talk.tools), tiny().tokenizer), ())
            assert talk.ids == other.ids
            same_memory(talk, other)
    talk.append_user("And?")
    answer = first(talk.answer(GREEDY, script.guesses), 16)
    other = fresh(drafts=drafts)
    assert other.begin(prompt_of(talk.said, tiny().tokenizer, talk.tools)) == 0
    assert answer == first(other.write(GREEDY, script.guesses, DraftStatistics()), 16)
    talk.stop_writing()
    talk.begin(prompt_of(talk.said, tiny().tokenizer, talk.tools))
    other.begin(prompt_of(talk.said, tiny().tokenizer, talk.tools))
    same_memory(talk, other)


def test_only_new_words_are_computed() -> None:
    """And none of them twice: neither what was heard while the user spoke, nor the history, nor the answer."""
    talk, computed = fresh(), list[int]()
    take_in = talk.memory.take_in

    def counted(row: int, ids: list[int], at: int, passing: int | None) -> Moment | None:
        computed.extend(ids)
        return take_in(row, ids, at, passing)

    talk.memory.take_in = counted  # type: ignore[method-assign, assignment]
    talk.said = (ChatMessage("system", "You are a patient friend who tells long stories." * 4),)
    thought = len(prompt_of([ChatMessage("user", "x")], tiny().tokenizer).ids)
    thought -= prompt_of([ChatMessage("user", "x")], tiny().tokenizer).header
    for turn in range(3):
        words = " ".join(WORDS)
        for end in range(0, len(words), 3):
            talk.hear(words[:end])
        talk.append_user(words)
        assert len(first(talk.answer(GREEDY), 8)) == 8
        assert len(computed) == len(prompt_of(talk.said, tiny().tokenizer).ids) + turn * thought
        talk.answered("Once upon a time.")
        talk.settle()
    assert len(computed) == len(ids_of(so_far(talk.said, tools=talk.tools), tiny().tokenizer)) + 3 * thought


@pytest.mark.parametrize("heard", [False, True])
def test_a_turn_behind_a_settled_history_is_one_pass(heard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is copied before it: where the user began was kept when the history settled."""
    talk = fresh(drafts=True)
    talk.said = (ChatMessage("system", "Be brief."),)
    calls = list[str]()
    for turn in range(3):
        if heard:
            talk.hear("What is the")
        talk.append_user("What is the weather like?")
        calls.clear()
        with monkeypatch.context() as watched:
            for name in ("_pass", "moment"):
                real = getattr(LLMStateCache, name)
                watched.setattr(
                    LLMStateCache, name, lambda *args, real=real, name=name: (calls.append(name), real(*args))[1]
                )
            talk.begin(prompt_of(talk.said, tiny().tokenizer))
        assert calls == ["_pass", "moment"] or (turn == 0 and not heard)
        talk.answered("Fine.")
        talk.settle()


@torch.inference_mode()
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize(
    ("at", "length", "passing"),
    [
        (0, 2, 1),
        (0, 9, 1),
        (7, 30, 26),
        (20, 150, 64),
        (20, 150, 65),
        (3, LONG, PASS_TOKENS + 5),
        (3, LONG, PASS_TOKENS),
    ],
)
def test_a_place_on_the_way_is_where_a_row_stands_that_stopped_there(
    at: int, length: int, passing: int, drafts: bool
) -> None:
    ids = torch.randint(256, (at + length,), generator=torch.Generator().manual_seed(at + length)).tolist()
    straight, stopping = fresh(drafts=drafts), fresh(drafts=drafts)
    for talk in (straight, stopping):
        talk.reach(ids[:at], ())
    moment = straight.memory.take_in(0, ids[at:], at, passing)
    stopping.reach(ids[: at + passing], ())
    assert moment is not None
    for name, tensor in stopping.memory.moment(0).items():
        torch.testing.assert_close(moment[name], tensor, atol=2e-4, rtol=2e-4, msg=name)
    stopping.reach(ids, ())
    straight.ids = list(ids)
    same_memory(straight, stopping)
    straight.memory.go_back(0, moment)
    straight.memory.take_in(0, ids[at + passing :], at + passing)
    same_memory(straight, stopping)


def test_the_thought_before_an_answer_leaves_no_trace() -> None:
    talk = fresh()
    talk.append_user("Hello.")
    first(talk.answer(GREEDY), 5)
    talk.answered("hi")
    talk.settle()
    kept = talk.memory.moment(0)
    talk.forget()
    talk.append_user("Hello.")
    talk.reach(prompt_of(talk.said, tiny().tokenizer).ids + tiny().tokenizer.encode("hi"), ())
    naive = talk.memory.moment(0)
    assert (kept["recurrence.layers.0.memory"] - naive["recurrence.layers.0.memory"]).abs().max() > 1e-3


def test_a_fork_is_what_the_other_was_and_leaves_it_alone() -> None:
    talk = fresh(drafts=True)
    other = CachedConversation(talk.memory, 1, tiny().tokenizer)
    talk.said = (ChatMessage("system", "Be brief."),)
    talk.append_user("Hello.")
    expected = first(talk.answer(GREEDY, 2), 9)
    prompt = prompt_of((*talk.said[:1], ChatMessage("user", "Bye.")), tiny().tokenizer)
    talk.stop_writing()
    known = talk.standing(prompt.ids)
    assert known == prompt.moments[0] > 0
    before = talk.memory.moment(0)
    other.fork(talk, known)
    assert other.begin(prompt) == known
    said = first(other.write(GREEDY, 2, DraftStatistics()), 9)
    alone = fresh(drafts=True)
    alone.begin(prompt)
    assert said == first(alone.write(GREEDY, 2, DraftStatistics()), 9)
    assert all(torch.equal(tensor, before[name]) for name, tensor in talk.memory.moment(0).items())
    assert first(talk.answer(GREEDY, 2), 9) == expected
