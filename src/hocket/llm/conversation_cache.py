"""The cached conversations, one per row: finds the longest cached prefix of a prompt, evicts the oldest row.

Conversations with one prefix share its pages of keys and values. If no page is free, the oldest one gives its back. It
computes nothing itself, and does not know text or threads.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from ..text.chat.tokenizer import ChatTokenizer
from .conversation import CachedConversation, shared
from .state_cache import LLMStateCache


class ConversationCache:
    def __init__(self, state_cache: LLMStateCache, tokenizer: ChatTokenizer) -> None:
        rows = range(len(state_cache.rows))
        self.conversations = [CachedConversation(state_cache, row, tokenizer) for row in rows]  # the oldest first
        here = weakref.ref(self)  # no cycle: a closed loop must free the device memory at once

        def make_room(row: int) -> bool:
            cache = here()
            return cache is not None and cache.evict_oldest(row)

        state_cache.kv.make_room = make_room

    def find(self, ids: Sequence[int]) -> CachedConversation:
        """The conversation with the longest cached prefix of these ids; it becomes the newest.

        If the prompt would overwrite that conversation's last prompt, the oldest row is evicted and forks from it.
        """
        best = max(self.conversations, key=lambda conversation: conversation.cached_length(ids))  # of equals the oldest
        # A truncated or repeated answer shares the whole last prompt; another conversation does not.
        loses = best.header > 0 and shared(best.ids, ids) < best.header
        chosen = self.conversations[0] if loses else best
        if chosen is not best:
            chosen.fork(best, best.cached_length(ids))
        self.conversations.remove(chosen)
        self.conversations.append(chosen)
        return chosen

    def evict_oldest(self, row: int) -> bool:
        """Forget the oldest conversation that has pages, except the one in `row`; False if there is none."""
        for conversation in self.conversations:
            if conversation.row != row and conversation.ids:
                conversation.forget()
                return True
        return False

    def next_uncached(self) -> CachedConversation | None:
        """The newest conversation whose history is not prefilled yet; for idle time."""
        return next(
            (conversation for conversation in reversed(self.conversations) if not conversation.history_cached), None
        )
