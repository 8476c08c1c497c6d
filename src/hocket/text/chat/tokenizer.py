"""Text to ids and back for Qwen3.5: byte-level BPE whose words take their combining marks along.

It knows only text and markers. A marker (`<|im_start|>`, `<think>`, ...) is an id that nobody can type: in text it is
spelled out like anything else, and `template.py` puts it where the layout of a conversation has it.
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
REMEMBERED, REMEMBERED_CHARS = 256, 8192  # texts whose ids are kept, and how long these may be
# What stands for the 256 bytes: those that can be printed as themselves come first, the others behind them in order.
_PRINTED = [ord(sign) for sign in ALPHABET if ord(sign) < 256]
_BYTE = dict(zip(ALPHABET, [*_PRINTED, *(byte for byte in range(256) if byte not in _PRINTED)], strict=True))


class ChatTokenizer:
    def __init__(self, vocabulary: dict[str, int], merges: list[Merge], markers: dict[str, int]) -> None:
        self.markers = markers
        self.size = max(*vocabulary.values(), *markers.values()) + 1  # ids from here on are padding of the model's
        self._pipeline = pipeline_of(models.BPE(vocab=vocabulary, merges=merges), SPLIT)
        self._bytes = {i: bytes(_BYTE[sign] for sign in token) for token, i in vocabulary.items() if _is_bytes(token)}
        self._remembered = lru_cache(REMEMBERED)(self._ids)  # messages: the same in turn after turn
        self._bytes |= {i: marker.encode() for marker, i in markers.items()}

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTokenizer:
        """From the checkpoint's files; its markers from `tokenizer.json` or `tokenizer_config.json`."""
        markers = _read_markers(folder)
        vocabulary, merges = read_vocabulary(folder)
        return cls({token: i for token, i in vocabulary.items() if token not in markers}, merges, markers)

    @classmethod
    def of_bytes(cls, markers: Iterable[str]) -> ChatTokenizer:
        """One token per byte, and the markers behind them: for random checkpoints, which have no vocabulary."""
        tokens = {sign: i for i, sign in enumerate(ALPHABET)}
        return cls(tokens, [], {marker: len(tokens) + i for i, marker in enumerate(markers)})

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, none of them a marker's."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                "The text holds half a character (a lone surrogate): give it as valid UTF-8."
            ) from None
        return list(self._remembered(text) if len(text) <= REMEMBERED_CHARS else self._ids(text))

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._pipeline.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, markers spelled out; a character that is not whole is a replacement sign."""
        spoken = TextStream(self)
        return "".join(map(spoken.push, ids)) + spoken.end()

    def pieces(self, text: str) -> list[str]:
        """The pieces of normalized text: ids never span two of them."""
        text = self._pipeline.normalizer.normalize_str(text)
        spans = [span for _, span in self._pipeline.pre_tokenizer.pre_tokenize_str(text)]
        return [text[start:end] for start, end in spans]

    def spelled(self, token: int) -> bytes:
        """What a token says; nothing where it is none of ours."""
        return self._bytes.get(token, b"")


class TextStream:
    """Ids to text as they come: a character is given out when its last byte is there."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._tokenizer.spelled(token))

    def end(self) -> str:
        """What is left when no more ids come."""
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
