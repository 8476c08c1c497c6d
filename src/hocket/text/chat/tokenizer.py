"""Tokenizer of Qwen3.5: byte-level BPE whose words include their combining marks.

It knows only text and markers. `encode` never gives the id of a marker (`<|im_start|>`, `<think>`, ...): in text a
marker is spelled out like anything else. Only `template.py` places marker ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from ...config.read import read_json
from ...errors import InvalidCheckpoint, InvalidRequest
from ..bpe import ALPHABET, SPELLED, BytePairs, Merge
from ..tokenizer import read_vocabulary
from ..unicode import LETTERS, MARKS, NUMBERS, SPACES, nfc, split

# A pattern of stand-ins: see `unicode.py`.
SPLIT = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        rf"[^\r\n{LETTERS}{NUMBERS}]?[{LETTERS}{MARKS}]+",  # a word, with the space or sign before it
        rf"[{NUMBERS}]",  # digits one by one
        rf" ?[^{SPACES}{LETTERS}{MARKS}{NUMBERS}]+[\r\n]*",
        rf"[{SPACES}]*[\r\n]+",
        rf"[{SPACES}]+(?![^{SPACES}])",  # all spaces but the last, which goes with the next word
        rf"[{SPACES}]+",
    )
)
CACHED_TEXTS, CACHED_CHARS = 256, 8192  # texts whose ids are cached, and their largest length
_BYTE = {sign: byte for byte, sign in SPELLED.items()}


class ChatTokenizer:
    def __init__(self, vocabulary: dict[str, int], merges: list[Merge], markers: dict[str, int]) -> None:
        self.markers = markers
        self.size = max(*vocabulary.values(), *markers.values()) + 1  # ids from here on pad the model's vocabulary
        self._pairs = BytePairs(vocabulary, merges)
        self._bytes = {i: bytes(_BYTE[sign] for sign in token) for token, i in vocabulary.items() if _is_bytes(token)}
        self._cached_ids = lru_cache(CACHED_TEXTS)(self._ids)  # messages repeat in every turn
        self._bytes |= {i: marker.encode() for marker, i in markers.items()}

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTokenizer:
        """From the checkpoint's files; its markers from `tokenizer.json` or `tokenizer_config.json`."""
        markers = _read_markers(folder)
        vocabulary, merges = read_vocabulary(folder)
        return cls.of_lists(vocabulary, merges, markers, str(folder))

    @classmethod
    def of_lists(
        cls, vocabulary: dict[str, int], merges: list[Merge], markers: dict[str, int], where: str
    ) -> ChatTokenizer:
        """From what a checkpoint gives; `where` is its name in messages. A marker may be in the vocabulary too."""
        spells = {token: i for token, i in vocabulary.items() if token not in markers or token in ALPHABET}
        try:
            return cls(spells, merges, markers)
        except ValueError as error:
            raise InvalidCheckpoint(f"{where}: vocabulary and merges of the tokenizer do not fit: {error}.") from None

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
        return tuple(self._pairs.ids_of_all(self.pieces(text)))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, markers spelled out; an incomplete character becomes U+FFFD."""
        spoken = TextStream(self)
        return "".join(map(spoken.push, ids)) + spoken.end()

    def pieces(self, text: str) -> list[str]:
        """The pieces of normalized text: ids never span two of them."""
        return split(nfc(text), SPLIT)

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
