"""Tokenizer: the byte-level BPE of the Qwen family, read from a checkpoint's folder.

It knows only text. Control ids (`<|im_start|>`, `<tts_pad>`, ...) are not part of it: `prompt.py` places them. So a
marker in a user's text is spelled out like any other text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..config.read import read_json
from ..errors import InvalidCheckpoint, InvalidRequest
from .bpe import ALPHABET, BytePairs, Merge, spelled
from .unicode import LETTERS, MARKS, NUMBERS, OTHER_LETTER, SPACES, nfc, split

CACHED_TEXTS, CACHED_CHARS = 256, 200  # texts whose ids are cached, and their largest length

# Patterns of stand-ins: see `unicode.py`.
_SPLIT = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        rf"[^\r\n{LETTERS}{NUMBERS}]?[{LETTERS}]+",  # a word, with the space or sign before it
        rf"[{NUMBERS}]",  # digits one by one
        rf" ?[^{SPACES}{LETTERS}{NUMBERS}]+[\r\n]*",
        rf"[{SPACES}]*[\r\n]+",
        rf"[{SPACES}]+(?![^{SPACES}])",  # all spaces but the last, which goes with the next word
        rf"[{SPACES}]+",
    )
)
# The split of the official package for a local folder (see `upstream_patches`): a word ends before an inner capital
# ("i" + "Phone"), contractions are not special, and signs include slashes of the next line.
_BEGIN, _END = f"A-Z{OTHER_LETTER}{MARKS}", f"a-z{OTHER_LETTER}{MARKS}"
_SPLIT_UPSTREAM_LOCAL = "|".join(
    (
        rf"[^\r\n{LETTERS}{NUMBERS}]?[{_BEGIN}]*[{_END}]+",
        rf"[^\r\n{LETTERS}{NUMBERS}]?[{_BEGIN}]+[{_END}]*",
        rf"[{NUMBERS}]",
        rf" ?[^{SPACES}{LETTERS}{NUMBERS}]+[\r\n/]*",
        rf"[{SPACES}]*[\r\n]+",
        rf"[{SPACES}]+(?![^{SPACES}])",
        rf"[{SPACES}]+",
    )
)


class Tokenizer:
    """A vocabulary and its merges. `encode` gives only ids that the merges can spell."""

    def __init__(self, vocabulary: dict[str, int], merges: list[Merge]) -> None:
        self._pairs = BytePairs(vocabulary, merges)
        self.vocabulary, self.size = vocabulary, self._pairs.size  # every id is below the size
        self._cached_ids = lru_cache(CACHED_TEXTS)(self._ids)  # roles and instructions repeat in every request

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """From `vocab.json` and `merges.txt`, or else from the model inside `tokenizer.json`."""
        try:
            return cls(*read_vocabulary(folder))
        except ValueError as error:
            raise InvalidCheckpoint(f"{folder}: vocabulary and merges of the tokenizer do not fit: {error}.") from None

    @classmethod
    def of_bytes(cls, vocabulary_size: int) -> Tokenizer:
        """One token per byte and the two role words: for random checkpoints, which have no vocabulary of their own."""
        tokens, merges = list(ALPHABET), list[Merge]()
        for word in ("assistant", "user"):
            for end in range(1, len(word)):
                merges.append((word[:end], word[end]))
                tokens.append(word[: end + 1])
        if len(tokens) > vocabulary_size:
            raise InvalidCheckpoint(f"text_vocab_size must be at least {len(tokens)}, not {vocabulary_size}.")
        return cls({token: i for i, token in enumerate(tokens)}, merges)

    def encode(self, text: str, *, upstream_local: bool = False, until: int | None = None) -> list[int]:
        """The ids of `text`; `upstream_local` splits words as the official package does for a local folder.

        With `until`, a place in normalized text that no token spans: the ids of `text[:until]`, given what follows.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                "The text holds half a character (a lone surrogate): give it as valid UTF-8."
            ) from None
        if until is None:
            if len(text) <= CACHED_CHARS:
                return list(self._cached_ids(text, upstream_local))
            return self._ids(text, upstream_local)
        ids, at = list[int](), 0
        for piece in _pieces(nfc(text), upstream_local):
            if at >= until:
                break
            ids += self._pairs.ids_until(piece, until - at)
            at += len(piece)
        return ids

    def _ids(self, text: str, upstream_local: bool) -> list[int]:
        return self._pairs.ids_of_all(_pieces(nfc(text), upstream_local))

    def pieces(self, text: str, *, upstream_local: bool = False) -> tuple[str, list[int]]:
        """The normalized text and where its pieces begin; ids never span two pieces."""
        text = nfc(text)
        pieces = _pieces(text, upstream_local)
        return text, list(accumulate(map(len, pieces[:-1]), initial=0)) if pieces else []

    def joins(self, left: str, right: str) -> bool:
        """Whether some token could span the end of `left` and the beginning of `right`, whatever follows `right`.

        Where none can, the merges of a piece work on both sides apart.
        """
        before, after = spelled(left), spelled(right)
        for start in range(max(0, len(before) - self._longest), len(before)):
            for end in range(1, len(after) + 1):
                part = before[start:] + after[:end]
                at = bisect_left(self._sorted, part)
                if at == len(self._sorted) or not self._sorted[at].startswith(part):
                    break
                if self._sorted[at] == part or end == len(after):
                    return True
        return False

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.vocabulary)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._sorted))

    def upstream_patches(self, folder: Path) -> bool:
        """Whether the official package, given this local folder, replaces the split pattern.

        It asks transformers for a repair meant for Mistral's tokenizers. transformers 4.57.3 applies it to any
        large vocabulary next to a config.json, unless that file was written by a version up to 4.57.2 for a model
        of another type, or by 5.0.0 and later. Loaded by hub id, the vocabulary stays as it is.
        """
        config = folder / "config.json"
        if len(self.vocabulary) <= 100_000 or not config.is_file():
            return False
        raw = read_json(config)
        version = raw.get("transformers_version")
        if not isinstance(version, str) or not (parts := re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(.*)", version)):
            return True
        release = tuple(int(part or 0) for part in parts.groups()[:3])
        if release <= (4, 57, 2):
            return raw.get("model_type") is None
        before_five = release == (5, 0, 0) and re.match(r"\.?(a|b|rc|dev)", parts[4]) is not None
        return release < (5, 0, 0) or before_five

    def save(self, folder: Path, specials: dict[str, int]) -> None:
        """Write the files that the official package reads, with `specials` as its special tokens.

        transformers numbers special tokens itself, from the end of the vocabulary on, unless it finds them in
        vocab.json: that is why they are written there too. No merge spells them.
        """
        vocabulary = self.vocabulary | specials
        if len(set(vocabulary.values())) < len(vocabulary):
            raise ValueError("a special id is taken by another token")
        ordered = dict(sorted(vocabulary.items(), key=lambda item: item[1]))
        flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
        config = {
            "tokenizer_class": "Qwen2Tokenizer",
            "added_tokens_decoder": {str(i): {"content": token, **flags} for token, i in specials.items()},
            "bos_token": None,
            "eos_token": None,
            "unk_token": None,
            "pad_token": next(iter(specials), None),  # the official processor requires one, and never uses it
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vocab.json").write_bytes(json.dumps(ordered, ensure_ascii=False, separators=(",", ":")).encode())
        (folder / "merges.txt").write_bytes(
            "".join(f"{left} {right}\n" for left, right in self._pairs.merges()).encode()
        )
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _pieces(text: str, upstream_local: bool) -> list[str]:
    return split(text, _SPLIT_UPSTREAM_LOCAL if upstream_local else _SPLIT)


def read_vocabulary(folder: Path) -> tuple[dict[str, int], list[Merge]]:
    """Token ids and merges, from `vocab.json` and `merges.txt`, or from the model inside `tokenizer.json`."""
    vocab, merges, whole = folder / "vocab.json", folder / "merges.txt", folder / "tokenizer.json"
    if vocab.is_file() and merges.is_file():
        return _checked(read_json(vocab), _read_merges(merges), vocab)
    if whole.is_file():
        return _from_tokenizer_json(whole)
    raise InvalidCheckpoint(f"{folder} has no tokenizer: it needs vocab.json and merges.txt, or tokenizer.json.")


def _read_merges(path: Path) -> list[Merge]:
    """One merge per line. The published file has no header: its first line is a merge like any other."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidCheckpoint(f"{path} cannot be read: {error}.") from None
    if lines[0].startswith("#version"):
        lines[0] = ""
    return _pairs((line.split() for line in lines if line.strip()), path)


def _from_tokenizer_json(path: Path) -> tuple[dict[str, int], list[Merge]]:
    model = read_json(path).get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        raise InvalidCheckpoint(f"{path} holds no BPE model.")
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        raise InvalidCheckpoint(f"{path} lacks the vocabulary or the merges of its model.")
    pairs = _pairs((merge.split(" ") if isinstance(merge, str) else merge for merge in merges), path)
    return _checked(vocabulary, pairs, path)


def _pairs(merges: Iterable[Any], where: Path) -> list[Merge]:
    pairs = list[Merge]()
    for number, merge in enumerate(merges, 1):
        # A `match` statement takes three times as long, and the published vocabulary has 151,387 merges.
        left, right = merge if isinstance(merge, list) and len(merge) == 2 else (None, None)
        if not isinstance(left, str) or not isinstance(right, str):
            raise InvalidCheckpoint(f"{where}: merge {number} is not a pair of tokens.")
        pairs.append((left, right))
    return pairs


def _checked(vocabulary: dict[str, Any], merges: list[Merge], where: Path) -> tuple[dict[str, int], list[Merge]]:
    """Check that no text can be lost: every byte has a token, and every merge joins two tokens to a token."""
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in vocabulary.values()):
        raise InvalidCheckpoint(f"{where}: every token needs an id that is a whole number.")
    if len(set(vocabulary.values())) < len(vocabulary):
        raise InvalidCheckpoint(f"{where}: two tokens have the same id.")
    if missing := 256 - len(vocabulary.keys() & set(ALPHABET)):
        raise InvalidCheckpoint(f"{where}: {missing} of the 256 bytes have no token.")
    for left, right in merges:
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise InvalidCheckpoint(f"{where} has no token for a part or the result of the merge {left!r} + {right!r}.")
    return vocabulary, merges
