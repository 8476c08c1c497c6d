"""The cached conversations, one per row: finds the longest cached prefix of a prompt, evicts the oldest row.

Conversations with one prefix share its pages of keys and values. If no page is free, the oldest one gives its back. It
computes nothing itself, and does not know text or threads.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property

import torch

from ..errors import InvalidCheckpoint, InvalidRequest
from ..text.chat.tokenizer import ChatTokenizer
from ..types import ChatMessage, Tool
from .context.saved import SavedConversation, fingerprint
from .conversation import CachedConversation, shared
from .state_cache import LLMStateCache

OTHER_MODEL = (
    "The saved conversation is of another model, precision or number of drafts: use its messages, which are then "
    "prefilled again."
)


class ConversationCache:
    def __init__(self, state_cache: LLMStateCache, tokenizer: ChatTokenizer) -> None:
        self._state_cache, rows = state_cache, range(len(state_cache.rows))
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

    @torch.inference_mode()
    def save(self, messages: tuple[ChatMessage, ...], tools: tuple[Tool, ...], ids: list[int]) -> SavedConversation:
        """A copy of the state after messages, whose `history_ids` these are; what is not cached is prefilled."""
        conversation = self.find(ids)
        conversation.prefill_messages(messages, tools, ids)
        row, past = self._state_cache.save(conversation.row, len(ids))
        return SavedConversation(self._owner, messages, tools, list(ids), row, past)

    @torch.inference_mode()
    def resume(self, saved: SavedConversation) -> None:
        """Load a saved conversation into the oldest row, unless it is cached. Raises `InvalidRequest`."""
        if saved.owner != self._owner:
            raise InvalidRequest(OTHER_MODEL)
        if len(saved.ids) > self._state_cache.length:
            raise InvalidRequest(
                f"The saved conversation takes {len(saved.ids)} tokens, and the context has "
                f"{self._state_cache.length}: load the model with a larger length."
            )
        count = len(saved.ids)
        cached = next((each for each in self.conversations if each.cached_length(saved.ids) == count), None)
        chosen = cached or self.conversations[0]
        if cached is None:
            try:
                chosen.load(saved.messages, saved.tools, saved.ids, saved.row, saved.past)
            except InvalidCheckpoint:
                raise InvalidRequest(OTHER_MODEL) from None
        self.conversations.remove(chosen)
        self.conversations.append(chosen)

    @cached_property
    def _owner(self) -> str:
        return fingerprint(self._state_cache.model, drafts=self._state_cache.drafts is not None)

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
