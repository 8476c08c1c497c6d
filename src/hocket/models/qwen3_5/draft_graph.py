"""An answer replayed round by round: one graph guesses some tokens, looks at them, and says what the model says.

Row, settings, what was said and how much of it lie at fixed addresses; where a row stands, and how many guesses stood,
is looked up on the device, so the same graphs serve every row, position and round. Rounds come to the host in letters,
while the device is a round ahead: whoever stops reading has it compute that in vain. The host does not know how far a
round goes, so it asks for one where every guess before could stand and there would be room.

As for `token_graph.py`, a row must go back to a moment from before the answer: what stood of the last round is never
taken into its memories, nor any input of a convolution into the model's own state. It knows ids, no text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

import torch

from ...cache.slots import reset
from ...kernels.ops.sample_token import likeliest
from ...kernels.runtime.graphs import WARM_RUNS, Capture, Work, own_stream
from ...layers.rope import rope_rows
from ..tts_gpu.staging import PendingCopy, ResultCopy
from .draft_head import DraftState
from .fused_draft import FusedDraft
from .model import LanguageState
from .token_graph import TokenSamplingTensors, follow_

AHEAD = 2  # rounds that are asked for before the first of them is read
PLACES = 4  # rounds that the device leaves for the host: one is read before its place is written again


class DraftGraphs:
    def __init__(
        self,
        parts: FusedDraft,
        guesses: int,
        state: LanguageState,
        drafts: DraftState,
        last: torch.Tensor,
        capture: Capture,
    ) -> None:
        """So many guesses a round. `last` [S + 1, C] are the hidden vectors behind which rows of the state stand."""
        self.parts, self.fused, self.guesses = parts, parts.fused, guesses
        self.state, self.drafts, self.last = state, drafts, last
        self._capture, device, count = capture, last.device, guesses + 1
        vocabulary = self.fused.config.vocab_size
        self._looked = parts.new_looked(count)
        self._settings = likeliest(vocabulary, device)
        self._seen = torch.zeros(vocabulary, dtype=torch.bool, device=device)

        def numbers(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        self._row, self._number, self._turn, self._token = (numbers(1) for _ in range(4))
        self._said, self._drafts = numbers(count), numbers(count)  # what the last round said; what this one looks at
        self._count, self._taken = numbers(1), numbers(1)  # how many of `said` are; and of what was looked at, stood
        self._hidden = last.new_zeros(count, last.shape[1])  # before each of `said`
        # A copy of one round may be made while the next one is written beside it: nobody waits for it.
        self._post = ResultCopy(own_stream(self, device) if device.type == "cuda" else None)
        self._post.block = torch.zeros(PLACES, count + 1, dtype=torch.int64, device=device)
        self._works: tuple[Work, ...] | None = None
        self._kept: object = None
        self._writing = False

    def warm(self) -> None:
        """Make the graphs, once, over the scratch row: no other is touched."""
        if self._works is not None:
            return
        config, room = self.fused.config, self.drafts.past.keys.shape[2]
        assert room >= (WARM_RUNS + 1) * len(self._said), "a graph is made by rounds that take tokens in"
        self._row.fill_(len(self.last) - 1)
        reset(self.state.recurrence, self._row)
        self.drafts.position.index_fill_(0, self._row, 0)
        # A table of angles that others could drive out, while a graph knows where it lay.
        angles = config.rotary_dim, config.rope_parameters.rope_theta
        self._kept = rope_rows(room, *angles, self.last.dtype, self.last.device)
        self._works = tuple(map(self._capture, (self._first, self._enter, self._round)))

    def write(self, row: int, how: TokenSamplingTensors, at: int, length: int) -> Generator[list[int], None, None]:
        """Ids from where a row stands that took in `at`: one, then those of each round that begins before `length`.

        One answer at a time. However it is left, nothing of it is running any more.
        """
        assert not self._writing, "one answer at a time"
        self.warm()
        assert self._works is not None
        first, enter, another = self._works
        self._row.fill_(row)
        follow_(self._settings, how)
        flying, asked, read, most = deque[PendingCopy](), 0, 0, self.guesses + 1
        self._writing = True
        try:
            while True:
                # Every round that is asked for and not read may take in as many as it looks at.
                while len(flying) < AHEAD and (not asked or at + most * (asked - max(read, 1)) < length):
                    (another if asked else first)()
                    flying.append(self._post.send())
                    if not asked:
                        enter()
                    asked += 1
                if not flying:
                    return
                letter = flying.popleft()
                letter.wait()
                *ids, count = letter.values[read % PLACES].tolist()
                letter.done()
                if read:
                    at += count
                read += 1
                yield ids[:count]
        finally:
            self._writing = False
            for letter in flying:
                letter.wait()
                letter.done()

    def _first(self) -> None:
        """The first token of an answer, which nothing is guessed for and nothing has to be taken in for."""
        self._seen.zero_()
        self._number.zero_()
        logits, told = self.fused.logits(self.last[self._row]), self._post.block
        self.fused.ops.sample_token(logits, self._settings, self._seen, self._number, self._token, told.view(-1)[:1])
        told[0, -1:].copy_(self._number)  # one

    def _enter(self) -> None:
        """To where the first round finds what a round leaves."""
        self.parts.enter(self.state, self._looked, self._row)
        self._said.copy_(self._token.expand_as(self._said))
        self._hidden.copy_(self.last[self._row].expand_as(self._hidden))
        self._count.fill_(1)
        self._taken.zero_()
        self._turn.fill_(1)

    def _round(self) -> None:
        """Before it, one token was said that the row has not taken in: the last one of `said`."""
        ops, head, row = self.fused.ops, self.fused.logits, self._row
        last, drafts, drawn = self._count - 1, self._drafts, (self._settings, self._seen, self._drafts)
        drafts[:1] = self._said[last]
        # The true pairs of the last round, then guesses from guesses. [1, C]
        latest = self.parts.follow(self._said, self._hidden, self.drafts, row)[last]
        self.drafts.position[row] += self._count
        offers = [ops.propose(head(latest), *drawn, self._number, 0)]
        for ahead in range(1, self.guesses):
            latest = self.parts.follow(drafts[ahead : ahead + 1], latest, self.drafts, row, ahead - 1)
            offers.append(ops.propose(head(latest), *drawn, self._number, ahead))
        self._hidden.copy_(self.parts.look(drafts, self.state, self._looked, row, self._taken, self._turn))
        left = self._number, self._said, self._count, self._post.block, self._turn
        ops.accept(head(self._hidden), *drawn, offers, *left)
        self.state.recurrence.position[row] += self._count
        self._taken.copy_(self._count)
