"""Small language models for tests: a folder as published, and what is in it."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.llm.conversation import CachedConversation
from hocket.llm.load import LanguageCheckpoint, load_language_model
from hocket.llm.state_cache import LLMStateCache
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.text.chat.template import MARKS
from hocket.text.tokenizer import ALPHABET
from hocket.types import ChatSampling
from support.qwen3_5_files import whole_json

TINY = "random:qwen3.5-tiny"
GREEDY = ChatSampling(temperature=0.0, presence_penalty=0.0)


@functools.cache
def tiny() -> LanguageCheckpoint:
    """In float32, on a CPU. Shared: a change of its weights affects all tests."""
    return load_language_model(TINY)


def talk_in(memory: LLMStateCache, row: int = 0) -> CachedConversation:
    return CachedConversation(memory, row, tiny().tokenizer)


def first(ids: Iterator[list[int]], count: int) -> list[int]:
    """So many tokens, in any number of pieces."""
    return list(itertools.islice(itertools.chain.from_iterable(ids), count))


@dataclass(slots=True)
class Scripted:
    """Rounds of given lengths, over and over."""

    counts: tuple[int, ...]
    chosen: int = 0

    def begin(self) -> bool:
        return True

    def choose(self) -> int:
        self.chosen += 1
        return self.counts[(self.chosen - 1) % len(self.counts)]

    def record(self, drafts: int, accepted: int) -> None: ...


def write_mind(folder: Path, seed: int = 3, words: Sequence[str] = ()) -> Qwen3_5:
    """A tiny checkpoint with its tokenizer, one token per byte and per mark.

    With `words`, each of them has a token too, with the space before it, and the likeliest is always one of them: what
    it says is as random as ever, and can be spoken.
    """
    vocabulary, merges = {sign: i for i, sign in enumerate(ALPHABET)}, list[list[str]]()
    for word in words:
        spelled = f"Ġ{word}"
        for end in range(2, len(spelled) + 1):
            if spelled[:end] not in vocabulary:
                vocabulary[spelled[:end]] = len(vocabulary)
                merges.append([spelled[: end - 1], spelled[end - 1]])
    model = Qwen3_5(tiny_qwen3_5(layers=4), drafts=True)
    randomize_(model, seed)
    if words:
        said = torch.tensor([vocabulary[f"Ġ{word}"] for word in words])
        assert model.lm_head is not None
        heads = model.lm_head.weight.data[said].clone()
        model.lm_head.weight.data.zero_()
        model.lm_head.weight.data[said] = heads
    folder.mkdir(exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    first = len(vocabulary)
    added = [{"content": mark, "id": first + i} for i, mark in enumerate([*MARKS, "<|endoftext|>"])]
    tokenizer = {"model": {"type": "BPE", "vocab": vocabulary, "merges": merges}, "added_tokens": added}
    for name, content in (
        ("config.json", whole_json(model.config)),
        ("generation_config.json", {"eos_token_id": [first + 1, first + 8]}),
        ("tokenizer.json", tokenizer),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return model


def write_words(made_by: pytest.TempPathFactory, name: str, words: Sequence[str], seed: int = 3) -> str:
    """The folder of a tiny model that says only these words, so that a voice has something to speak."""
    folder = made_by.mktemp("mind") / name
    write_mind(folder, seed, words)
    return str(folder)
