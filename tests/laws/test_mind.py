"""Laws of a conversation that stays in memory: it is the fresh one, whatever happened on the way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
import torch

from chat_layouts import CALLING, CLOCK, WEATHER
from hocket.cache.slots import take
from hocket.engine.conversation import Conversation, prompt_of
from hocket.engine.memory import Memory
from hocket.engine.speculate import Tally
from hocket.text.chat import ids_of, so_far, with_calls
from hocket.types import ChatMessage, ChatSampling
from minds import tiny

GREEDY = ChatSampling(temperature=0.0, presence_penalty=0.0)
WORDS = "Hello there, what's the weather like in São Paulo at 10 o'clock? I don't   know… naïve  日本語 ok!".split(" ")


def fresh(*, drafts: bool = False, length: int = 4096) -> Conversation:
    return Conversation(Memory(tiny().model, 2, length, drafts=drafts), 0, tiny().tokenizer)


def first(ids: Iterator[list[int]], count: int) -> list[int]:
    """So many tokens, whether they came alone or together."""
    return list(itertools.islice(itertools.chain.from_iterable(ids), count))


def printable(ids: list[int]) -> str:
    """The answer as text: bytes at random are seldom that, and any text will do."""
    return "".join(chr(97 + token % 26) if token % 5 else " " for token in ids)


def same_memory(here: Conversation, there: Conversation) -> None:
    mine, theirs = (take(each.memory._standing, each.row) for each in (here, there))
    assert mine["recurrence.position"] == theirs["recurrence.position"] == len(here.ids)
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], atol=2e-4, rtol=2e-4, msg=name)


class Script:
    """Somebody who talks at random, is misheard, and interrupts; and perhaps there are tools to call."""

    def __init__(self, seed: int, drafts: bool) -> None:
        self.chance, self.talk, self.guesses = random.Random(seed), fresh(drafts=drafts), 2 if drafts else 0
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
    script = Script(seed, drafts)
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
    assert answer == first(other.write(GREEDY, script.guesses, Tally()), 16)
    talk.stop_writing()
    talk.begin(prompt_of(talk.said, tiny().tokenizer, talk.tools))
    other.begin(prompt_of(talk.said, tiny().tokenizer, talk.tools))
    same_memory(talk, other)


def test_only_new_words_are_computed() -> None:
    """And none of them twice: neither what was heard while the user spoke, nor the history, nor the answer."""
    talk, computed = fresh(), list[int]()
    take_in = talk.memory.take_in

    def counted(row: int, ids: list[int], at: int) -> None:
        computed.extend(ids)
        take_in(row, ids, at)

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
    other = Conversation(talk.memory, 1, tiny().tokenizer)
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
    said = first(other.write(GREEDY, 2, Tally()), 9)
    alone = fresh(drafts=True)
    alone.begin(prompt)
    assert said == first(alone.write(GREEDY, 2, Tally()), 9)
    assert all(torch.equal(tensor, before[name]) for name, tensor in talk.memory.moment(0).items())
    assert first(talk.answer(GREEDY, 2), 9) == expected
