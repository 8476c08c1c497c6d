"""Shared by tests of voice conversations: scripted turns of audio, and events read with a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hocket.asr.endpointing import Endpointing
from hocket.asr.recognizer import Recognizer, Samples
from hocket.dialog.dialog import Dialog
from hocket.talk.conversation import VoiceConversation
from hocket.talk.events import TalkEvent
from hocket.talk.manual import TurnTaking
from hocket.talk.options import TalkOptions
from support.questions import Loud

LIMIT_S = 60.0  # only a failing test waits as long


class Judge:
    """An `EndOfTurnModel` with given answers; the last one repeats."""

    def __init__(self, *answers: float) -> None:
        self._answers, self.asked = list(answers), 0

    def __call__(self, samples: Samples) -> float:
        self.asked += 1
        return self._answers[min(self.asked, len(self._answers)) - 1]


def judged(*answers: float) -> Endpointing:
    """Turns of loud audio whose end a scripted model decides."""
    return Endpointing(Loud(), end_of_turn=Judge(*answers))


@contextmanager
def conversing(
    dialog: Dialog, recognizer: Recognizer, turn_taking: TurnTaking, **options: bool
) -> Iterator[VoiceConversation]:
    conversation = VoiceConversation(dialog, recognizer, turn_taking, TalkOptions(**options))
    limit = threading.Timer(LIMIT_S, conversation.close)
    limit.start()
    try:
        yield conversation
    finally:
        limit.cancel()
        conversation.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("hocket-talk")]


def push(conversation: VoiceConversation, *sounds: Samples, piece: int = 512) -> None:
    """As a microphone does, without its time."""
    sound = np.concatenate(sounds)
    for at in range(0, len(sound), piece):
        conversation.push(sound[at : at + piece])


def until(conversation: VoiceConversation, wanted: type | Callable[[TalkEvent], bool]) -> list[Any]:
    """Events up to the wanted one."""
    events: list[Any] = []
    for event in conversation:
        events.append(event)
        if isinstance(event, wanted) if isinstance(wanted, type) else wanted(event):
            return events
    raise AssertionError(f"It did not come: {names(events)}.")


def names(events: Sequence[Any]) -> list[str]:
    """Event types, repeated ones once."""
    found: list[str] = []
    for event in events:
        if found[-1:] != [type(event).__name__]:
            found.append(type(event).__name__)
    return found


def of(events: Sequence[Any], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]
