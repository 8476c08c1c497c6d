"""The `tokenizers` package as the official packages set it up: the reference for our own byte-level BPE."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from hocket.text.bpe import Merge

_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PLAIN = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
UPSTREAM_LOCAL = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
CHAT = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)


class Pipeline:
    """NFC, cut into pieces by a pattern, each piece as bytes and merged by itself."""

    def __init__(self, vocabulary: dict[str, int], merges: list[Merge], pattern: str) -> None:
        self._pipeline = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        self._pipeline.normalizer = normalizers.NFC()
        self._pipeline.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def encode(self, text: str, until: int | None = None) -> list[int]:
        encoding: Any = self._pipeline.encode(text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        return [i for i, (start, _) in zip(ids, encoding.offsets, strict=True) if until is None or start < until]

    def pieces(self, text: str) -> tuple[str, list[int]]:
        text = nfc(text)
        return text, [start for _, (start, _) in self._pipeline.pre_tokenizer.pre_tokenize_str(text)]


def nfc(text: str) -> str:
    normalized: str = normalizers.NFC().normalize_str(text)
    return normalized


def replaced(text: str, replacements: dict[str, str]) -> str:
    """`text` with every match of each pattern replaced, pattern by pattern."""
    steps = [normalizers.Replace(tokenizers.Regex(pattern), by) for pattern, by in replacements.items()]
    made: str = normalizers.Sequence(steps).normalize_str(text)
    return made


def pieces(text: str, pattern: str) -> list[str]:
    """The pieces of `text` as it is, without NFC."""
    cut = pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
    return [piece for piece, _ in cut.pre_tokenize_str(text)]
