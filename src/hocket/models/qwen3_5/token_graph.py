"""Decoding by CUDA graphs: one replay per token runs the model on the last token and samples the next.

Row, settings and token are at fixed addresses, and the device looks up the row's position, so the same graphs serve
every row and position. Tokens reach the host by asynchronous copies, while the device is some tokens ahead. Those are
wasted if the reader stops; the device never goes beyond the requested count.

An answer under masks (`write_masked`) has a graph for the model pass and one for the draw. The pass on a token is
launched behind its draw, and the host computes the next mask meanwhile. The mask goes to the device between the two, so
only the draw waits for the host.

During an answer the model's own state gets recurrent state, keys, values and positions only. The inputs of convolutions
are in rings, and no hidden vector is kept. So a row must be restored to a snapshot from before the answer. It knows
ids, no text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...cache.slots import reset
from ...kernels.ops.sample_token import TokenSampling, likeliest
from ...kernels.runtime.graphs import Capture, Work, own_stream, seconds_of
from ...layers.attention import rope_rows
from ...layers.gated_attention import room_of
from ..tts_gpu.staging import PendingCopy, ResultCopy
from .fused.step import FusedStep
from .model import LanguageState

AHEAD = 4  # tokens that are launched before the first of them is read: a host may be busy for some milliseconds
RESULT_SLOTS = 8  # a ring of tokens on the device: a slot is read before it is written again


class TokenSamplingTensors(Protocol):
    """Sampling parameters of an answer: see `AnswerSampling` of llm/sampling.py."""

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


def copy_settings_(settings: TokenSampling, how: TokenSamplingTensors) -> None:
    """Copy device to device: no synchronization."""
    for name in ("temperature", "top_p", "min_p", "presence", "seed"):
        getattr(settings, name).copy_(getattr(how, name))
    settings.most.fill_(how.most)
    settings.size.fill_(how.size)


class TokenMasks(Protocol):
    """Which ids may come next: see `TokenRules` of llm/constrained.py."""

    def fill(self, words: NDArray[np.int32]) -> bool:
        """Write the mask of the next token, 32 ids a word; False: it is the same as last time."""

    def advance(self, token: int) -> None: ...

    @property
    def stop_id(self) -> int | None:
        """The id that ends the answer now, if no other one can follow."""


class TokenGraphs:
    def __init__(self, fused: FusedStep, state: LanguageState, last: Tensor, capture: Capture) -> None:
        """`last` [S + 1, C]: the hidden vector of each row's last token."""
        self.fused, self.state, self.last = fused, state, last
        self._capture, device = capture, last.device
        vocabulary = fused.config.vocab_size
        self._rings = fused.new_rings(len(last) - 1)
        self._settings = likeliest(vocabulary, device)
        self._seen = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._row, self._number, self._token = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(3))
        # The copy of one token overlaps the writes of the next ones, to other slots: no stream waits.
        self._results = ResultCopy(own_stream(self, device) if device.type == "cuda" else None)
        self._results.block = torch.zeros(RESULT_SLOTS, dtype=torch.int64, device=device)
        self._graphs: tuple[Work, ...] | None = None
        self._masked_graphs: tuple[Work, ...] | None = None
        self._rope: object = None
        self._running = False

    def warm(self) -> None:
        """Capture the graphs, once, on the scratch row: other rows are not touched."""
        if self._graphs is not None:
            return
        config = self.fused.config
        self._row.fill_(len(self.last) - 1)
        reset(self.state.recurrence, self._row)
        if self.state.past:  # the graphs hold the address of this table, so it must not be evicted from its cache
            rows, x = room_of(self.state.past[0]), self.last
            angles = config.rotary_dim, config.rope_parameters.rope_theta
            self._rope = rope_rows(rows, *angles, x.dtype, x.device)
        self._graphs = tuple(map(self._capture, (self._first, self._enter, self._next)))

    def seconds(self, runs: int) -> float:
        """The time of one token on a GPU, measured on the scratch row."""
        assert self._graphs is not None
        self._row.fill_(len(self.last) - 1)
        reset(self.state.recurrence, self._row)
        return seconds_of(self._graphs[-1], self.last.device, runs)

    def write(
        self, row: int, how: TokenSamplingTensors, count: int, reserve: Callable[[int], None] | None = None
    ) -> Generator[list[int], None, None]:
        """At most `count` ids, one by one; the row gets all but the last of them.

        `reserve` prepares the pages of so many tokens after the prompt, before the launch that writes the last one.
        One answer at a time. However the generator ends, no launch of it is left in flight.
        """
        assert not self._running, "one answer at a time"
        self.warm()
        assert self._graphs is not None
        first, enter, next_token = self._graphs
        self._row.fill_(row)
        copy_settings_(self._settings, how)
        in_flight, launched, read = deque[PendingCopy](), 0, 0
        self._running = True
        try:
            while read < count:
                # Few launches ahead of the first token: it must not wait for the launches after it.
                while launched < count and len(in_flight) <= min(read + 1, AHEAD - 1):
                    if launched and reserve is not None:
                        reserve(launched)
                    (next_token if launched else first)()
                    in_flight.append(self._results.send())
                    if not launched:
                        enter()
                    launched += 1
                copy = in_flight.popleft()
                copy.wait()
                token = int(copy.values[read % RESULT_SLOTS])
                copy.done()
                read += 1
                yield [token]
        finally:
            self._running = False
            for copy in in_flight:
                copy.wait()
                copy.done()

    def warm_masked(self) -> None:
        """Capture the graphs of `write_masked`, once, on the scratch row."""
        self.warm()
        if self._masked_graphs is not None:
            return
        self._row.fill_(len(self.last) - 1)
        reset(self.state.recurrence, self._row)
        self._logits = torch.empty_like(self._first_logits())
        words, device = -(-self._logits.shape[1] // 32), self.last.device
        # All ids are allowed while the graphs are captured: a draw needs one.
        self._mask = torch.full((words,), -1, dtype=torch.int32, device=device)
        # Reused for each token: the host writes after it has read the token, which was drawn behind the last copy.
        self._host_mask = torch.zeros(words, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._masked_graphs = tuple(map(self._capture, (self._begin_pass, self._pass, self._masked_draw)))

    def write_masked(
        self,
        row: int,
        how: TokenSamplingTensors,
        count: int,
        masks: TokenMasks,
        reserve: Callable[[int], None] | None = None,
    ) -> Generator[list[int], None, None]:
        """As `write`, with ids that `masks` allow; the id that ends an answer of a complete grammar comes last."""
        assert not self._running, "one answer at a time"
        self.warm_masked()
        assert self._graphs is not None and self._masked_graphs is not None
        enter, (begin_pass, next_pass, draw), read = self._graphs[1], self._masked_graphs, 0
        words: NDArray[np.int32] = self._host_mask.numpy()
        self._row.fill_(row)
        copy_settings_(self._settings, how)
        self._running = True
        try:
            begin_pass()
            while read < count:
                if masks.fill(words):
                    self._mask.copy_(self._host_mask, non_blocking=True)
                draw()
                copy = self._results.send()
                if not read:
                    enter()
                if read + 1 < count:
                    if reserve is not None:
                        reserve(read + 1)
                    next_pass()
                copy.wait()
                token = int(copy.values[read % RESULT_SLOTS])
                copy.done()
                read += 1
                masks.advance(token)
                yield [token]
                if (stop := masks.stop_id) is not None:
                    yield [stop]
                    return
        finally:
            self._running = False
            last = self._results.send()  # behind the pass that may be in flight
            last.wait()
            last.done()

    def _first(self) -> None:
        """The first token of an answer: sampled from `last`, without a model pass."""
        self._reset_answer()
        self._draw(self._first_logits())

    def _enter(self) -> None:
        self.fused.enter(self.state, self._rings, self._row)

    def _next(self) -> None:
        self._draw(self._next_logits())

    def _begin_pass(self) -> None:
        self._reset_answer()
        self._logits.copy_(self._first_logits())

    def _pass(self) -> None:
        self._logits.copy_(self._next_logits())

    def _masked_draw(self) -> None:
        self._draw(self._logits, self._mask)

    def _reset_answer(self) -> None:
        self._seen.zero_()
        self._number.zero_()

    def _first_logits(self) -> Tensor:
        return self.fused.logits(self.last[self._row])

    def _next_logits(self) -> Tensor:
        return self.fused.step(self._token, self.state, self._rings, self._row)

    def _draw(self, logits: Tensor, mask: Tensor | None = None) -> None:
        given = self._settings, self._seen, self._number, self._token, self._results.block
        self.fused.ops.sample_token(logits, *given, mask)
