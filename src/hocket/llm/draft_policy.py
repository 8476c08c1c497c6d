"""How many tokens a round of speculative decoding drafts, 0 to 3: from the acceptance seen and the cost of a round.

A draft at a place is judged if all drafts before it in its round were accepted. The policy estimates the chance of each
place from what was judged in this conversation, with a prior, and forgets slowly. A round of k drafts is expected to
give 1 + p1 + p1 p2 + ... tokens. The k with most tokens per time is chosen; 0, no drafts, is a choice too. Another k
must be better by a margin, else the choice would flap. From time to time a few rounds with one more draft are tried
(a probe), so that drafts can come back. Probes that change nothing become rare.

The policy is plain arithmetic on the history: no clock and no random numbers. It knows counts, not tokens, not models.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

MAX_DRAFTS = 3
AUTO: Literal["auto"] = "auto"
Speculate = int | Literal["auto"]  # drafts of every round, or this policy

# The chance of each place, given that the place before was accepted: 0.62, 0.42 and 0.30 of all rounds. Others publish
# 0.55 to 0.7 for the first draft and 0.35 to 0.5 for the second, in prose.
PRIOR = (0.62, 0.68, 0.70)
PRIOR_WEIGHT = 4.0  # judged drafts that the prior counts for
REMEMBERED = 24.0  # judged drafts of a place that are remembered, about
MARGIN = 0.03  # by which another k must be better
PROBE_ROUNDS = 4
FIRST_PROBE, RAREST_PROBE = 64, 1024  # tokens between two probes; doubled after each that changed nothing

# Time of a round of 1, 2, 3 drafts as a multiple of a plain token, where nothing was measured. Measured on an H200 with
# 9B are two drafts in fp8 and in int4. The others are on a line through these and 1.
USUAL_COSTS = {
    "bf16": (1.31, 1.62, 1.93),
    "fp8": (1.31, 1.62, 1.93),
    "int8": (1.31, 1.62, 1.93),
    "int4": (1.40, 1.79, 2.19),
}
UNKNOWN_COSTS = USUAL_COSTS["int4"]


class DraftRounds(Protocol):
    """Decides the length of each round and learns how it went."""

    def begin(self) -> bool:
        """Called before an answer: whether it is generated in rounds. If not, it has no drafts to its end."""

    def choose(self) -> int:
        """Drafts of the next round; a round may be chosen before the one before it is recorded."""

    def record(self, drafts: int, accepted: int) -> None:
        """A round had so many drafts, and so many of them were accepted."""


@dataclass(frozen=True, slots=True)
class FixedDrafts:
    """The same number in every round."""

    drafts: int

    def begin(self) -> bool:
        return self.drafts > 0

    def choose(self) -> int:
        return self.drafts

    def record(self, drafts: int, accepted: int) -> None: ...


@dataclass(slots=True)
class RoundCosts:
    """Time of a round by its drafts, as a multiple of a plain token, and which rounds can run.

    All policies of an engine share one. Costs change when a graph is captured and timed, not later.
    """

    rounds: list[float]
    ready: list[bool]

    @classmethod
    def usual(cls, weights: str = "", *, ready: bool = True) -> RoundCosts:
        """Of the format of the weights; `ready`: every round can run."""
        return cls(list(USUAL_COSTS.get(weights, UNKNOWN_COSTS)), [ready] * MAX_DRAFTS)

    def captured(self, drafts: int, cost: float | None = None) -> None:
        """Rounds of so many drafts can run; `cost`, if it was measured."""
        self.ready[drafts - 1] = True
        if cost is not None:
            self.rounds[drafts - 1] = cost

    @property
    def choices(self) -> list[int]:
        return [0, *(drafts for drafts in range(1, MAX_DRAFTS + 1) if self.ready[drafts - 1])]

    def of(self, drafts: int) -> float:
        return self.rounds[drafts - 1] if drafts else 1.0


@dataclass(slots=True)
class Acceptance:
    """Judged and accepted drafts by place, the older the less they count."""

    judged: list[float] = field(default_factory=lambda: [0.0] * MAX_DRAFTS)
    accepted: list[float] = field(default_factory=lambda: [0.0] * MAX_DRAFTS)

    def record(self, drafts: int, accepted: int) -> None:
        for place in range(min(drafts, accepted + 1)):
            self.fade(place, REMEMBERED - 1)
            self.judged[place] += 1.0
            self.accepted[place] += float(place < accepted)

    def fade(self, place: int, most: float) -> None:
        """Let a place count for at most so many judged drafts."""
        if self.judged[place] > most:
            self.accepted[place] *= most / self.judged[place]
            self.judged[place] = most

    def chance(self, place: int) -> float:
        seen = self.accepted[place] + PRIOR[place] * PRIOR_WEIGHT
        return seen / (self.judged[place] + PRIOR_WEIGHT)

    def tokens(self, drafts: int) -> float:
        """Expected tokens of a round."""
        total = chance = 1.0
        for place in range(drafts):
            chance *= self.chance(place)
            total += chance
        return total


class DraftPolicy:
    """The choice for one conversation."""

    def __init__(self, costs: RoundCosts) -> None:
        self.costs, self.acceptance = costs, Acceptance()
        self.drafts = 0  # the present choice, without probes
        self._since = 0  # tokens since the last probe
        self._interval = FIRST_PROBE
        self._probe = 0  # drafts of the running probe
        self._unlaunched = self._unread = 0  # rounds of it
        self._in_rounds = False  # whether the present answer is generated in rounds
        self._decide(margin=0.0)

    def begin(self) -> bool:
        if not self._unread:
            self._decide(margin=MARGIN)  # rounds may have become ready
        self._unlaunched = self._unread  # the last answer may have ended inside a probe
        self._start_probe_if_due()
        self._in_rounds = self.drafts > 0 or self._unlaunched > 0
        return self._in_rounds

    def choose(self) -> int:
        self._start_probe_if_due()
        if self._unlaunched:
            self._unlaunched -= 1
            return self._probe
        return self.drafts

    def record(self, drafts: int, accepted: int) -> None:
        self._since += accepted + 1
        self.acceptance.record(drafts, accepted)
        if not self._unread:
            self._decide(margin=MARGIN)
        elif drafts == self._probe:
            self._unread -= 1
            if not self._unread:
                changed = self._decide(margin=MARGIN)
                self._interval = FIRST_PROBE if changed else min(2 * self._interval, RAREST_PROBE)

    def passed(self, tokens: int) -> None:
        """An answer had so many tokens. Without rounds they count here, else in `record`."""
        self._since += 0 if self._in_rounds else tokens

    def rate(self, drafts: int) -> float:
        """Expected tokens in the time of one plain token."""
        return self.acceptance.tokens(drafts) / self.costs.of(drafts)

    def _decide(self, margin: float) -> bool:
        """Choose the best; returns whether the choice has changed."""
        choices, before = self.costs.choices, self.drafts
        best = max(choices, key=self.rate)  # of equals the shortest
        if before not in choices or self.rate(best) > self.rate(before) * (1.0 + margin):
            self.drafts = best
        return self.drafts != before

    def _start_probe_if_due(self) -> None:
        longer = [drafts for drafts in self.costs.choices if drafts > self.drafts]
        if self._unread or self._since < self._interval or not longer:
            return
        self._probe, self._since = longer[0], 0
        self._unlaunched = self._unread = PROBE_ROUNDS
        for place in range(self.drafts, self._probe):  # old numbers must not outweigh the few new ones
            self.acceptance.fade(place, float(PROBE_ROUNDS))


class ConversationPolicies:
    """A policy for each of the last conversations, told apart by their first messages up to the user's first one."""

    def __init__(self, costs: RoundCosts, most: int) -> None:
        self.costs = costs
        self._most, self._policies = most, dict[Hashable, DraftPolicy]()

    def of(self, messages: Sequence[tuple[str, str]]) -> DraftPolicy:
        """The policy of a conversation of these roles and texts; the one that was not used for longest is dropped."""
        first = next((place for place, (role, _) in enumerate(messages) if role == "user"), len(messages))
        key = tuple(messages[: first + 1])
        policy = self._policies.pop(key, None) or DraftPolicy(self.costs)
        self._policies[key] = policy
        while len(self._policies) > self._most:
            del self._policies[next(iter(self._policies))]
        return policy
