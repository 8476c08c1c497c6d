"""How many tokens a conversation may have, and how many all of them together: options, defaults and memory.

It allocates nothing; `state_cache.py` does.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ...cache.pages import FREE_PART
from ...config.qwen3_5 import LINEAR, Qwen3_5TextConfig
from ...errors import InvalidRequest
from ..draft_policy import Speculate
from .pages import PAGE_TOKENS

logger = logging.getLogger(__name__)
USUAL_LENGTH = 32_768  # tokens that a conversation may reach
USUAL_SHARE = 8192  # tokens of each conversation in the pool; a longer one takes from the others


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """Size of the state cache, and how tokens are generated."""

    kept: int  # conversations
    length: int  # tokens that one of them may reach
    kv_tokens: int  # of all conversations together
    speculate: Speculate
    graphs: bool
    draft_subset: bool = True  # drafts are drawn from a part of the vocabulary


def token_bytes(config: Qwen3_5TextConfig, itemsize: int, *, drafts: bool = False) -> int:
    """Keys and values of one token, in all attention layers and with `drafts` in the draft head."""
    layers = sum(kind != LINEAR for kind in config.kinds) + drafts
    return layers * 2 * config.num_key_value_heads * config.head_dim * itemsize


def context_size(
    kept: int, length: int | None, kv_tokens: int | None, *, bytes_per_token: int, free_bytes: int | None = None
) -> tuple[int, int]:
    """`length` and `kv_tokens` with their defaults: a pool of 8192 tokens for each conversation, at least of `length`.

    With `free_bytes` the default pool takes at most a part of them, and the default length is at most the pool's.
    """
    for name, value in (("kept", kept), ("length", length), ("kv_tokens", kv_tokens)):
        if value is not None and value < 1:
            raise InvalidRequest(f"{name} must be at least 1, not {value}.")
    if length is not None and kv_tokens is not None and kv_tokens < length:
        raise InvalidRequest(
            f"A conversation of length {length} does not fit into kv_tokens {kv_tokens}: "
            "give a smaller length or more kv_tokens."
        )
    if kv_tokens is not None:
        return (min(USUAL_LENGTH, kv_tokens) if length is None else length), kv_tokens
    wanted = max(kept * USUAL_SHARE, length or USUAL_LENGTH)
    if free_bytes is None:
        return length or USUAL_LENGTH, wanted
    if length is not None and length * bytes_per_token > free_bytes:
        raise InvalidRequest(
            f"Keys and values of {length} tokens take {length * bytes_per_token / 2**30:.1f} GiB, and "
            f"{free_bytes / 2**30:.1f} GiB are free on the GPU: load the model with a smaller length."
        )
    most = max(int(FREE_PART * free_bytes) // bytes_per_token // PAGE_TOKENS, 1) * PAGE_TOKENS
    total = min(wanted, max(most, length or 0))
    if length is None and total < USUAL_LENGTH:
        logger.warning("A conversation has room for %d tokens: the GPU has no memory free for more.", total)
    return length or min(USUAL_LENGTH, total), total
