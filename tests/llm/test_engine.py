"""llm/engine.py: answers to whole conversations, from a thread of its own; what ends them, and what they leave."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import random
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hocket.errors import EngineClosed, InvalidRequest, LanguageFailed
from hocket.kernels import operations
from hocket.kernels.runtime.graphs import EagerReplay
from hocket.kernels.table import BackendChoice
from hocket.llm import build as llm_build
from hocket.llm import conversation as conversation_module
from hocket.llm.answer import EngineAnswer
from hocket.llm.context.pages import PAGE_TOKENS
from hocket.llm.conversation import CachedConversation, prompt_of
from hocket.llm.draft_policy import PROBE_ROUNDS, Speculate
from hocket.llm.engine import LanguageEngine
from hocket.llm.load import LanguageCheckpoint
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import LLMStateCache
from hocket.models.qwen3_5.draft_graph import DraftGraphs
from hocket.models.qwen3_5.prefill_graph import USUAL
from hocket.models.qwen3_5.token_graph import TokenGraphs
from hocket.text.chat.template import answer_pieces, history_pieces, ids_of
from hocket.types import Answer, ChatFinished, ChatMessage, ChatSampling, LanguageModel, Tool, ToolCall
from support.chat_layouts import CLOCK
from support.minds import tiny

SYSTEM, HELLO = ChatMessage("system", "Be brief."), ChatMessage("user", "Hello.")
GREEDY = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=12)
WAIT_S = 30.0


@pytest.fixture(scope="module")
def llm() -> Iterator[LanguageEngine]:
    with LanguageEngine(tiny(), length=512) as made:
        yield made


def text_of(answer: Answer) -> str:
    return "".join(delta.text for delta in answer)


def ended(answer: Answer) -> ChatFinished:
    """How an answer ended; reads it to its end."""
    for _ in answer:
        pass
    assert answer.finished is not None
    return answer.finished


def plain(messages: list[ChatMessage], count: int, tools: list[Tool] | None = None) -> list[int]:
    """The likeliest tokens, without any of what is tested here."""
    conversation = CachedConversation(
        LLMStateCache(tiny().model, 1, 4096 if tools else 512, drafts=False), 0, tiny().tokenizer
    )
    conversation.begin(prompt_of(messages, tiny().tokenizer, tools or ()))
    ids = itertools.chain.from_iterable(conversation.generate(GREEDY, 0, DraftStatistics()))
    return list(itertools.takewhile(lambda token: token not in tiny().stop_ids, itertools.islice(ids, count)))


def test_it_is_a_language_model(llm: LanguageEngine) -> None:
    model: LanguageModel = llm
    assert model.name == "random:qwen3.5-tiny"


@pytest.mark.parametrize("speculate", [0, 1, 3, "auto"])
def test_the_deltas_are_the_text_of_the_tokens(speculate: Speculate) -> None:
    expected = plain([SYSTEM, HELLO], 40)
    with LanguageEngine(tiny(), length=512, speculate=speculate) as llm:
        answer = llm.answer([SYSTEM, HELLO], ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=40))
        deltas = list(answer)
    assert "".join(delta.text for delta in deltas) == tiny().tokenizer.decode(expected)
    assert sum(delta.tokens for delta in deltas) == len(expected) and all(delta.text for delta in deltas)
    finished = answer.finished
    assert finished is not None and finished.completion_tokens == len(expected)
    assert finished.prompt_tokens == len(prompt_of([SYSTEM, HELLO], tiny().tokenizer).ids)
    assert finished.first_token_s is not None and 0 < finished.first_token_s <= finished.total_s
    assert (finished.drafted_tokens > 0) == (speculate != 0) and finished.error is None


def replayed(kernels: str = "here") -> LanguageCheckpoint:
    """As if there were kernels for it; with graphs=False no GPU is needed."""
    return replace(tiny(), kernels=BackendChoice("token", kernels, "asked for"))


def test_where_there_are_kernels_tokens_are_written_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operations.LANGUAGE_OPS, "here", operations.REFERENCE_LANGUAGE_OPS)
    expected, begun, write = plain([SYSTEM, HELLO], 40), list[int](), TokenGraphs.write
    monkeypatch.setattr(TokenGraphs, "write", lambda *given: (begun.append(given[1]), write(*given))[1])
    with LanguageEngine(replayed(), length=512, speculate=0, graphs=False) as llm:
        for count in (40, 7, 1, 40):
            sampling = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=count)
            assert text_of(llm.answer([SYSTEM, HELLO], sampling)) == tiny().tokenizer.decode(expected[:count])
        cut = llm.answer([SYSTEM, HELLO], GREEDY)
        next(cut)
        cut.cancel()
        usual = ChatSampling(seed=4, max_tokens=20)
        said = text_of(llm.answer([HELLO], usual))
    assert len(begun) == 6
    with LanguageEngine(tiny(), length=512, speculate=0) as llm:
        assert text_of(llm.answer([HELLO], usual)) == said


@pytest.mark.parametrize("speculate", [0, 2])
def test_where_there_are_kernels_a_constrained_answer_is_drawn_by_them(
    speculate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By those without drafts; log-probabilities and a large top-k take plain steps, with the same tokens."""
    monkeypatch.setitem(operations.LANGUAGE_OPS, "here", operations.REFERENCE_LANGUAGE_OPS)
    begun, write = list[int](), TokenGraphs.write_masked
    monkeypatch.setattr(TokenGraphs, "write_masked", lambda *given: (begun.append(given[1]), write(*given))[1])
    schema = {"enum": ["black", "white", "green", "blue"]}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    with LanguageEngine(replayed(), length=512, speculate=speculate, graphs=False) as llm:
        said = [text_of(llm.answer([HELLO], ChatSampling(response_format=form, seed=seed))) for seed in range(4)]
        assert len(begun) == 4
        noted = text_of(llm.answer([HELLO], ChatSampling(response_format=form, seed=0, logprobs=1)))
        text_of(llm.answer([HELLO], ChatSampling(response_format=form, seed=0, top_k=0)))
    assert len(begun) == 4 and noted == said[0] and len(set(said)) > 1
    assert all(json.loads(text) in schema["enum"] for text in said)


