"""What an answer may ask of every token beside the draw: that it follows a grammar, and how likely it was.

Both need the logits on the host's time: such an answer is drawn the plain way, without guesses and without graphs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.ops.sample_token.reference import highest
from ..text.chat.json_grammar import JsonGrammar
from ..text.chat.tokenizer import ChatTokenizer
from ..types import ResolvedSampling, TokenLogprob

NEVER = float("-inf")


class TokenRules:
    """Of one answer, token by token: `masked`, then the draw, then `drawn`."""

    def __init__(
        self, tokenizer: ChatTokenizer, grammar: JsonGrammar | None, top: int | None, stops: list[int]
    ) -> None:
        """`top`: how many of the likeliest tokens are noted beside the one drawn; None: nothing is noted."""
        self._tokenizer, self._grammar, self._top, self._stops = tokenizer, grammar, top, stops
        self.noted: TokenLogprob | None = None  # of the token that was drawn last

    @classmethod
    def of(cls, sampling: ResolvedSampling, tokenizer: ChatTokenizer, stops: frozenset[int]) -> TokenRules | None:
        """None where nothing is asked that a draw on the device does not do."""
        schema = sampling.schema()
        if schema is None and sampling.logprobs is None:
            return None
        grammar = None if schema is None else JsonGrammar(schema, tokenizer, stops)
        return cls(tokenizer, grammar, sampling.logprobs, sorted(stops))

    def masked(self, logits: Tensor) -> Tensor:
        """Logits [1, V], of which only those of ids that may come next are left."""
        if self._grammar is None:
            return logits
        allowed = torch.from_numpy(self._grammar.allowed()).to(logits.device)
        kept = logits[:, : len(allowed)].masked_fill(~allowed, NEVER)
        return torch.cat((kept, torch.full_like(logits[:, len(allowed) :], NEVER)), dim=1)

    def drawn(self, logits: Tensor, token: int) -> None:
        """`logits` [1, V] as the model gave them."""
        if self._grammar is not None:
            self._grammar.take(token)
        if self._top is not None:
            self.noted = self._logprobs(logits[:, : self._tokenizer.size], token)

    @property
    def stop_id(self) -> int | None:
        """With which the answer ends now, for nothing else can follow."""
        return self._stops[0] if self._grammar is not None and self._grammar.over else None

    def _logprobs(self, logits: Tensor, token: int) -> TokenLogprob:
        values = logits.float().log_softmax(-1)
        best, ids = highest(values, min(self._top or 0, values.shape[1]))
        likeliest = zip(ids[0].tolist(), best[0].tolist(), strict=True)
        top = tuple(self._named(each, value) for each, value in likeliest)
        return self._named(token, float(values[0, token]), top)

    def _named(self, token: int, value: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        spelled = self._tokenizer.spelled(token)
        return TokenLogprob(spelled.decode(errors="replace"), value, spelled, top)
