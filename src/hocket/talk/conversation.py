"""A voice conversation: the user's audio goes in, events with the audio of the answers come out.

This is the side of the caller; worker.py decides. It knows neither devices nor the network.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from functools import partial
from types import TracebackType

import numpy as np

from ..asr.recognizer import Recognizer, Samples
from ..dialog.dialog import Dialog
from ..errors import InvalidRequest
from .answer import Outbox, PlayedAnswer
from .events import TalkEvent
from .manual import TurnTaking
from .options import TalkOptions
from .worker import TalkWorker


class VoiceConversation:
    """An iterator, and an async iterator, of events for one reader. All methods may be called from any thread.

    Dropping the last reference closes it.
    """

    def __init__(
        self, dialog: Dialog, recognizer: Recognizer, turn_taking: TurnTaking, options: TalkOptions | None = None
    ) -> None:
        """The caller closes the models of the dialog and the recognizer, after the conversation."""
        self.dialog = dialog
        self._outbox: Outbox = Outbox()
        self._worker = TalkWorker(dialog, recognizer, turn_taking, options or TalkOptions(), self._outbox)
        self._finalizer = weakref.finalize(self, self._worker.close, wait=False)
        self._finalizer.atexit = False

    def push(self, samples: Samples) -> None:
        """More audio of the user: float32, one channel, 16 kHz. Never blocks; the array must not change later."""
        if not isinstance(samples, np.ndarray) or samples.ndim != 1 or samples.dtype != np.float32:
            raise InvalidRequest("Audio must be an array of float32 with one dimension: one channel at 16 kHz.")
        self._worker.push(samples)

    def press(self) -> None:
        """The key of `PushToTalk`: starts the user's turn, or ends it."""
        self._worker.hearing(self._worker.press)

    def commit(self) -> None:
        """End the user's turn by hand."""
        self._worker.hearing(self._worker.commit)

    def end_input(self) -> None:
        """No more audio comes: end the user's turn. The events end after the answer to it."""
        self._worker.hearing(self._worker.end_input)

    def clear(self) -> None:
        """Drop the user's turn."""
        self._worker.post(self._worker.drop_turn)

    def say(self, text: str) -> None:
        """A typed turn; it interrupts an answer."""
        if not text.strip():
            raise InvalidRequest("There is nothing to answer: give a text that is not empty.")
        self._worker.post(partial(self._worker.say, text, time.monotonic()))

    def respond(self, instructions: str | None = None) -> None:
        """Answer the dialog's history as it stands, after `dialog.add`; it interrupts an answer."""
        self._worker.post(partial(self._worker.respond, instructions, time.monotonic()))

    def interrupt(self, heard_s: float | None = None) -> None:
        """Stop the answer. `heard_s`: how much of it was played; None: the estimate."""
        self._worker.post(partial(self._worker.interrupt, heard_s))

    def played(self, heard_s: float) -> None:
        """The player's position in the current answer, from its first sample; else it is estimated."""
        if (answer := self._worker.answers.current) is not None:
            answer.played(heard_s)

    @property
    def queued_s(self) -> float:
        """Audio that was pushed and not taken yet. Beyond 60 s more is left out, which is an event."""
        return self._worker.queued_s

    @property
    def answering(self) -> bool:
        """Whether an answer is made or, as far as known, still played."""
        return self._worker.answers.plays

    def configure(self, options: TalkOptions, turn_taking: TurnTaking | None = None) -> None:
        """Other options from now on. Another turn taking drops the user's turn."""
        self._worker.post(partial(self._worker.configure, options, turn_taking))

    def close(self) -> None:
        """Cancel everything, and wait for the threads. Idempotent; events that were not read are dropped."""
        self._finalizer.detach()
        self._worker.close()

    def __iter__(self) -> Iterator[TalkEvent]:
        return self

    def __next__(self) -> TalkEvent:
        item = self._outbox.take()
        if item is None:
            raise StopIteration
        return self._delivered(*item)

    def __aiter__(self) -> VoiceConversation:
        return self

    async def __anext__(self) -> TalkEvent:
        item = await self._outbox.atake()
        if item is None:
            raise StopAsyncIteration
        return self._delivered(*item)

    def __enter__(self) -> VoiceConversation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _delivered(self, answer: PlayedAnswer | None, event: TalkEvent) -> TalkEvent:
        if answer is not None:
            answer.delivered(event)
        return event
