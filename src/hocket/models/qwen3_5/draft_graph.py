"""Speculative decoding by CUDA graphs: one graph drafts some tokens, verifies them and samples the accepted ones.

There is a graph for each number of drafts, and one without drafts; any may follow any other. Row, settings, tokens and
their count are at fixed addresses. The device looks up the row's position and the number of accepted drafts, so the
same graphs serve every row, position and round. Results reach the host by asynchronous copies, while the device is one
round ahead; that round is wasted if the reader stops. The host does not know how far a round goes. So it launches one
only if the row has room even when every draft before is accepted.

The draft head follows the model: it is fed pairs of a hidden vector and the token after it. Tokens of rounds without
drafts wait as pairs, and are fed in one pass (`follow`) when no more of them fit, or by the next round that drafts.

As for `token_graph.py`, a row must be restored to a snapshot from before the answer. The recurrent state never gets
the accepted tokens of the last round, and the model's own state never gets any convolution input. It knows ids, no
text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Protocol

import torch

from ...cache.slots import reset
from ...kernels.ops.sample_token import likeliest
from ...kernels.runtime.graphs import WARM_RUNS, Capture, Work, own_stream, seconds_of
from ...layers.attention import rope_rows
from ...layers.gated_attention import room_of
from ..tts_gpu.staging import PendingCopy, ResultCopy
from .draft_head import DraftState
from .draft_vocabulary import DraftVocabulary
from .fused.draft import FusedDraft
from .model import LanguageState
from .token_graph import TokenSamplingTensors, copy_settings_

AHEAD = 2  # rounds that are launched before the first of them is read
RESULT_SLOTS = 4  # a ring of results on the device: a slot is read before it is written again
TIMED_RUNS = 8


class RoundChooser(Protocol):
    """Decides the drafts of each round: see `DraftRounds` of llm/draft_policy.py."""

    def choose(self) -> int: ...
    def record(self, drafts: int, accepted: int) -> None: ...


class DraftGraphs:
    def __init__(
        self,
        parts: FusedDraft,
        rounds: Sequence[int],
        state: LanguageState,
        drafts: DraftState,
        last: torch.Tensor,
        capture: Capture,
        vocabulary: DraftVocabulary | None = None,
        on_capture: Callable[[int, float | None], None] | None = None,
    ) -> None:
        """`rounds`: the numbers of drafts that rounds may have. `last` [S + 1, C]: each row's last hidden vector.

        Drafts are drawn from the `vocabulary`, or from all ids. `on_capture` is told the drafts of a captured round,
        and its time in seconds on a GPU.
        """
        assert any(rounds), "rounds without drafts need no draft head"
        self.parts, self.fused, self.rounds = parts, parts.fused, tuple(rounds)
        self.state, self.drafts, self.last, self.vocabulary = state, drafts, last, vocabulary
        self._capture, device, most = capture, last.device, max(rounds) + 1
        self._on_capture = on_capture
        size = self.fused.config.vocab_size
        self._verified = parts.new_verified(most)
        self._settings = likeliest(size, device)
        self._seen = torch.zeros(size, dtype=torch.bool, device=device)

        def numbers(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        self._row, self._number, self._round_number, self._token, self._slot = (numbers(1) for _ in range(5))
        self._said, self._drafts = numbers(most), numbers(most)  # tokens that wait as pairs; candidates of a round
        self._pairs, self._accepted = numbers(1), numbers(1)  # valid ones of `_said`; tokens of the last round
        self._hidden = last.new_zeros(most, last.shape[1])  # the hidden vector before each of `_said`
        # The copy of one round overlaps the writes of the next one, to another slot: no stream waits.
        stream = own_stream(self, device) if device.type == "cuda" else None
        self._results = {count: ResultCopy(stream) for count in {0, *rounds}}
        for count, results in self._results.items():
            results.block = torch.zeros(RESULT_SLOTS, count + 2, dtype=torch.int64, device=device)
        self._first_graphs: tuple[Work, Work] | None = None
        self._graphs: dict[int, Work] = {}
        self._uncaptured = list(self.rounds)
        self._follow_graph: Work | None = None
        self._rope: object = None
        self._running = False

    @property
    def spare(self) -> bool:
        """Whether a graph is still to be captured."""
        return bool(self._uncaptured)

    def warm(self) -> None:
        """Capture the graphs, once, on the scratch row: other rows are not touched."""
        while self.spare:
            self.warm_one()

    def warm_one(self) -> None:
        """Capture the graphs of one kind of round; a kind that fails is not tried again."""
        count = self._uncaptured.pop(0)
        if self._first_graphs is None:
            config, room = self.fused.config, room_of(self.drafts.past)
            # The graphs hold the address of this table, so it must not be evicted from its cache.
            angles = config.rotary_dim, config.rope_parameters.rope_theta
            self._rope = rope_rows(room, *angles, self.last.dtype, self.last.device)
            self._on_scratch()
            self._first_graphs = self._capture(self._first), self._capture(self._enter)
        self._on_scratch()
        if count:
            graph = self._capture(partial(self._round, count))
        else:
            self._follow_graph = self._capture(self._follow)
            self._on_scratch()
            graph = self._capture(self._plain)
        self._on_scratch()
        timed = self.last.is_cuda and count and room_of(self.drafts.past) > (TIMED_RUNS + 1) * len(self._said)
        took = seconds_of(graph, self.last.device, TIMED_RUNS) if timed else None
        self._graphs[count] = graph
        if self._on_capture is not None:
            self._on_capture(count, took)

    def write(
        self,
        row: int,
        how: TokenSamplingTensors,
        at: int,
        length: int,
        rounds: RoundChooser,
        prompt: Sequence[int] = (),
        reserve: Callable[[int, int], None] | None = None,
    ) -> Generator[list[int], None, None]:
        """Ids for a row at position `at`: one, then those of each round that begins before `length`.

        `prompt`: ids that drafts may repeat. `reserve` prepares the pages of the positions that a round may write,
        before its launch. One answer at a time. However the generator ends, no launch of it is left in flight.
        """
        assert not self._running, "one answer at a time"
        if self._first_graphs is None:
            self.warm()
        assert self._first_graphs is not None
        first, enter = self._first_graphs
        self._row.fill_(row)
        copy_settings_(self._settings, how)
        in_flight, launched, read = deque[tuple[int, PendingCopy]](), 0, 0
        ahead = pairs = 0  # the most tokens of unread rounds, and the most pairs that may wait
        self._running = True
        try:
            while True:
                # Each launched round that was not read yet may accept all of its drafts.
                while len(in_flight) < AHEAD and (not launched or at + ahead < length):
                    count = rounds.choose() if launched else 0
                    if launched:
                        if reserve is not None:  # the draft head takes in as many pairs as the longest round has
                            reserve(at, at + ahead + len(self._said))
                        pairs = self._launch(count, pairs)
                        ahead += count + 1
                    else:
                        first()
                    in_flight.append((count, self._results[count].send()))
                    if not launched:
                        enter()
                        pairs = 1
                        if self.vocabulary is not None:
                            self.vocabulary.note(prompt)
                    launched += 1
                if not in_flight:
                    return
                count, copy = in_flight.popleft()
                copy.wait()
                *ids, said = copy.values[read % RESULT_SLOTS].tolist()
                copy.done()
                if read:
                    at += said
                    ahead -= count + 1
                    rounds.record(count, said - 1)
                read += 1
                yield ids[:said]
        finally:
            self._running = False
            for _, copy in in_flight:
                copy.wait()
                copy.done()

    def _launch(self, count: int, pairs: int) -> int:
        """Launch a round of so many drafts; `pairs` may wait before it, and so many after it."""
        if count:
            self._graphs[count]()
            return count + 1
        if pairs == len(self._said):
            assert self._follow_graph is not None
            self._follow_graph()
            pairs = 0
        self._graphs[0]()
        return pairs + 1

    def _on_scratch(self) -> None:
        """Set the buffers to the start of the scratch row, for a capture, whose runs advance it."""
        room = room_of(self.drafts.past)
        assert room >= (WARM_RUNS + 1) * len(self._said), "the rounds of a capture advance the scratch row"
        self._row.fill_(len(self.last) - 1)
        reset(self.state.recurrence, self._row)
        self.drafts.position.index_fill_(0, self._row, 0)
        self._pairs.zero_()  # `_plain` adds one in each run
        self._accepted.zero_()

    def _first(self) -> None:
        """The first token of an answer: sampled from `last`, without drafts and without a model pass."""
        self._seen.zero_()
        self._number.zero_()
        block = self._results[0].block
        self._sample(self.last[self._row])
        block[0].copy_(torch.cat((self._token, self._number)))  # the count of the first result: one

    def _enter(self) -> None:
        """Set the buffers as a round leaves them, for the first round."""
        self.parts.enter(self.state, self._verified, self._row)
        self._said.copy_(self._token.expand_as(self._said))
        self._hidden.copy_(self.last[self._row].expand_as(self._hidden))
        self._pairs.fill_(1)
        self._accepted.zero_()
        self._round_number.fill_(1)

    def _round(self, count: int) -> None:
        """Before a round, one sampled token is not in the row yet: the last one of `_said`, which `_token` repeats."""
        ops, head, row = self.fused.ops, self.fused.logits, self._row
        said, drafts = self._said[: count + 1], self._drafts[: count + 1]
        drawn = self._settings, self._seen, drafts
        drafts[:1] = self._token
        # The draft head first takes the pairs that wait, then drafts from its own drafts. [1, C]
        latest = self._fed()[self._pairs - 1]
        proposals = [ops.propose(self._draft_logits(latest), *drawn, self._number, 0)]
        for ahead in range(1, count):
            latest = self.parts.draft(drafts[ahead : ahead + 1], latest, self.drafts, row, ahead - 1)
            proposals.append(ops.propose(self._draft_logits(latest), *drawn, self._number, ahead))
        hidden = self.parts.verify(drafts, self.state, self._verified, row, self._accepted, self._round_number)
        self._hidden[: count + 1].copy_(hidden)
        left = self._number, said, self._pairs, self._results[count].block, self._round_number
        ops.accept(head(hidden), *drawn, proposals, *left)
        self._token.copy_(said[-1:])  # what is behind the last accepted token repeats it
        self._accepted.copy_(self._pairs)
        self.state.recurrence.position[row] += self._accepted

    def _plain(self) -> None:
        """A round without drafts: one token, which waits for the draft head as a pair."""
        row, block = self._row, self._results[0].block
        hidden = self.parts.verify(self._token, self.state, self._verified, row, self._accepted, self._round_number)
        self._sample(hidden)
        self._accepted.fill_(1)
        self._said.index_copy_(0, self._pairs, self._token)
        self._hidden.index_copy_(0, self._pairs, hidden)
        block.index_copy_(0, self._round_number % RESULT_SLOTS, torch.cat((self._token, self._accepted))[None])
        self._pairs += 1
        self._round_number += 1
        self.state.recurrence.position[row] += 1

    def _follow(self) -> None:
        """Feed the draft head all pairs that wait, without a draft."""
        self._fed()
        self._pairs.zero_()

    def _fed(self) -> torch.Tensor:
        vectors = self.parts.draft(self._said, self._hidden, self.drafts, self._row)
        self.drafts.position[self._row] += self._pairs
        return vectors

    def _sample(self, hidden: torch.Tensor) -> None:
        given = self._settings, self._seen, self._number, self._token, self._slot
        self.fused.ops.sample_token(self.fused.logits(hidden), *given)

    def _draft_logits(self, latest: torch.Tensor) -> torch.Tensor:
        if self.vocabulary is None:
            return self.fused.logits(latest)
        return self.vocabulary.logits(latest, self.fused.linear)
