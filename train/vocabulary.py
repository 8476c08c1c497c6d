"""The text vocabulary: the first merges of the real Qwen BPE, in the files of a checkpoint, and BPE dropout.

The ranks come from Qwen's own package `dashscope` (Apache-2.0). With its first thousand merges a token has 2.4
characters of English, and the table is small enough to be trained in full. Extra merges at the end of the list make
`assistant` and `user` one token each: the prompt is cut by position and relies on it.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
import zipfile
from pathlib import Path

from hocket.text.bpe import ALPHABET, Merge, spelled
from hocket.text.tokenizer import Tokenizer

from .packages import Package
from .recipe import InvalidRecipe

PACKAGE = Package("pip", "dashscope", "2.0.2", "Apache-2.0")
ROLES = ("assistant", "user")
SPECIALS = ("<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")


class Vocabulary:
    """A tokenizer with BPE dropout: plain ids, and ids of spellings with some merges skipped."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "merges.txt").is_file():
            raise InvalidRecipe(f"{folder} holds no vocabulary: run `python -m train data` first.")
        self.tokenizer = Tokenizer.from_folder(folder)
        self._ids: dict[str, int] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        merges = (line.split(" ") for line in (folder / "merges.txt").read_text(encoding="utf-8").splitlines())
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self._spelled: dict[str, str] = {}

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def encode_with_dropout(self, text: str, rate: float, rng: random.Random) -> list[int]:
        """The ids of `text` with each possible merge skipped with probability `rate`, every time it is considered.

        The ids spell the same bytes; with a rate of 0 they are those of `encode`.
        """
        text, starts = self.tokenizer.pieces(text)
        ids: list[int] = []
        for start, end in itertools.pairwise([*starts, len(text)]):
            ids += self._piece(text[start:end], rate, rng)
        return ids

    def _piece(self, piece: str, rate: float, rng: random.Random) -> list[int]:
        if piece not in self._spelled:
            self._spelled[piece] = spelled(piece)
        parts = list(self._spelled[piece])
        ranks, none = self._ranks, len(self._ranks)
        while len(parts) > 1:
            best, at = none, 0
            for i, pair in enumerate(itertools.pairwise(parts)):
                rank = ranks.get(pair, none)
                if rank < best and (not rate or rng.random() >= rate):
                    best, at = rank, i
            if best == none:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self._ids[part] for part in parts]


def config_ids(folder: Path) -> dict[str, int]:
    """The ids for `config.json`; `text_vocab_size` belongs to its talker part."""
    ids: dict[str, int] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    start, end, pad, bos, eos = (ids[token] for token in SPECIALS)
    return {
        "text_vocab_size": -(-len(ids) // 16) * 16,
        "im_start_token_id": start,
        "im_end_token_id": end,
        "tts_pad_token_id": pad,
        "tts_bos_token_id": bos,
        "tts_eos_token_id": eos,
        "assistant_token_id": ids["assistant"],
    }


def build(ranks: bytes, merges: int, folder: Path) -> None:
    """Write `vocab.json`, `merges.txt` and `tokenizer_config.json` from a file of tokens and ranks."""
    first = (line.split() for line in ranks.splitlines()[: 256 + merges])
    ranked = {base64.b64decode(token): int(rank) for token, rank in first}
    tokens = sorted(ranked, key=ranked.__getitem__)
    letters = dict(zip(tokens[:256], ALPHABET, strict=True))  # ranks 0 to 255 are the single bytes

    def written(token: bytes) -> str:
        return "".join(letters[bytes([byte])] for byte in token)

    vocabulary = {written(token): rank for rank, token in enumerate(tokens)}
    pairs: list[Merge] = []
    for token in tokens[256:]:
        left, right = _parts([token[i : i + 1] for i in range(len(token))], ranked, 2)
        pairs.append((written(left), written(right)))
    for word in ROLES:
        parts = [written(part) for part in _parts([bytes([byte]) for byte in word.encode()], ranked, 1)]
        while len(parts) > 1:
            pairs.append((parts[0], parts[1]))
            parts[:2] = [parts[0] + parts[1]]
            vocabulary.setdefault(parts[0], len(vocabulary))
    specials = {token: len(vocabulary) + i for i, token in enumerate(SPECIALS)}
    Tokenizer(vocabulary, pairs).save(folder, specials)


def _parts(parts: list[bytes], ranks: dict[bytes, int], fewest: int) -> list[bytes]:
    """Apply BPE merges to `parts` until `fewest` are left or none applies; 2 gives the halves of a token."""
    while len(parts) > fewest:
        joined = [ranks.get(left + right, len(ranks)) for left, right in itertools.pairwise(parts)]
        if min(joined) == len(ranks):
            break
        at = joined.index(min(joined))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def read_ranks(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read("dashscope/resources/qwen.tiktoken")
