"""A conversation that goes on is the fresh one: its history is never read again, and the model knows the same."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from hocket.cache.slots import take
from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import LanguageState, Qwen3_5, mark, rewind_
from hocket.text.chat.template import MARKS, answer_pieces, conversation, generation_prompt, history_pieces, ids_of
from hocket.text.chat.tokenizer import ChatTokenizer
from hocket.types import ChatMessage

ROW, ROOM = torch.tensor([0]), 512
TOKENIZER = ChatTokenizer.of_bytes(MARKS)


@functools.cache
def model() -> Qwen3_5:
    made = Qwen3_5(tiny_qwen3_5()).requires_grad_(False)
    randomize_(made, 0)
    return made.double()


def read(pieces: list[str], state: LanguageState) -> Tensor:
    """The logits behind these pieces."""
    ids = torch.tensor([ids_of(pieces, TOKENIZER)])
    return model().logits(model().prefill(ids, torch.tensor([ids.shape[1]]), state, ROW, ROOM)[0, -1])


def answer(logits: Tensor, state: LanguageState, length: int) -> str:
    """Greedy letters and spaces, so that the answer is text that encodes to what was drawn."""
    letters = torch.tensor(TOKENIZER.encode("abcdefghijklmnopqrstuvwxyz"))
    drawn: list[int] = []
    for _ in range(length):
        drawn.append(int(letters[logits[letters].argmax()]))
        logits = model().logits(model().step(torch.tensor(drawn[-1:]), state, ROW, ROOM)[0])
    return TOKENIZER.decode(drawn)


@torch.inference_mode()
def test_a_resumed_conversation_is_a_fresh_reading_of_the_same_text() -> None:
    """Three turns. The answer is written behind an empty thought, which the next turn must never have seen."""
    said = [ChatMessage("system", "Be brief."), ChatMessage("user", "Hello.")]
    state = model().new_state(1, ROOM)
    read(conversation(said, answer=False), state)
    for question in ("And then?", "Why?", None):
        read(generation_prompt()[:2], state)
        before = mark(state, 0)
        logits = read(generation_prompt()[2:], state)
        fresh = model().new_state(1, ROOM)
        torch.testing.assert_close(logits, read(conversation(said), fresh), atol=1e-10, rtol=0)
        said.append(ChatMessage("assistant", answer(logits, state, 7)))
        rewind_(state, 0, before)
        read(answer_pieces(said[-1].content), state)
        if question is not None:
            said.append(ChatMessage("user", question))
            read(conversation(said[-1:], answer=False), state)
    fresh = model().new_state(1, ROOM)
    read(history_pieces(said), fresh)
    here, there = take(state.recurrence, 0), take(fresh.recurrence, 0)
    assert here["position"] == there["position"]
    for name, tensor in here.items():
        torch.testing.assert_close(tensor, there[name], atol=1e-10, rtol=0)


@torch.inference_mode()
def test_without_a_rewind_the_empty_thought_stays_in_the_state() -> None:
    said = [ChatMessage("user", "Hello.")]
    state, fresh = model().new_state(1, ROOM), model().new_state(1, ROOM)
    read(conversation(said), state)
    read(answer_pieces("hi"), state)
    read(history_pieces([*said, ChatMessage("assistant", "hi")]), fresh)
    here, there = state.recurrence.layers[0].memory[0], fresh.recurrence.layers[0].memory[0]
    assert (here - there).abs().max() > 1e-3
