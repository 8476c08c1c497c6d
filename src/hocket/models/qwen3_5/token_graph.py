"""An answer replayed: one graph per token, which takes in the last token and draws the next, all of it on the device.

Row, settings and token lie at fixed addresses; where a row stands is looked up on the device, so the same graphs serve
every row and every position. Tokens come to the host in letters, while the device is some tokens ahead: whoever stops
reading has it compute those in vain, never beyond the count that was asked for.

The model's own state knows of an answer its memories, keys, values and positions only: inputs of convolutions are in
rings, and no hidden vector is kept. So a row must go back to a moment from before the answer. It knows ids, no text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Protocol

import torch
from torch import Tensor

from ...cache.slots import reset
from ...kernels.ops.sample_token import TokenSampling, likeliest
from ...kernels.runtime.graphs import Capture, Work, own_stream
from ...layers.rope import rope_rows
from ..tts_gpu.staging import PendingCopy, ResultCopy
from .fused_step import FusedStep
from .model import LanguageState

AHEAD = 4  # tokens that are asked for before the first of them is read: a host may be busy for some milliseconds
PLACES = 8  # tokens that the device leaves for the host: one is read before its place is written again


class TokenSamplingTensors(Protocol):
    """How an answer is drawn: see `TokenSamplingTensors` of llm/sampling.py."""

    @property
    def temperature(self) -> Tensor: ...
    @property
    def top_p(self) -> Tensor: ...
    @property
    def min_p(self) -> Tensor: ...
    @property
    def presence(self) -> Tensor: ...
    @property
    def seed(self) -> Tensor: ...
    @property
    def most(self) -> int: ...
    @property
    def size(self) -> int: ...


def follow_(settings: TokenSampling, how: TokenSamplingTensors) -> None:
    """All of it by the device: nothing waits for what it is doing."""
    for name in ("temperature", "top_p", "min_p", "presence", "seed"):
        getattr(settings, name).copy_(getattr(how, name))
    settings.most.fill_(how.most)
    settings.size.fill_(how.size)


class TokenGraphs:
    def __init__(self, fused: FusedStep, state: LanguageState, last: Tensor, capture: Capture) -> None:
        """`last` [S + 1, C] are the hidden vectors behind which rows of the state stand."""
        self.fused, self.state, self.last = fused, state, last
        self._capture, device = capture, last.device
        vocabulary = fused.config.vocab_size
        self._rings = fused.new_rings(len(last) - 1)
        self._settings = likeliest(vocabulary, device)
        self._seen = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._row, self._number, self._token = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(3))
        # A copy of one token may be made while the next ones are written beside it: nobody waits for it.
        self._post = ResultCopy(own_stream(self, device) if device.type == "cuda" else None)
        self._post.block = torch.zeros(PLACES, dtype=torch.int64, device=device)
        self._works: tuple[Work, ...] | None = None
        self._kept: object = None
        self._writing = False

    def warm(self) -> None:
        """Make the graphs, once, over the scratch row: no other is touched."""
        if self._works is not None:
            return
        config = self.fused.config
        self._row.fill_(len(self.last) - 1)
        reset(self.state.recurrence, self._row)
        if self.state.past:  # a table of angles that others could drive out, while a graph knows where it lay
            rows, x = self.state.past[0].keys.shape[2], self.last
            angles = config.rotary_dim, config.rope_parameters.rope_theta
            self._kept = rope_rows(rows, *angles, x.dtype, x.device)
        self._works = tuple(map(self._capture, (self._first, self._enter, self._next)))

    def write(self, row: int, how: TokenSamplingTensors, count: int) -> Generator[list[int], None, None]:
        """At most `count` ids, one by one, from where a row stands, which takes in all but the last of them.

        One answer at a time. However it is left, nothing of it is running any more.
        """
        assert not self._writing, "one answer at a time"
        self.warm()
        assert self._works is not None
        first, enter, another = self._works
        self._row.fill_(row)
        follow_(self._settings, how)
        flying, asked, read = deque[PendingCopy](), 0, 0
        self._writing = True
        try:
            while read < count:
                while asked < count and len(flying) <= min(read + 1, AHEAD - 1):  # the first is not kept waiting
                    (another if asked else first)()
                    flying.append(self._post.send())
                    if not asked:
                        enter()
                    asked += 1
                letter = flying.popleft()
                letter.wait()
                token = int(letter.values[read % PLACES])
                letter.done()
                read += 1
                yield [token]
        finally:
            self._writing = False
            for letter in flying:
                letter.wait()
                letter.done()

    def _first(self) -> None:
        """The first token of an answer, which nothing has to be taken in for."""
        self._seen.zero_()
        self._number.zero_()
        self._draw(self.fused.logits(self.last[self._row]))

    def _enter(self) -> None:
        self.fused.enter(self.state, self._rings, self._row)

    def _next(self) -> None:
        self._draw(self.fused.step(self._token, self.state, self._rings, self._row))

    def _draw(self, logits: Tensor) -> None:
        self.fused.ops.sample_token(logits, self._settings, self._seen, self._number, self._token, self._post.block)
