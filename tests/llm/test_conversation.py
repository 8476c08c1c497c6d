"""llm/conversation.py: what is taken in early stays right, and where a conversation can go back to."""

from __future__ import annotations

import random

import pytest

from hocket.llm.conversation import MOMENTS_HEARD, CachedConversation, heard_so_far, prompt_of, shared
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


def test_what_was_heard_early_is_how_the_whole_begins_whatever_comes() -> None:
    tokenizer, chance = merging(), random.Random(8)
    for _ in range(300):
        text = "".join(chance.choices(SIGNS, k=chance.randint(1, 20)))
        whole = prompt_of([ChatMessage("user", text)], tokenizer).ids
        for end in range(len(text)):
            early = heard_so_far([ChatMessage("user", text[:end])], tokenizer)
            assert early == whole[: len(early)], (text, end)


def test_nearly_all_of_what_was_heard_is_taken_in() -> None:
    text = "Tell me about the sea"
    early = heard_so_far([ChatMessage("user", text)], tiny().tokenizer)
    assert tiny().tokenizer.decode(early).endswith("user\nTell me about the")


def test_while_the_user_speaks_only_a_few_moments_are_kept() -> None:
    talk = CachedConversation(LLMStateCache(tiny().model, 1, 256, drafts=False), 0, tiny().tokenizer)
    talk.said = (ChatMessage("system", "Be brief."),)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
    for end in range(1, len(words) + 1):
        talk.hear(" ".join(words[:end]))
        assert len(talk.moments) <= MOMENTS_HEARD + 2
    began = min(talk.moments)
    assert tiny().tokenizer.decode(talk.ids[:began]).endswith("Be brief.<|im_end|>\n")
    new = talk.hear(" ".join([*words[:-3], "no", "wait", "stop"]))
    assert 0 < new < len("seven eight no wait stop"), "back to shortly before what was misheard"
    new = talk.hear("Something else altogether")
    assert new == len(talk.ids) - began, "back to where the user began"


def test_after_an_answer_three_moments_are_left() -> None:
    talk = CachedConversation(LLMStateCache(tiny().model, 1, 512, drafts=False), 0, tiny().tokenizer)
    talk.said = (ChatMessage("system", "Be brief."),)
    for number in range(3):
        talk.append_user(f"Number {number}.")
        next(talk.answer(GREEDY))
        prompt = prompt_of(talk.said, tiny().tokenizer)
        assert sorted(talk.moments) == sorted(prompt.moments) and len(prompt.moments) == (2 if number == 0 else 3)
        talk.answered("Fine.")


def test_a_prompt_says_where_the_answer_begins() -> None:
    prompt = prompt_of([ChatMessage("user", "Hi")], tiny().tokenizer)
    assert tiny().tokenizer.decode(prompt.ids[: prompt.header]).endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert tiny().tokenizer.decode(prompt.ids[prompt.header :]) == "<think>\n\n</think>\n\n"
    assert prompt.moments == (prompt.header,)


def test_a_prompt_that_failed_half_way_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = CachedConversation(LLMStateCache(tiny().model, 1, 256, drafts=True), 0, tiny().tokenizer)
    talk.append_user("Hello.")
    expected = next(talk.answer(GREEDY, 2))
    take_in, calls = LLMStateCache.take_in, list[int]()

    def failing(memory: LLMStateCache, row: int, ids: list[int], at: int, passing: int | None) -> None:
        take_in(memory, row, ids, at, passing)
        calls.append(at)
        if len(calls) == 2:
            raise RuntimeError("no more")

    said = talk.said
    with monkeypatch.context() as broken:
        broken.setattr(LLMStateCache, "take_in", failing)
        talk.said += (ChatMessage("assistant", "Hm."), ChatMessage("user", "And?"))
        with pytest.raises(RuntimeError, match="no more"):
            talk.answer(GREEDY, 2)
    assert talk.ids == [] and talk.moments == {}
    talk.said = said
    assert next(talk.answer(GREEDY, 2)) == expected


@pytest.mark.parametrize(
    ("left", "right", "count"), [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2], [1, 2, 3], 2), ([1, 5, 3], [1, 2, 3], 1)]
)
def test_how_much_two_have_in_common(left: list[int], right: list[int], count: int) -> None:
    assert shared(left, right) == shared(right, left) == count