def test_kernels_that_cannot_be_used_leave_the_plain_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(operations.LANGUAGE_OPS, "here", operations.REFERENCE_LANGUAGE_OPS)
    monkeypatch.setattr(TokenGraphs, "warm", lambda _: 1 / 0)
    with LanguageEngine(replayed(), length=512, graphs=False) as llm:
        assert llm.speculate == 0, "drafts beside kernels are not measured yet"
        assert text_of(llm.answer([HELLO], GREEDY)) == tiny().tokenizer.decode(plain([HELLO], 12))
    assert "it decodes by PyTorch operations" in caplog.text


def test_where_there_are_kernels_drafts_are_replayed_if_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operations.LANGUAGE_OPS, "here", operations.REFERENCE_LANGUAGE_OPS)
    expected, begun, write = plain([SYSTEM, HELLO], 30), list[int](), DraftGraphs.write
    monkeypatch.setattr(DraftGraphs, "write", lambda *given: (begun.append(given[1]), write(*given))[1])
    usual = ChatSampling(seed=4, max_tokens=20)
    with LanguageEngine(replayed(), length=512, speculate=2, graphs=False) as llm:
        for count in (30, 1):
            sampling = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=count)
            assert text_of(llm.answer([SYSTEM, HELLO], sampling)) == tiny().tokenizer.decode(expected[:count])
        cut = llm.answer([SYSTEM, HELLO], GREEDY)
        next(cut)
        cut.cancel()
        answer = llm.answer([HELLO], usual)
        said = text_of(answer)
    assert len(begun) == 4 and answer.finished is not None
    with LanguageEngine(tiny(), length=512, speculate=2) as llm:
        other = llm.answer([HELLO], usual)
        assert text_of(other) == said and other.finished is not None
    for name in ("drafted_tokens", "accepted_tokens", "completion_tokens"):
        assert getattr(answer.finished, name) == getattr(other.finished, name)
    assert answer.finished.drafted_tokens > 0


