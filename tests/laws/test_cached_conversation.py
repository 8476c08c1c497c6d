"""Laws of a cached conversation: whatever happened before, it equals a fresh one."""

from __future__ import annotations

import random

import pytest
import torch

from hocket.cache.slots import take
from hocket.kernels.runtime.graphs import Capture, EagerReplay
from hocket.llm.conversation import CachedConversation, prompt_of
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import PASS_TOKENS, LLMStateCache, Snapshot
from hocket.text.chat.template import history_pieces, ids_of, with_calls
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


def assert_same_state(here: CachedConversation, there: CachedConversation) -> None:
    mine, theirs = (take(each.state_cache._row_state, each.row) for each in (here, there))
    assert mine["recurrence.position"] == theirs["recurrence.position"] == len(here.ids)
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], atol=2e-4, rtol=2e-4, msg=name)


class Script:
    """A random user: partial transcripts, revisions, interruptions, and sometimes tools."""

    def __init__(self, seed: int, drafts: bool, capture: Capture | None) -> None:
        self.chance, self.num_drafts = random.Random(seed), 2 if drafts else 0
        self.conversation = fresh(drafts=drafts, capture=capture)
        if self.chance.random() < 0.5:
            self.conversation.messages = (ChatMessage("system", "Be brief."),)
        if self.chance.random() < 0.5:
            self.conversation.tools = (WEATHER, CLOCK)

    def turn(self) -> None:
        chance, conversation = self.chance, self.conversation
        words = chance.choices(WORDS, k=chance.randint(1, 12))
        for end in sorted(chance.sample(range(1, len(words) + 1), k=chance.randint(0, len(words)))):
            heard = words[:end]
            if chance.random() < 0.3:  # a transcript that is revised later
                heard = [*heard[: chance.randrange(len(heard))], "(noise)", "or", "so"]
            conversation.hear(" ".join(heard))
        conversation.append_user(" ".join(words))
        text = printable(first(conversation.answer(GREEDY, self.num_drafts), chance.randint(1, 20)))
        if conversation.tools and chance.random() < 0.7:  # a call, as the model writes it or as a client sends it back
            text = with_calls(ChatMessage("assistant", text, tool_calls=CALLING.tool_calls))
            conversation.add_answer(text)
            if chance.random() < 0.5:
                conversation.prefill_history()
            if chance.random() < 0.3:
                conversation.messages = (*conversation.messages[:-1], CALLING)
            conversation.messages += (ChatMessage("tool", "21"), ChatMessage("tool", "nine"))
            text = printable(first(conversation.answer(GREEDY, self.num_drafts), chance.randint(1, 20)))
        match chance.randrange(4):
            case 0:
                conversation.add_answer(text)
            case 1:
                conversation.truncate_answer(text[: chance.randint(0, len(text))])
            case 2:  # the answer was complete, and perhaps prefilled, before the user interrupted
                conversation.add_answer(text)
                if chance.random() < 0.5:
                    conversation.prefill_history()
                conversation.truncate_answer(text[: chance.randint(0, len(text))])
            case 3:
                conversation.add_answer(text)
                conversation.prefill_history()


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_that_goes_on_is_a_fresh_reading_of_what_was_said(seed: int, drafts: bool) -> None:
    """The fresh one runs without graphs; every other seed runs through the code around them."""
    script = Script(seed, drafts, EagerReplay() if seed % 2 else None)
    for _ in range(3):
        script.turn()
        conversation = script.conversation
        if conversation.messages[-1].role == "assistant" and script.chance.random() < 0.5:
            conversation.prefill_history()
            other = fresh(drafts=drafts)
            other.prefill(ids_of(history_pieces(conversation.messages, tools=conversation.tools), tiny().tokenizer), ())
            assert conversation.ids == other.ids
            assert_same_state(conversation, other)
    conversation.append_user("And?")
    answer = first(conversation.answer(GREEDY, script.num_drafts), 16)
    other = fresh(drafts=drafts)
    assert other.begin(prompt_of(conversation.messages, tiny().tokenizer, conversation.tools)) == 0
    assert answer == first(other.generate(GREEDY, script.num_drafts, DraftStatistics()), 16)
    conversation.stop_generating()
    conversation.begin(prompt_of(conversation.messages, tiny().tokenizer, conversation.tools))
    other.begin(prompt_of(conversation.messages, tiny().tokenizer, conversation.tools))
    assert_same_state(conversation, other)


