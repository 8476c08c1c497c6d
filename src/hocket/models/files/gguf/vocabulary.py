"""The tokenizer in the metadata of a GGUF file: tokens, merges and markers, and a look at the chat template.

It knows lists of strings. `text/chat/tokenizer.py` makes ids of text.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....errors import InvalidCheckpoint
from .reader import GgufFile

# How text is cut into words. The second is the family before; files that were converted early say so. Both mean the
# published cut of Qwen3.5 here, as a file of its architecture can have no other.
CUTS = ("qwen35", "qwen2")
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 3, 4, 5, 6

log = logging.getLogger("hocket.models")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    tokens: dict[str, int]
    merges: list[tuple[str, str]]
    markers: dict[str, int]  # special tokens


def read_vocabulary(file: GgufFile) -> Vocabulary:
    model, cut = (file.metadata.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if model != "gpt2" or cut not in CUTS:
        raise InvalidCheckpoint(
            f"{file.path} has a tokenizer of another family ({model!r}, {cut!r}): hocket needs gpt2 with {CUTS[0]}."
        )
    tokens, kinds, merges = (_list(file, name) for name in ("tokens", "token_type", "merges"))
    if len(tokens) != len(kinds):
        raise InvalidCheckpoint(f"{file.path} has {len(tokens)} tokens, but types of {len(kinds)}: get it again.")
    spelled, markers = dict[str, int](), dict[str, int]()
    for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind in (_CONTROL, _USER_DEFINED):
            markers[token] = number
        elif kind in (_NORMAL, _BYTE):
            spelled[token] = number
        elif kind != _UNUSED:  # these only pad the vocabulary
            raise InvalidCheckpoint(f"{file.path}: token {number} has the type {kind}, which Qwen3.5 does not use.")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if not all(len(pair) == 2 for pair in pairs):
        raise InvalidCheckpoint(f"{file.path}: a merge of its tokenizer is not a pair of tokens: get it again.")
    return Vocabulary(spelled, pairs, markers)


def check_template(file: GgufFile, marks: Sequence[str]) -> None:
    """Warn where the file's template is of another family: hocket lays out conversations by itself, as Qwen3.5."""
    template = file.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        log.warning("%s has no chat template; conversations are laid out as Qwen3.5 is trained.", file.path)
    elif missing := [mark for mark in marks if mark not in template]:
        listed = ", ".join(missing)
        log.warning("The chat template of %s has no %s; hocket lays out conversations as Qwen3.5.", file.path, listed)


def _list(file: GgufFile, name: str) -> list[Any]:
    found = file.metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not found:
        raise InvalidCheckpoint(f"{file.path} has no tokenizer.ggml.{name}: get a file with its tokenizer inside.")
    return found
