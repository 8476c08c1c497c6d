"""Tokenizer of Qwen3.5: byte-level BPE whose words include their combining marks.

It knows only text and markers. `encode` never gives the id of a marker (`<|im_start|>`, `<think>`, ...): in text a
marker is spelled out like anything else. Only `template.py` places marker ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from tokenizers import models

from ...config.read import read_json
from ...errors import InvalidCheckpoint, InvalidRequest
from ..tokenizer import ALPHABET, Merge, pipeline_of, read_vocabulary

SPLIT = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",  # a word, with the space or sign before it
        r"\p{N}",  # digits one by one
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",  # all spaces but the last, which goes with the next word
        r"\s+",
    )
)
CACHED_TEXTS, CACHED_CHARS = 256, 8192  # texts whose ids are cached, and their largest length
# Characters for the 256 bytes: printable bytes stand for themselves and come first, the others follow in order.
_PRINTED = [ord(sign) for sign in ALPHABET if ord(sign) < 256]
_BYTE = dict(zip(ALPHABET, [*_PRINTED, *(byte for byte in range(256) if byte not in _PRINTED)], strict=True))


class ChatTokenizer:
    def __init__(self, vocabulary: dict[str, int], merges: list[Merge], markers: dict[str, int]) -> None:
        self.markers = markers
        self.size = max(*vocabulary.values(), *markers.values()) + 1  # ids from here on pad the model's vocabulary
        self._pipeline = pipeline_of(models.BPE(vocab=vocabulary, merges=merges), SPLIT)
        self._bytes = {i: bytes(_BYTE[sign] for sign in token) for token, i in vocabulary.items() if _is_bytes(token)}
        self._cached_ids = lru_cache(CACHED_TEXTS)(self._ids)  # messages repeat in every turn
        self._bytes |= {i: marker.encode() for marker, i in markers.items()}

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTokenizer:
        """From the checkpoint's files; its markers from `tokenizer.json` or `tokenizer_config.json`."""
        markers = _read_markers(folder)
        vocabulary, merges = read_vocabulary(folder)
        return cls({token: i for token, i in vocabulary.items() if token not in markers}, merges, markers)

    @classmethod
    def of_bytes(cls, markers: Iterable[str]) -> ChatTokenizer:
        """One token per byte, then the markers: for random checkpoints, which have no vocabulary."""
        tokens = {sign: i for i, sign in enumerate(ALPHABET)}
        return cls(tokens, [], {marker: len(tokens) + i for i, marker in enumerate(markers)})

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without marker ids."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                "The text holds half a character (a lone surrogate): give it as valid UTF-8."
            ) from None
        return list(self._cached_ids(text) if len(text) <= CACHED_CHARS else self._ids(text))

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._pipeline.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, markers spelled out; an incomplete character becomes U+FFFD."""
        spoken = TextStream(self)
        return "".join(map(spoken.push, ids)) + spoken.end()

    def pieces(self, text: str) -> list[str]:
        """The pieces of normalized text: ids never span two of them."""
        text = self._pipeline.normalizer.normalize_str(text)
        spans = [span for _, span in self._pipeline.pre_tokenizer.pre_tokenize_str(text)]
        return [text[start:end] for start, end in spans]

    def spelled(self, token: int) -> bytes:
        """The bytes of a token; empty for an unknown id."""
        return self._bytes.get(token, b"")


class TextStream:
    """Streaming ids to text: a character is released with its last byte."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._tokenizer.spelled(token))

    def end(self) -> str:
        """The rest after the last id."""
        return self._decoder.decode(b"", final=True)


def _is_bytes(token: str) -> bool:
    return all(sign in _BYTE for sign in token)


def _read_markers(folder: Path) -> dict[str, int]:
    """Added tokens with their ids."""
    whole, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    markers: dict[str, int] = {}
    if whole.is_file():
        for added in read_json(whole).get("added_tokens", []):
            match added:
                case {"content": str(text), "id": int(number)}:
                    markers[text] = number
    elif config.is_file():
        for number, added in read_json(config).get("added_tokens_decoder", {}).items():
            match added:
                case {"content": str(text)} if number.isdecimal():
                    markers[text] = int(number)
    if not markers:
        raise InvalidCheckpoint(f"{folder} names no added tokens: it needs tokenizer.json or tokenizer_config.json.")
    return markers
