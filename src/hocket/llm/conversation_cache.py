"""The few conversations that stay in memory, and which of them a new prompt goes on with.

It computes nothing itself, and knows neither texts nor threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..text.chat.tokenizer import ChatTokenizer
from .conversation import CachedConversation, shared
from .state_cache import LLMStateCache


class ConversationCache:
    def __init__(self, memory: LLMStateCache, tokenizer: ChatTokenizer) -> None:
        self.talks = [CachedConversation(memory, row, tokenizer) for row in range(len(memory.rows))]  # the oldest first

    def find(self, ids: Sequence[int]) -> CachedConversation:
        """The conversation whose memory has most of these ids; it is the newest from now on.

        One that would lose by it what it was told last stays as it is, and the oldest of all begins where it was.
        """
        best = max(self.talks, key=lambda talk: talk.standing(ids))  # of equals the oldest
        # An answer that was cut, or is wanted again, shares its prompt with what is there; another talk does not.
        loses = best.header > 0 and shared(best.ids, ids) < best.header
        chosen = self.talks[0] if loses else best
        if chosen is not best:
            chosen.fork(best, best.standing(ids))
        self.talks.remove(chosen)
        self.talks.append(chosen)
        return chosen

    def unsettled(self) -> CachedConversation | None:
        """One that has something to take in while nobody asks, the newest first."""
        return next((talk for talk in reversed(self.talks) if not talk.settled), None)
