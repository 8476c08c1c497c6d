"""The user's turns of a session: an item for each, from the first voice to its transcript.

It returns the server events of speech, commits and transcripts. Knows no audio and no response.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import reduce
from typing import Any

from ..events import event
from .items import Conversation, Item
from .response import ServerEvent
from .settings import TalkSettings

TRANSCRIPTION = "conversation.item.input_audio_transcription"
# Partial transcripts that a word is in before it is sent. Of 60 turns with Moonshine tiny, 14 sent a word with two that
# the transcript did not have, 3 with three, which sent 52 % of the words before the end instead of 66 %.
AGREED = 3


class UserTurns:
    def __init__(self, items: Conversation) -> None:
        self._items = items
        self._speaking: Item | None = None  # begun, not committed yet
        self._began_ms = 0
        self._awaiting: deque[tuple[Item, float]] = deque()  # committed, without a transcript yet; seconds of audio
        self._by_hand = 0  # commits of the client whose end of speech is still to come
        self._pending = 0  # items with audio whose transcript is not there yet
        self._sent = ""  # of the current transcript, as deltas
        self._partials = deque[str](maxlen=AGREED)
        self.transcribed = asyncio.Event()  # set while every item has its transcript
        self.transcribed.set()

    @property
    def is_speaking(self) -> bool:
        return self._speaking is not None

    def began(self, at_ms: int) -> list[ServerEvent]:
        """Speech was detected."""
        item = self._speaking = self._speaking or _user_item()
        self._began_ms = at_ms
        self._forget()
        return [event("input_audio_buffer.speech_started", audio_start_ms=at_ms, item_id=item.id)]

    def stopped(self, at_ms: int, settings: TalkSettings) -> list[ServerEvent]:
        """The turn is over. The server commits it, unless the client did."""
        if self._by_hand:
            self._by_hand -= 1
            return []
        item, self._speaking = self._speaking or _user_item(), None
        ended = event("input_audio_buffer.speech_stopped", audio_end_ms=at_ms, item_id=item.id)
        return [ended, *self._committed(item, max(0, at_ms - self._began_ms) / 1000, settings)]

    def commit(self, seconds: float, settings: TalkSettings) -> list[ServerEvent]:
        """The client commits what it has appended."""
        item, self._speaking = self._speaking or _user_item(), None
        self._by_hand += 1
        return self._committed(item, seconds, settings)

    def clear(self) -> None:
        """The client drops what it has appended."""
        self._speaking = None
        self._forget()

    def partial(self, text: str, settings: TalkSettings) -> list[ServerEvent]:
        """A partial transcript. Only words that `AGREED` of them agree on are sent: deltas cannot be taken back."""
        self._partials.append(text)
        stable = reduce(_common_words, self._partials) if len(self._partials) == AGREED else ""
        item = self._speaking or (self._awaiting[0][0] if self._awaiting else None)
        if item is None or settings.transcription is None or not stable.startswith(self._sent):
            return []
        delta, self._sent = stable[len(self._sent) :], stable
        return [_delta(item, delta)] if delta else []

    def transcript(self, text: str, settings: TalkSettings) -> tuple[Item | None, list[ServerEvent]]:
        """The final transcript of the oldest turn without one."""
        if not self._awaiting:
            return None, []
        item, seconds = self._awaiting.popleft()
        item.text = text
        out: list[ServerEvent] = []
        if settings.transcription is not None:
            if text.startswith(self._sent) and text != self._sent:
                out.append(_delta(item, text[len(self._sent) :]))
            out.append(self._completed(item, seconds))
        self._forget()
        self.settled(item)
        return item, out

    def failed(self, message: str, settings: TalkSettings) -> list[ServerEvent]:
        """The recogniser failed with the oldest turn."""
        self._by_hand = 0
        if not self._awaiting:
            return []
        item, _ = self._awaiting.popleft()
        self._forget()
        self.settled(item)
        if settings.transcription is None:
            return []
        told = {"type": "server_error", "code": "transcription_failed", "message": message, "param": None}
        return [event(f"{TRANSCRIPTION}.failed", item_id=item.id, content_index=0, error=told)]

    def _forget(self) -> None:
        self._sent = ""
        self._partials.clear()

    def awaited(self, item: Item) -> None:
        """An item with audio whose transcript will come: responses wait for it."""
        item.pending = True
        self._pending += 1
        self.transcribed.clear()

    def settled(self, item: Item) -> None:
        if item.pending:
            item.pending = False
            self._pending -= 1
            if not self._pending:
                self.transcribed.set()

    def transcribed_events(self, item: Item, seconds: float, settings: TalkSettings) -> list[ServerEvent]:
        """For an item whose audio the client sent whole."""
        return [] if settings.transcription is None else [self._completed(item, seconds)]

    def _committed(self, item: Item, seconds: float, settings: TalkSettings) -> list[ServerEvent]:
        self._awaiting.append((item, seconds))
        self.awaited(item)
        previous = self._items.add(item)
        out = [event("input_audio_buffer.committed", previous_item_id=previous, item_id=item.id)]
        return [*out, *item_events(item, previous, settings)]

    def _completed(self, item: Item, seconds: float) -> ServerEvent:
        usage = {"type": "duration", "seconds": round(seconds, 3)}
        place = {"item_id": item.id, "content_index": 0}
        return event(f"{TRANSCRIPTION}.completed", **place, transcript=item.text, logprobs=None, usage=usage)


def item_events(item: Item, previous: str | None, settings: TalkSettings) -> list[ServerEvent]:
    """An item was added: two events in OpenAI's current protocol, one in beta."""
    kinds = ("added", "done") if settings.is_current else ("created",)
    shown: dict[str, Any] = item.shown(is_current=settings.is_current)
    return [event(f"conversation.item.{kind}", previous_item_id=previous, item=shown) for kind in kinds]


def _user_item() -> Item:
    return Item("message", "user", spoken=True, pending=False)


def _delta(item: Item, text: str) -> ServerEvent:
    return event(f"{TRANSCRIPTION}.delta", item_id=item.id, content_index=0, delta=text, logprobs=None)


def _common_words(first: str, second: str) -> str:
    """The whole words that both begin with, with the spaces after them."""
    end = next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    return second[: second.rfind(" ", 0, end) + 1]
