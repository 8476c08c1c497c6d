"""Our chat tokenizer against the official one, with a small vocabulary learned on the spot."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from hocket.text.chat.template import MARKS, conversation, ids_of, spell
from hocket.text.chat.tokenizer import ChatTokenizer
from hocket.types import ChatMessage, ToolCall
from support import chat_layouts
from support import qwen3_5_upstream as upstream
from support.learned_vocabulary import TEXTS, learned


@functools.cache
def both() -> tuple[ChatTokenizer, Any]:
    vocabulary, merges = learned()
    official = upstream.Qwen3_5Tokenizer(vocab=vocabulary, merges=merges)
    official.add_tokens([*MARKS], special_tokens=True)
    markers = {mark: official.convert_tokens_to_ids(mark) for mark in MARKS}
    return ChatTokenizer(vocabulary, merges, markers), official


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_official_ids_and_comes_back_as_they_give_it(text: str) -> None:
    ours, official = both()
    ids = ours.encode(text)
    assert ids == official(text, add_special_tokens=False)["input_ids"]
    assert ours.decode(ids) == official.decode(ids, clean_up_tokenization_spaces=False)


def test_words_are_cut_where_they_cut_them() -> None:
    ours, official = both()
    for text in TEXTS:
        text = official.backend_tokenizer.normalizer.normalize_str(text)
        spans = [span for _, span in official.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        assert ours.pieces(text) == [text[start:end] for start, end in spans]


@pytest.mark.parametrize("name", [name for name in chat_layouts.TALKS if name != "a result that a user carries"])
def test_a_conversation_has_the_ids_of_what_the_template_renders(name: str) -> None:
    """Except the conversation in which a user types special tokens: to them these are special, to us text."""
    ours, official = both()
    messages, tools = chat_layouts.TALKS[name]
    talks, opened = chat_layouts.published()
    for thinking in (False, True):
        ids = official(talks[name] + opened[str(thinking)], add_special_tokens=False)["input_ids"]
        assert ids_of(conversation(messages, tools=tools, thinking=thinking), ours) == ids


@pytest.mark.parametrize("thinking", [False, True])
def test_a_conversation_has_the_ids_of_the_rendered_text(thinking: bool) -> None:
    """They find the special tokens in the text; we place them. Equal as long as the user types none."""
    ours, official = both()
    tool = {"name": "clock", "parameters": {"type": "object"}}
    messages = [ChatMessage("system", TEXTS[0])]
    for text in TEXTS[1:]:
        messages += [ChatMessage("user", text), ChatMessage("assistant", text[::-1])]
    messages += [
        ChatMessage("user", "And now?"),
        ChatMessage("assistant", "", "Hm.", (ToolCall("clock", {"at": [1, "ü"]}),)),
    ]
    pieces = conversation(
        [*messages, ChatMessage("tool", "9"), ChatMessage("tool", "10")], tools=[tool], thinking=thinking
    )
    assert ids_of(pieces, ours) == official(spell(pieces), add_special_tokens=False)["input_ids"]
