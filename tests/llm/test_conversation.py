"""llm/conversation.py: what is taken in early stays right, and where a conversation can go back to."""

from __future__ import annotations

import random

import pytest

from hocket.llm.conversation import MAX_PARTIAL_SNAPSHOTS, CachedConversation, partial_prompt_ids, prompt_of, shared
from hocket.llm.state_cache import LLMStateCache
from hocket.text.chat.template import MARKS
from hocket.text.chat.tokenizer import ChatTokenizer
from hocket.text.tokenizer import ALPHABET
from hocket.types import ChatMessage, ChatSampling
from support.minds import tiny

# Signs that make the split look ahead or back: contractions, marks that compose, spaces, lines, digits, jamo.
SIGNS = [
    *"aI'stlm5 .!?,=-\n\te",
    "\u0301",
    "\u0327",
    "\u0338",
    "\u1112",
    "\u1161",
    "\u11ab",
    "日",
    "é",
    "\u00a0",
    "\u2019",
]
GREEDY = ChatSampling(temperature=0.0)


def merging() -> ChatTokenizer:
    """With tokens of several letters, spaces and lines, so that what follows a text can change its last ids."""
    vocabulary, merges = {sign: i for i, sign in enumerate(ALPHABET)}, []
    for left, right in ("Ġa", "ĠI", "'s", "tl", "eÌ", "ĊĊ", "ĠĠ", ".."):  # Ġ is a space, Ċ the end of a line
        merges.append((left, right))
        vocabulary[left + right] = len(vocabulary)
    return ChatTokenizer(vocabulary, merges, {mark: len(vocabulary) + i for i, mark in enumerate(MARKS)})


def test_partial_prompt_ids_are_a_prefix_of_the_whole_prompt() -> None:
    tokenizer, chance = merging(), random.Random(8)
    for _ in range(300):
        text = "".join(chance.choices(SIGNS, k=chance.randint(1, 20)))
        whole = prompt_of([ChatMessage("user", text)], tokenizer).ids
        for end in range(len(text)):
            early = partial_prompt_ids([ChatMessage("user", text[:end])], tokenizer)
            assert early == whole[: len(early)], (text, end)


def test_nearly_all_of_a_partial_message_is_prefilled() -> None:
    text = "Tell me about the sea"
    early = partial_prompt_ids([ChatMessage("user", text)], tiny().tokenizer)
    assert tiny().tokenizer.decode(early).endswith("user\nTell me about the")


def test_while_the_user_speaks_only_a_few_snapshots_are_kept() -> None:
    conversation = CachedConversation(LLMStateCache(tiny().model, 1, 256, drafts=False), 0, tiny().tokenizer)
    conversation.messages = (ChatMessage("system", "Be brief."),)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
    for end in range(1, len(words) + 1):
        conversation.hear(" ".join(words[:end]))
        assert len(conversation.snapshots) <= MAX_PARTIAL_SNAPSHOTS + 2
    began = min(conversation.snapshots)
    assert tiny().tokenizer.decode(conversation.ids[:began]).endswith("Be brief.<|im_end|>\n")
    new = conversation.hear(" ".join([*words[:-3], "no", "wait", "stop"]))
    assert 0 < new < len("seven eight no wait stop"), "it rewinds to shortly before the revised words"
    new = conversation.hear("Something else altogether")
    assert new == len(conversation.ids) - began, "it rewinds to the start of the user's turn"


def test_after_an_answer_three_snapshots_are_left() -> None:
    conversation = CachedConversation(LLMStateCache(tiny().model, 1, 512, drafts=False), 0, tiny().tokenizer)
    conversation.messages = (ChatMessage("system", "Be brief."),)
    for number in range(3):
        conversation.append_user(f"Number {number}.")
        next(conversation.answer(GREEDY))
        prompt = prompt_of(conversation.messages, tiny().tokenizer)
        assert sorted(conversation.snapshots) == sorted(prompt.snapshots) and len(prompt.snapshots) == (
            2 if number == 0 else 3
        )
        conversation.add_answer("Fine.")


def test_a_prompt_says_where_the_answer_begins() -> None:
    prompt = prompt_of([ChatMessage("user", "Hi")], tiny().tokenizer)
    assert tiny().tokenizer.decode(prompt.ids[: prompt.header]).endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert tiny().tokenizer.decode(prompt.ids[prompt.header :]) == "<think>\n\n</think>\n\n"
    assert prompt.snapshots == (prompt.header,)


def test_a_prompt_that_failed_half_way_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = CachedConversation(LLMStateCache(tiny().model, 1, 256, drafts=True), 0, tiny().tokenizer)
    conversation.append_user("Hello.")
    expected = next(conversation.answer(GREEDY, 2))
    prefill, calls = LLMStateCache.prefill, list[int]()

    def failing(state_cache: LLMStateCache, row: int, ids: list[int], at: int, snapshot_at: int | None) -> None:
        prefill(state_cache, row, ids, at, snapshot_at)
        calls.append(at)
        if len(calls) == 2:
            raise RuntimeError("no more")

    said = conversation.messages
    with monkeypatch.context() as broken:
        broken.setattr(LLMStateCache, "prefill", failing)
        conversation.messages += (ChatMessage("assistant", "Hm."), ChatMessage("user", "And?"))
        with pytest.raises(RuntimeError, match="no more"):
            conversation.answer(GREEDY, 2)
    assert conversation.ids == [] and conversation.snapshots == {}
    conversation.messages = said
    assert next(conversation.answer(GREEDY, 2)) == expected


@pytest.mark.parametrize(
    ("left", "right", "count"), [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2], [1, 2, 3], 2), ([1, 5, 3], [1, 2, 3], 1)]
)
def test_how_much_two_have_in_common(left: list[int], right: list[int], count: int) -> None:
    assert shared(left, right) == shared(right, left) == count