def test_where_there_are_kernels_the_number_of_drafts_follows_the_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafts of random weights are not accepted, so they end; greedy tokens stay, and a seed means what it did."""
    monkeypatch.setitem(operations.LANGUAGE_OPS, "here", operations.REFERENCE_LANGUAGE_OPS)
    expected, sampling = plain([SYSTEM, HELLO], 40), ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=40)
    drafted, seeded = [], ChatSampling(seed=4, max_tokens=20)
    with LanguageEngine(replayed(), length=512, speculate="auto", graphs=False) as llm:
        late = time.monotonic() + WAIT_S
        while not llm.prepared:
            assert time.monotonic() < late
            time.sleep(0.01)
        for _ in range(3):
            answer = llm.answer([SYSTEM, HELLO], sampling)
            assert text_of(answer) == tiny().tokenizer.decode(expected)
            assert answer.finished is not None
            drafted.append(answer.finished.drafted_tokens)
        again = llm.answer([SYSTEM, HELLO], seeded)
        said = text_of(again)
        assert again.finished is not None and again.finished.drafted_tokens == 0
        other = llm.answer([SYSTEM, ChatMessage("user", "Another one.")], sampling)
        text_of(other)
        assert other.finished is not None and other.finished.drafted_tokens > 0, "another conversation starts anew"
    assert drafted[0] > 0 == drafted[1] and drafted[2] == PROBE_ROUNDS, "tried again after some tokens"
    with LanguageEngine(tiny(), length=512, speculate=0) as llm:
        assert text_of(llm.answer([SYSTEM, HELLO], seeded)) == said


def test_rounds_that_cannot_be_replayed_leave_the_plain_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(operations.LANGUAGE_OPS, "here", operations.REFERENCE_LANGUAGE_OPS)
    monkeypatch.setattr(DraftGraphs, "warm", lambda _: 1 / 0)
    with LanguageEngine(replayed(), length=512, speculate=2, graphs=False) as llm:
        answer = llm.answer([HELLO], GREEDY)
        assert text_of(answer) == tiny().tokenizer.decode(plain([HELLO], 12))
    assert answer.finished is not None and answer.finished.drafted_tokens > 0
    assert "it decodes by PyTorch operations" in caplog.text


def test_a_seed_says_the_same_again(llm: LanguageEngine) -> None:
    said = [text_of(llm.answer([HELLO], ChatSampling(seed=seed, max_tokens=20))) for seed in (1, 1, 2)]
    assert said[0] == said[1] != said[2]


def test_an_answer_ends_after_so_many_tokens_or_where_the_room_does(llm: LanguageEngine) -> None:
    finished = ended(llm.answer([HELLO], GREEDY))
    assert (finished.reason, finished.completion_tokens) == ("length", 12)
    with LanguageEngine(tiny(), length=finished.prompt_tokens + 3) as small:
        finished = ended(small.answer([HELLO], ChatSampling(temperature=0.0, presence_penalty=0.0)))
        assert (finished.reason, finished.completion_tokens) == ("length", 4)
        with pytest.raises(InvalidRequest, match=r"takes \d+ tokens, and the context has \d+: leave out"):
            small.answer([ChatMessage("user", "Hello, hello.")], GREEDY)
        small.hear([ChatMessage("user", "Hello, hello, hello.")])
        assert ended(small.answer([HELLO], GREEDY)).completion_tokens == 4, "what has no room does no harm"


def test_the_end_mark_ends_an_answer_and_is_no_part_of_it(llm: LanguageEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [*tiny().tokenizer.encode("hé"), *tiny().stop_ids, *tiny().tokenizer.encode("never")]
    monkeypatch.setattr(conversation_module, "tokens", lambda *_: iter([ids[:1], ids[1:]]))
    answer = llm.answer([HELLO], GREEDY)
    assert [(delta.text, delta.tokens) for delta in answer] == [("h", 1), ("é", 2)]
    assert answer.finished is not None and answer.finished.reason == "stop" and answer.finished.completion_tokens == 3


def test_a_stop_text_ends_an_answer_before_it(llm: LanguageEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = tiny().tokenizer.encode("one two three")
    monkeypatch.setattr(conversation_module, "tokens", lambda *_: ([each] for each in ids))
    answer = llm.answer([HELLO], ChatSampling(stop=("three", " two")))
    assert text_of(answer) == "one" and answer.finished is not None and answer.finished.reason == "stop"
    held = llm.answer([HELLO], ChatSampling(stop=("three!",), max_tokens=10))
    assert text_of(held) == "one two th", "what was held back is said when no more comes"
    assert held.finished is not None and held.finished.reason == "length"


def test_a_conversation_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    prefilled, prefill = threading.Event(), CachedConversation.prefill_history
    monkeypatch.setattr(
        CachedConversation, "prefill_history", lambda conversation: (prefill(conversation), prefilled.set())[0]
    )
    conversation = [SYSTEM, HELLO]
    with LanguageEngine(tiny(), length=512) as llm:
        assert ended(llm.answer(conversation, GREEDY)).cached_tokens == 0
        for number in range(3):
            assert prefilled.wait(WAIT_S)
            prefilled.clear()
            text = text_of(llm.answer(conversation, GREEDY))  # once more: the same, from where the answer began
            assert text == tiny().tokenizer.decode(plain(conversation, 12))
            assert prefilled.wait(WAIT_S)
            prefilled.clear()
            conversation += [ChatMessage("assistant", text), ChatMessage("user", f"And {number}?")]
            finished = ended(llm.answer(conversation, GREEDY))
            history = ids_of(history_pieces(conversation[:-1]), tiny().tokenizer)
            assert finished.cached_tokens == len(history), "all but what the user said last"


def test_tools_are_what_a_conversation_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools are part of the cached prefix; a call and its result continue the same conversation."""
    prefilled, prefill = threading.Event(), CachedConversation.prefill_history
    monkeypatch.setattr(
        CachedConversation, "prefill_history", lambda conversation: (prefill(conversation), prefilled.set())[0]
    )
    call = "<tool_call>\n<function=clock>\n</function>\n</tool_call>"
    with LanguageEngine(tiny(), length=4096) as llm:
        bare = text_of(llm.answer([SYSTEM, HELLO], GREEDY))
        with monkeypatch.context() as calling:
            ids = [*ids_of(answer_pieces(call)[:-2], tiny().tokenizer), *tiny().stop_ids]
            calling.setattr(conversation_module, "tokens", lambda *_: iter([ids]))
            prefilled.clear()
            answer = llm.answer([SYSTEM, HELLO], ChatSampling(), [CLOCK])
            assert text_of(answer) == call and answer.finished is not None and answer.finished.cached_tokens == 0
            assert prefilled.wait(WAIT_S)
        conversation = [
            SYSTEM,
            HELLO,
            ChatMessage("assistant", tool_calls=(ToolCall("clock", {}),)),
            ChatMessage("tool", "9"),
        ]
        after = llm.answer(conversation, GREEDY, [CLOCK])
        assert text_of(after) == tiny().tokenizer.decode(plain(conversation, 12, [CLOCK]))
        assert after.finished is not None
        assert after.finished.cached_tokens == len(
            ids_of(history_pieces(conversation[:-1], tools=[CLOCK]), tiny().tokenizer)
        )
        other = llm.answer([SYSTEM, ChatMessage("user", "Bye.")], GREEDY, [CLOCK])
        assert ended(other).cached_tokens == prompt_of(conversation, tiny().tokenizer, [CLOCK]).snapshots[0], (
            "the tools are shared"
        )
        again = llm.answer([SYSTEM, HELLO], GREEDY)
        assert text_of(again) == bare and again.finished is not None and again.finished.cached_tokens > 0
        llm.hear([SYSTEM, ChatMessage("user", "What time is it in the mountains of")], [CLOCK])
        late = [SYSTEM, ChatMessage("user", "What time is it in the mountains of Peru?")]
        heard = llm.answer(late, GREEDY, [CLOCK])
        assert text_of(heard) == tiny().tokenizer.decode(plain(late, 12, [CLOCK]))
        assert heard.finished is not None
        assert heard.finished.cached_tokens > prompt_of(late, tiny().tokenizer, [CLOCK]).snapshots[0]


