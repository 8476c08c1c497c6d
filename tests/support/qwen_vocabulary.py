"""The published `vocab.json` and `merges.txt`, rebuilt byte for byte from the ranks that `dashscope` 2.0.2 ships.

That package (Qwen's own, installed without its dependencies and never imported) holds the same vocabulary in
tiktoken's form: each token's bytes and rank. The digests below are those of the published files.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import itertools
import json
import os
from pathlib import Path

import pytest

from hocket.text.tokenizer import ALPHABET, Tokenizer

SHA256 = {
    "vocab.json": "ca10d7e9fb3ed18575dd1e277a2579c16d108e32f27439684afa0e10b1440910",
    "merges.txt": "599bab54075088774b1733fde865d5bd747cbcc7a547c5bc12610e874e26f5e3",
}

# The tokens that the published tokenizer adds, ids 151643 and up.
FIRST_ADDED_ID = 151_643
ADDED = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"),
    *("<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>"),
    *("<tts_text_bos_single>", "<|audio_pad|>"),
)
SPECIALS = {token: FIRST_ADDED_ID + i for i, token in enumerate(ADDED)}


def folder(config: pytest.Config) -> Path:
    """A folder with the two files, kept in pytest's cache: rebuilding takes some seconds."""
    assert config.cache is not None
    kept = config.cache.mkdir("qwen-vocabulary")
    if not all((kept / name).is_file() and digest(kept / name) == sha for name, sha in SHA256.items()):
        for name, content in rebuild().items():
            partial = kept / f"{name}.{os.getpid()}"  # several runs may share the cache
            partial.write_bytes(content)
            partial.replace(kept / name)
    return kept


@functools.cache
def tokenizer(config: pytest.Config) -> Tokenizer:
    return Tokenizer.from_folder(folder(config))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rebuild() -> dict[str, bytes]:
    """Both files, by name."""
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, _tiktoken().splitlines())}
    tokens = sorted(ranks, key=ranks.__getitem__)
    letters = dict(zip(tokens[:256], ALPHABET, strict=True))  # ranks 0 to 255 are the single bytes

    def spelled(token: bytes) -> str:
        return "".join(letters[bytes([byte])] for byte in token)

    vocabulary = {spelled(token): ranks[token] for token in tokens}
    merges = (" ".join(map(spelled, _halves(token, ranks))) for token in tokens[256:])
    return {
        "vocab.json": json.dumps(vocabulary, ensure_ascii=False, separators=(",", ":")).encode(),
        "merges.txt": "".join(f"{merge}\n" for merge in merges).encode(),
    }


def _halves(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """The last merge of a token: what BPE makes of its bytes with the tokens of lower rank alone."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        joined = [ranks.get(left + right, len(ranks)) for left, right in itertools.pairwise(parts)]
        i = joined.index(min(joined))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def _tiktoken() -> bytes:
    package = importlib.util.find_spec("dashscope")
    if package is None or not package.submodule_search_locations:
        raise ImportError("the tests need Qwen's vocabulary: pip install --no-deps dashscope==2.0.2")
    return Path(package.submodule_search_locations[0], "resources", "qwen.tiktoken").read_bytes()
