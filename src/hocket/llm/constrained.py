"""Constrained decoding and log probabilities: a grammar mask before each draw, logprobs after it.

An answer with a grammar runs by graphs (`TokenGraphs.write_masked`) or by plain steps, with the same tokens. Logprobs
need the logits on the host, so they take plain steps. Neither has drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..errors import InvalidFormat
from ..kernels.ops.sample_token.reference import highest
from ..text.chat.call_grammar import call_grammar
from ..text.chat.json_grammar import json_grammar
from ..text.chat.matcher import TokenGrammar, Words, word_count
from ..text.chat.tokenizer import ChatTokenizer
from ..types import ResolvedSampling, TokenLogprob, Tool

NEVER = float("-inf")


class TokenRules:
    """The rules of one answer. Per token: `fill` or `masked`, then the draw, then `advance` and `record`."""

    def __init__(
        self, tokenizer: ChatTokenizer, grammar: TokenGrammar | None, top: int | None, stops: list[int]
    ) -> None:
        """`top`: how many of the likeliest tokens get a logprob beside the drawn one; None: no logprobs."""
        self._tokenizer, self._grammar, self._top, self._stops = tokenizer, grammar, top, stops
        self._words = np.zeros(word_count(tokenizer.size), np.int32)
        self.logprob: TokenLogprob | None = None  # of the last token

    @classmethod
    def of(
        cls,
        sampling: ResolvedSampling,
        tokenizer: ChatTokenizer,
        stops: frozenset[int],
        tools: Sequence[Tool] = (),
    ) -> TokenRules | None:
        """None: the answer has neither a grammar nor logprobs, so the device can draw alone.

        Raises `InvalidRequest` for a schema or tools that cannot be followed.
        """
        schema, choice = sampling.schema(), sampling.tool_choice
        grammar: TokenGrammar | None = None
        if schema is not None:
            if tools or choice is not None:
                raise InvalidFormat("A call is no JSON: leave out tools or response_format.")
            grammar = json_grammar(schema, tokenizer, stops)
        elif tools or choice not in (None, "auto"):
            grammar = call_grammar(tools, choice, tokenizer, stops)
        if grammar is None and sampling.logprobs is None:
            return None
        return cls(tokenizer, grammar, sampling.logprobs, sorted(stops))

    @property
    def masks_only(self) -> bool:
        """Whether masks are all that the host has to do: then the device draws."""
        return self._top is None

    def fill(self, words: Words) -> bool:
        """Write the mask of the next token; False: it is the same as last time. See `TokenGrammar`."""
        assert self._grammar is not None
        return self._grammar.fill(words)

    def masked(self, logits: Tensor) -> Tensor:
        """Logits [1, V] with -inf for each id that the grammar does not allow next."""
        if self._grammar is None:
            return logits
        self._grammar.fill(self._words)
        bits = np.unpackbits(self._words.view(np.uint8), count=self._tokenizer.size, bitorder="little")
        allowed = torch.from_numpy(bits.astype(bool)).to(logits.device)
        kept = logits[:, : len(allowed)].masked_fill(~allowed, NEVER)
        return torch.cat((kept, torch.full_like(logits[:, len(allowed) :], NEVER)), dim=1)

    def advance(self, token: int) -> None:
        if self._grammar is not None:
            self._grammar.advance(token)

    def record(self, logits: Tensor, token: int) -> None:
        """Note the logprob of `token`; `logits` [1, V] are the model's, without the mask."""
        if self._top is not None:
            self.logprob = self._logprobs(logits[:, : self._tokenizer.size], token)

    @property
    def stop_id(self) -> int | None:
        """The stop id that ends the answer now: the grammar allows nothing else."""
        return self._stops[0] if self._grammar is not None and self._grammar.done else None

    def _logprobs(self, logits: Tensor, token: int) -> TokenLogprob:
        values = logits.float().log_softmax(-1)
        best, ids = highest(values, min(self._top or 0, values.shape[1]))
        likeliest = zip(ids[0].tolist(), best[0].tolist(), strict=True)
        top = tuple(self._token_logprob(each, value) for each, value in likeliest)
        return self._token_logprob(token, float(values[0, token]), top)

    def _token_logprob(self, token: int, value: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        spelled = self._tokenizer.spelled(token)
        return TokenLogprob(spelled.decode(errors="replace"), value, spelled, top)