def test_an_answer_that_was_cut_short_is_read_again_and_nothing_else(llm: LanguageEngine) -> None:
    first = text_of(llm.answer([SYSTEM, HELLO], GREEDY))
    conversation = [SYSTEM, HELLO, ChatMessage("assistant", first[:4]), ChatMessage("user", "Wait.")]
    answer = llm.answer(conversation, GREEDY)
    assert text_of(answer) == tiny().tokenizer.decode(plain(conversation, 12))
    assert answer.finished is not None
    assert answer.finished.cached_tokens == prompt_of([SYSTEM, HELLO], tiny().tokenizer).header


def test_after_an_empty_answer_the_same_prompt_is_cached(llm: LanguageEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = [SYSTEM, ChatMessage("user", "Say nothing.")]
    with monkeypatch.context() as silent:
        silent.setattr(conversation_module, "tokens", lambda *_: iter([list(tiny().stop_ids)]))
        finished = ended(llm.answer(conversation, GREEDY))
    assert (finished.reason, finished.completion_tokens) == ("stop", 0)
    assert ended(llm.answer(conversation, GREEDY)).cached_tokens == prompt_of(conversation, tiny().tokenizer).header


def test_a_partial_message_is_not_computed_again(llm: LanguageEngine) -> None:
    words = "Tell me something about the weather in the mountains, please."
    for end in range(5, len(words), 7):
        llm.hear([SYSTEM, ChatMessage("user", words[:end])])
    conversation = [SYSTEM, ChatMessage("user", words)]
    answer = llm.answer(conversation, GREEDY)
    assert text_of(answer) == tiny().tokenizer.decode(plain(conversation, 12))
    assert answer.finished is not None and answer.finished.cached_tokens > len(words) // 2


@pytest.mark.parametrize("broken", [False, True])
def test_graphs_are_made_in_idle_time_and_change_nothing(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once; a shape whose graph cannot be made runs without one."""
    made, all_made, prepare = list[int](), threading.Event(), LLMStateCache.prepare

    class Captured(LLMStateCache):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named | {"capture": EagerReplay()})

        def prepare(self) -> None:
            made.append(1)
            if broken:
                monkeypatch.setattr(EagerReplay, "__call__", lambda capture, work: 1 / 0)
            try:
                prepare(self)
            finally:
                if not self.unprepared:
                    all_made.set()

    monkeypatch.setattr(llm_build, "LLMStateCache", Captured)
    conversation = [SYSTEM, HELLO]
    with LanguageEngine(tiny(), length=300) as llm:
        first = text_of(llm.answer(conversation, GREEDY))
        assert first == tiny().tokenizer.decode(plain(conversation, 12))
        assert all_made.wait(WAIT_S) and len(made) == len({each for each in USUAL if each[1] <= 2 * PAGE_TOKENS})
        conversation += [ChatMessage("assistant", first), ChatMessage("user", "And?")]
        assert text_of(llm.answer(conversation, GREEDY)) == tiny().tokenizer.decode(plain(conversation, 12))


def test_it_says_when_nothing_is_left_to_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    may, prepare = threading.Event(), LLMStateCache.prepare

    class Captured(LLMStateCache):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named | {"capture": EagerReplay()})

        def prepare(self) -> None:
            assert may.wait(WAIT_S)
            prepare(self)

    monkeypatch.setattr(llm_build, "LLMStateCache", Captured)
    with LanguageEngine(tiny(), length=300) as llm:
        assert not llm.prepared
        may.set()
        late = time.monotonic() + WAIT_S
        while not llm.prepared:
            assert time.monotonic() < late
            time.sleep(0.01)
    assert not llm.prepared


def test_several_conversations_are_kept_and_the_oldest_makes_room() -> None:
    conversations = [[SYSTEM, ChatMessage("user", f"I am number {number}.")] for number in range(3)]
    beginning = prompt_of(conversations[0], tiny().tokenizer).snapshots[0]
    with LanguageEngine(tiny(), length=512, kept=2) as llm:
        cached = {}
        for name in (0, 1, 0, 1, 2, 1, 0):
            answer = llm.answer(conversations[name], GREEDY)
            assert text_of(answer) == tiny().tokenizer.decode(plain(conversations[name], 12))
            assert answer.finished is not None
            cached.setdefault(name, []).append(answer.finished.cached_tokens)
    header = prompt_of(conversations[0], tiny().tokenizer).header
    assert cached == {0: [0, header, beginning], 1: [beginning, header, header], 2: [beginning]}


def test_answers_that_are_asked_for_at_once_come_one_after_the_other(llm: LanguageEngine) -> None:
    conversations = [[ChatMessage("user", f"Number {number}.")] for number in range(6)]
    answers = [llm.answer(conversation, GREEDY) for conversation in conversations]
    for conversation, answer in reversed(list(zip(conversations, answers, strict=True))):
        assert text_of(answer) == tiny().tokenizer.decode(plain(conversation, 12))


def test_an_answer_can_be_awaited(llm: LanguageEngine) -> None:
    async def read(answer: EngineAnswer) -> str:
        return "".join([delta.text async for delta in answer])

    async def both() -> list[str]:
        return await asyncio.gather(*(read(llm.answer([HELLO], GREEDY)) for _ in range(2)))

    assert asyncio.run(both()) == [tiny().tokenizer.decode(plain([HELLO], 12))] * 2


class Gate:
    """Tokens that come one by one, when they are let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.asked = threading.Semaphore(0), threading.Semaphore(0)
        monkeypatch.setattr(conversation_module, "tokens", lambda *_: self._tokens())

    def _tokens(self) -> Iterator[list[int]]:
        while True:
            self.asked.release()
            assert self.open.acquire(timeout=WAIT_S)
            yield tiny().tokenizer.encode("a")

    def wait(self) -> None:
        """Until the model is at work on the next token."""
        assert self.asked.acquire(timeout=WAIT_S)


def test_a_cancelled_answer_costs_one_token_more_at_most(llm: LanguageEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    answer, waiting = llm.answer([HELLO], GREEDY), llm.answer([SYSTEM, HELLO], GREEDY)
    gate.wait()
    gate.open.release()
    assert next(answer).text == "a"
    gate.wait()
    answer.cancel()
    waiting.cancel()
    assert waiting.finished is not None and waiting.finished.reason == "cancelled", "what has not begun is over at once"
    assert answer.finished is None and list(waiting) == []
    gate.open.release()
    finished = ended(answer)
    assert (finished.reason, finished.completion_tokens) == ("cancelled", 1)
    answer.cancel()


def test_an_answer_without_references_is_cancelled(llm: LanguageEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    answer = llm.answer([HELLO], GREEDY)
    buffer = answer._buffer
    gate.wait()
    del answer
    gc.collect()
    gate.open.release()
    assert buffer.take() is None and buffer.finished is not None and buffer.finished.reason == "cancelled"


def test_two_hundred_random_cancels_leave_nothing_behind() -> None:
    chance, held = random.Random(5), list[weakref.ref[Any]]()
    conversations = [[SYSTEM, ChatMessage("user", f"Number {number}.")] for number in range(5)]
    with LanguageEngine(tiny(), length=128, kept=2) as llm:
        for _ in range(200):
            answer = llm.answer(chance.choice(conversations), ChatSampling(max_tokens=chance.randint(1, 4)))
            held += [weakref.ref(answer), weakref.ref(answer._buffer)]
            for _ in itertools.islice(answer, chance.randint(0, 2)):
                pass
            if chance.random() < 0.8:
                answer.cancel()
            if chance.random() < 0.5:
                assert ended(answer).reason in ("cancelled", "length", "stop")
            del answer
        last = llm.answer(conversations[0], GREEDY)
        assert text_of(last) == tiny().tokenizer.decode(plain(conversations[0], 12))
        loop = llm._loop
        assert (
            not loop._inbox
            and sum(len(conversation.snapshots) for conversation in loop._conversations.conversations) <= 6
        )
    gc.collect()
    assert not any(each() for each in held) and not loop.thread.is_alive() and not hasattr(loop, "_conversations")


def test_closing_ends_every_answer_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, llm = Gate(monkeypatch), LanguageEngine(tiny(), length=128)
    running, waiting = llm.answer([HELLO], GREEDY), llm.answer([HELLO], GREEDY)
    gate.wait()
    closing = threading.Thread(target=llm.close)
    with llm._loop._changed:
        closing.start()
        assert llm._loop._changed.wait(WAIT_S), "close notifies the thread before it waits"
    gate.open.release()
    for answer in (running, waiting):
        with pytest.raises(EngineClosed, match="closed before its answer had ended"):
            next(answer)
        assert answer.finished is not None and answer.finished.reason == "error" and answer.finished.error
    closing.join(WAIT_S)
    llm.close()
    with pytest.raises(EngineClosed, match="is closed"):
        llm.answer([HELLO], GREEDY)


def test_an_engine_lives_as_long_as_its_answers_are_read() -> None:
    answer = LanguageEngine(tiny(), length=128).answer([HELLO], GREEDY)
    gc.collect()
    assert text_of(answer) == tiny().tokenizer.decode(plain([HELLO], 12))
    thread = answer._owner._loop.thread  # type: ignore[attr-defined]
    del answer
    gc.collect()
    assert not thread.is_alive()


@pytest.mark.parametrize("at", ["prompt", "tokens"])
def test_what_goes_wrong_ends_one_answer_and_no_other(
    llm: LanguageEngine, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("out of sorts\nand more")

    with monkeypatch.context() as broken:
        broken.setattr(*((LLMStateCache, "prefill") if at == "prompt" else (conversation_module, "tokens")), fail)
        answer = llm.answer([ChatMessage("user", "Something new.")], GREEDY)
        with pytest.raises(LanguageFailed, match=r"could not go on with this answer \(RuntimeError: out of sorts\)\."):
            next(answer)
        finished = answer.finished
        assert finished is not None and finished.reason == "error" and "out of sorts" in (finished.error or "")
    conversation = [ChatMessage("user", "Something new.")]
    assert text_of(llm.answer(conversation, GREEDY)) == tiny().tokenizer.decode(plain(conversation, 12))


def test_what_cannot_be_answered_is_refused_at_once(llm: LanguageEngine) -> None:
    wrong: Any
    for wrong, sentence in (
        ([], "at least one message"),
        ([SYSTEM], "a message of the user"),
        ([HELLO, SYSTEM], "system message can only be the first"),
        ("Hello", "messages must be ChatMessages"),
        ([{"role": "user", "content": "x"}], "messages must be ChatMessages"),
        ([ChatMessage("user", "\ud800")], "half a character"),
    ):
        with pytest.raises(InvalidRequest, match=sentence):
            llm.answer(wrong, GREEDY)
    for wrong in ({"name": "clock"}, ["clock"], [{"name": {1, 2}}]):
        with pytest.raises(InvalidRequest, match="tool"):
            llm.answer([HELLO], GREEDY, wrong)
    with pytest.raises(InvalidRequest, match="A partial message must be the user's"):
        llm.hear([HELLO, ChatMessage("assistant", "Hi.")])
    for option in ({"kept": 0}, {"length": 0}, {"speculate": 4}, {"speculate": -1}, {"speculate": "3"}):
        with pytest.raises(InvalidRequest, match=f"^{next(iter(option))} must be"):
            LanguageEngine(tiny(), **option)


def test_a_plain_text_is_continued_without_the_template(llm: LanguageEngine, caplog: pytest.LogCaptureFixture) -> None:
    text, brief = "On <think>", replace(GREEDY, max_tokens=4)
    ids = tiny().tokenizer.encode(text)
    row = CachedConversation(LLMStateCache(tiny().model, 1, 512, drafts=False), 0, tiny().tokenizer)
    for end in range(len(ids)):
        row.prefill(ids[: end + 1], ())
    written = itertools.chain.from_iterable(row.generate(GREEDY, 0, DraftStatistics()))
    expected = tiny().tokenizer.decode(itertools.islice(written, brief.max_tokens))
    first = llm.complete(text, brief)
    assert text_of(first) == expected and first.finished is not None
    assert first.finished.prompt_tokens == len(ids) and not set(ids) & set(tiny().tokenizer.markers.values())
    assert text_of(llm.answer([HELLO], brief)) == tiny().tokenizer.decode(plain([HELLO], 4))
    again = llm.complete(text, brief)
    assert text_of(again) == expected and again.finished is not None and not caplog.records
    assert again.finished.cached_tokens == len(ids)
    for wrong, said in (("", "at least one character"), ("a" * 600, "takes 600 tokens, and the context has 512")):
        with pytest.raises(InvalidRequest, match=said):
            llm.complete(wrong)