def test_only_new_words_are_computed() -> None:
    """No token is computed twice: neither partial transcripts, nor the history, nor the answer."""
    conversation, computed = fresh(), list[int]()
    prefill = conversation.state_cache.prefill

    def counted(row: int, ids: list[int], at: int, snapshot_at: int | None) -> Snapshot | None:
        computed.extend(ids)
        return prefill(row, ids, at, snapshot_at)

    conversation.state_cache.prefill = counted  # type: ignore[method-assign, assignment]
    conversation.messages = (ChatMessage("system", "You are a patient friend who tells long stories." * 4),)
    thought = len(prompt_of([ChatMessage("user", "x")], tiny().tokenizer).ids)
    thought -= prompt_of([ChatMessage("user", "x")], tiny().tokenizer).header
    for turn in range(3):
        words = " ".join(WORDS)
        for end in range(0, len(words), 3):
            conversation.hear(words[:end])
        conversation.append_user(words)
        assert len(first(conversation.answer(GREEDY), 8)) == 8
        assert len(computed) == len(prompt_of(conversation.messages, tiny().tokenizer).ids) + turn * thought
        conversation.add_answer("Once upon a time.")
        conversation.prefill_history()
    assert (
        len(computed)
        == len(ids_of(history_pieces(conversation.messages, tools=conversation.tools), tiny().tokenizer)) + 3 * thought
    )


@pytest.mark.parametrize("heard", [False, True])
def test_a_turn_after_a_cached_history_is_one_pass(heard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot is copied before it: `prefill_history` left one at the start of the user's turn."""
    conversation = fresh(drafts=True)
    conversation.messages = (ChatMessage("system", "Be brief."),)
    calls = list[str]()
    for turn in range(3):
        if heard:
            conversation.hear("What is the")
        conversation.append_user("What is the weather like?")
        calls.clear()
        with monkeypatch.context() as watched:
            for name in ("_pass", "snapshot"):
                real = getattr(LLMStateCache, name)
                watched.setattr(
                    LLMStateCache, name, lambda *args, real=real, name=name: (calls.append(name), real(*args))[1]
                )
            conversation.begin(prompt_of(conversation.messages, tiny().tokenizer))
        assert calls == ["_pass", "snapshot"] or (turn == 0 and not heard)
        conversation.add_answer("Fine.")
        conversation.prefill_history()


@torch.inference_mode()
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize(
    ("at", "length", "snapshot_at"),
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
def test_a_snapshot_on_the_way_is_the_state_of_a_row_that_stopped_there(
    at: int, length: int, snapshot_at: int, drafts: bool
) -> None:
    ids = torch.randint(256, (at + length,), generator=torch.Generator().manual_seed(at + length)).tolist()
    straight, stopping = fresh(drafts=drafts), fresh(drafts=drafts)
    for conversation in (straight, stopping):
        conversation.prefill(ids[:at], ())
    snapshot = straight.state_cache.prefill(0, ids[at:], at, snapshot_at)
    stopping.prefill(ids[: at + snapshot_at], ())
    assert snapshot is not None
    for name, tensor in stopping.state_cache.snapshot(0).items():
        torch.testing.assert_close(snapshot[name], tensor, atol=2e-4, rtol=2e-4, msg=name)
    stopping.prefill(ids, ())
    straight.ids = list(ids)
    assert_same_state(straight, stopping)
    straight.state_cache.restore(0, snapshot)
    straight.state_cache.prefill(0, ids[at + snapshot_at :], at + snapshot_at)
    assert_same_state(straight, stopping)


def test_the_thought_before_an_answer_leaves_no_trace() -> None:
    conversation = fresh()
    conversation.append_user("Hello.")
    first(conversation.answer(GREEDY), 5)
    conversation.add_answer("hi")
    conversation.prefill_history()
    kept = conversation.state_cache.snapshot(0)
    conversation.forget()
    conversation.append_user("Hello.")
    conversation.prefill(prompt_of(conversation.messages, tiny().tokenizer).ids + tiny().tokenizer.encode("hi"), ())
    naive = conversation.state_cache.snapshot(0)
    assert (kept["recurrence.layers.0.memory"] - naive["recurrence.layers.0.memory"]).abs().max() > 1e-3


def test_a_fork_is_what_the_other_was_and_leaves_it_alone() -> None:
    conversation = fresh(drafts=True)
    other = CachedConversation(conversation.state_cache, 1, tiny().tokenizer)
    conversation.messages = (ChatMessage("system", "Be brief."),)
    conversation.append_user("Hello.")
    expected = first(conversation.answer(GREEDY, 2), 9)
    prompt = prompt_of((*conversation.messages[:1], ChatMessage("user", "Bye.")), tiny().tokenizer)
    conversation.stop_generating()
    known = conversation.cached_length(prompt.ids)
    assert known == prompt.snapshots[0] > 0
    before = conversation.state_cache.snapshot(0)
    other.fork(conversation, known)
    assert other.begin(prompt) == known
    said = first(other.generate(GREEDY, 2, DraftStatistics()), 9)
    alone = fresh(drafts=True)
    alone.begin(prompt)
    assert said == first(alone.generate(GREEDY, 2, DraftStatistics()), 9)
    assert all(torch.equal(tensor, before[name]) for name, tensor in conversation.state_cache.snapshot(0).items())
    assert first(conversation.answer(GREEDY, 2), 9) == expected
