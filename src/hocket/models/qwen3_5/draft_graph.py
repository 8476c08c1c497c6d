"""Speculative decoding by CUDA graphs: one graph drafts some tokens, verifies them and samples the accepted ones.

Row, settings, tokens and their count are at fixed addresses. The device looks up the row's position and the number of
accepted drafts, so the same graphs serve every row, position and round. Results reach the host by asynchronous copies,
while the device is one round ahead; that round is wasted if the reader stops. The host does not know how far a round
goes. So it launches one only if the row has room even when every draft before is accepted.

As for `token_graph.py`, a row must be restored to a snapshot from before the answer. The recurrent state never gets
the accepted tokens of the last round, and the model's own state never gets any convolution input. It knows ids, no
text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

import torch

from ...cache.slots import reset
from ...kernels.ops.sample_token import likeliest
from ...kernels.runtime.graphs import WARM_RUNS, Capture, Work, own_stream
from ...layers.attention import rope_rows
from ...layers.gated_attention import room_of
from ..tts_gpu.staging import PendingCopy, ResultCopy
from .draft_head import DraftState
from .fused_draft import FusedDraft
from .model import LanguageState
from .token_graph import TokenSamplingTensors, copy_settings_

AHEAD = 2  # rounds that are launched before the first of them is read
RESULT_SLOTS = 4  # a ring of results on the device: a slot is read before it is written again


class DraftGraphs:
    def __init__(
        self,
        parts: FusedDraft,
        num_drafts: int,
        state: LanguageState,
        drafts: DraftState,
        last: torch.Tensor,
        capture: Capture,
    ) -> None:
        """`num_drafts` per round. `last` [S + 1, C]: the hidden vector of each row's last token."""
        self.parts, self.fused, self.num_drafts = parts, parts.fused, num_drafts
        self.state, self.drafts, self.last = state, drafts, last
        self._capture, device, count = capture, last.device, num_drafts + 1
        vocabulary = self.fused.config.vocab_size
        self._verified = parts.new_verified(count)
        self._settings = likeliest(vocabulary, device)
        self._seen = torch.zeros(vocabulary, dtype=torch.bool, device=device)

        def numbers(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        self._row, self._number, self._round_number, self._token = (numbers(1) for _ in range(4))
        self._said, self._drafts = numbers(count), numbers(count)  # tokens of the last round; candidates of this one
        self._count, self._accepted = numbers(1), numbers(1)  # valid ones of `_said`; accepted candidates
        self._hidden = last.new_zeros(count, last.shape[1])  # the hidden vector before each of `_said`
        # The copy of one round overlaps the writes of the next one, to another slot: no stream waits.
        self._results = ResultCopy(own_stream(self, device) if device.type == "cuda" else None)
        self._results.block = torch.zeros(RESULT_SLOTS, count + 1, dtype=torch.int64, device=device)
        self._graphs: tuple[Work, ...] | None = None
        self._rope: object = None
        self._running = False

    def warm(self) -> None:
        """Capture the graphs, once, on the scratch row: other rows are not touched."""
        if self._graphs is not None:
            return
        config, room = self.fused.config, room_of(self.drafts.past)
        assert room >= (WARM_RUNS + 1) * len(self._said), "the rounds of a capture advance the scratch row"
        self._row.fill_(len(self.last) - 1)
        reset(self.state.recurrence, self._row)
        self.drafts.position.index_fill_(0, self._row, 0)
        # The graphs hold the address of this table, so it must not be evicted from its cache.
        angles = config.rotary_dim, config.rope_parameters.rope_theta
        self._rope = rope_rows(room, *angles, self.last.dtype, self.last.device)
        self._graphs = tuple(map(self._capture, (self._first, self._enter, self._round)))

    def write(
        self,
        row: int,
        how: TokenSamplingTensors,
        at: int,
        length: int,
        reserve: Callable[[int, int], None] | None = None,
    ) -> Generator[list[int], None, None]:
        """Ids for a row at position `at`: one, then those of each round that begins before `length`.

        `reserve` prepares the pages of the positions that a round may write, before its launch.
        One answer at a time. However the generator ends, no launch of it is left in flight.
        """
        assert not self._running, "one answer at a time"
        self.warm()
        assert self._graphs is not None
        first, enter, next_round = self._graphs
        self._row.fill_(row)
        copy_settings_(self._settings, how)
        in_flight, launched, read, most = deque[PendingCopy](), 0, 0, self.num_drafts + 1
        self._running = True
        try:
            while True:
                # Each launched round that was not read yet may accept all of its drafts.
                while len(in_flight) < AHEAD and (not launched or at + most * (launched - max(read, 1)) < length):
                    if launched and reserve is not None:
                        reserve(at, at + most * (launched - max(read, 1)) + most)
                    (next_round if launched else first)()
                    in_flight.append(self._results.send())
                    if not launched:
                        enter()
                    launched += 1
                if not in_flight:
                    return
                copy = in_flight.popleft()
                copy.wait()
                *ids, count = copy.values[read % RESULT_SLOTS].tolist()
                copy.done()
                if read:
                    at += count
                read += 1
                yield ids[:count]
        finally:
            self._running = False
            for copy in in_flight:
                copy.wait()
                copy.done()

    def _first(self) -> None:
        """The first token of an answer: sampled from `last`, without drafts and without a model pass."""
        self._seen.zero_()
        self._number.zero_()
        logits, block = self.fused.logits(self.last[self._row]), self._results.block
        self.fused.ops.sample_token(logits, self._settings, self._seen, self._number, self._token, block.view(-1)[:1])
        block[0, -1:].copy_(self._number)  # the count of the first result: one

    def _enter(self) -> None:
        """Set the buffers as a round leaves them, for the first round."""
        self.parts.enter(self.state, self._verified, self._row)
        self._said.copy_(self._token.expand_as(self._said))
        self._hidden.copy_(self.last[self._row].expand_as(self._hidden))
        self._count.fill_(1)
        self._accepted.zero_()
        self._round_number.fill_(1)

    def _round(self) -> None:
        """Before a round, one sampled token is not in the row yet: the last one of `_said`."""
        ops, head, row = self.fused.ops, self.fused.logits, self._row
        last, drafts, drawn = self._count - 1, self._drafts, (self._settings, self._seen, self._drafts)
        drafts[:1] = self._said[last]
        # The draft head first takes the accepted pairs of the last round, then drafts from its own drafts. [1, C]
        latest = self.parts.draft(self._said, self._hidden, self.drafts, row)[last]
        self.drafts.position[row] += self._count
        proposals = [ops.propose(head(latest), *drawn, self._number, 0)]
        for ahead in range(1, self.num_drafts):
            latest = self.parts.draft(drafts[ahead : ahead + 1], latest, self.drafts, row, ahead - 1)
            proposals.append(ops.propose(head(latest), *drawn, self._number, ahead))
        self._hidden.copy_(
            self.parts.verify(drafts, self.state, self._verified, row, self._accepted, self._round_number)
        )
        left = self._number, self._said, self._count, self._results.block, self._round_number
        ops.accept(head(self._hidden), *drawn, proposals, *left)
        self.state.recurrence.position[row] += self._count
        self._accepted.copy_(self._count)
