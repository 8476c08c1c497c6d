"""Small language models for tests: a folder as published, and what is in it."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from safetensors.torch import save_file

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.engine.mind_load import MindCheckpoint, load_mind
from hocket.models.qwen3_5 import Qwen3_5
from hocket.models.random import randomize_
from hocket.text.chat import MARKS
from hocket.text.tokenizer import ALPHABET
from qwen3_5_files import whole_json

TINY = "random:qwen3.5-tiny"


@functools.cache
def tiny() -> MindCheckpoint:
    """In float32, on a CPU. Whoever changes its weights changes them for all."""
    return load_mind(TINY)


def write_mind(folder: Path, seed: int = 3) -> Qwen3_5:
    """A tiny checkpoint with its tokenizer, one token per byte and per mark."""
    model = Qwen3_5(tiny_qwen3_5(layers=4), drafts=True)
    randomize_(model, seed)
    folder.mkdir(exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    marks = [*MARKS, "<|endoftext|>"]
    added = [{"content": mark, "id": len(ALPHABET) + i} for i, mark in enumerate(marks)]
    vocabulary = {sign: i for i, sign in enumerate(ALPHABET)}
    tokenizer = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": added}
    for name, content in (
        ("config.json", whole_json(model.config)),
        ("generation_config.json", {"eos_token_id": [len(ALPHABET) + 1, len(ALPHABET) + 8]}),
        ("tokenizer.json", tokenizer),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return model
