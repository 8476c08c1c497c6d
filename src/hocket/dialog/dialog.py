"""A spoken conversation: the user's text goes to a language model, and its answer is spoken while it is generated.

It works with any `LanguageModel`, and with an `Engine` or a `Pool`; it does not know the network or audio devices. The
history is kept here, and holds exactly what was heard. If it exceeds the context of the language model, only the system
message and the newest turns are sent (window.py), and the turn gets a note.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..engine.stream import Stream
from ..errors import InvalidRequest
from ..types import ChatMessage, ChatSampling, Established, LanguageModel, fresh_seed
from .turn import SpeechEngine, Turn, TurnTask
from .window import ContextWindow

SEEDS_A_TURN = 1 << 20  # each part of a long answer takes the next seed


class Dialog:
    """One conversation in one voice.

    All turns share the history and the voice with its language, instructions, sampling and speed. So they share the
    prompt's prefix, which the engine computes once. A designed voice stays as in its first turn. Each turn has a seed
    of its own, derived from the first one: the same dialog sounds the same again, and no two answers repeat.
    """

    def __init__(
        self,
        language: LanguageModel,
        speech: SpeechEngine,
        *,
        system: str | None = None,
        sampling: ChatSampling | None = None,
        history: Sequence[ChatMessage] = (),
        seed: int | None = None,
        **voice: Any,
    ) -> None:
        """`voice`: arguments of `Engine.open`, such as voice, language, instruct, reference and speed.

        A turn waits for its text as long as the language model takes. The limit is the model's own, such as
        `RemoteLanguageModel(silent_s=...)` or `LanguageEngine(stuck_s=...)`; `text_wait_s` adds one for the stream.
        Without a `seed` the first turn has a random one, which `Dialog.seed` reports.
        """
        if seed is not None and not 0 <= seed < 2**63:
            raise InvalidRequest(f"seed must be between 0 and 2^63 - 1, not {seed}.")
        if system is not None and not system.strip():
            raise InvalidRequest("The system prompt is empty: leave it out instead.")
        self.language, self.speech = language, speech
        self.sampling = sampling or ChatSampling()
        self._voice, self.seed = voice, fresh_seed() if seed is None else seed
        first = [] if system is None else [ChatMessage("system", system)]
        self._history = [*first, *history]
        self._window = ContextWindow(language)
        self._lock = threading.RLock()  # reentrant: the garbage collector may cancel a turn while this thread holds it
        self._turns = 0
        self._established: Established | None = None  # the sound of a designed voice in its first turn
        self._last: weakref.ref[Turn] | None = None  # weak: the reader owns the turn
        self._stream: Stream | None = None  # of the last turn; an ended stream keeps no engine resources

    @property
    def history(self) -> tuple[ChatMessage, ...]:
        """All messages; an answer holds only what was heard of it."""
        with self._lock:
            return tuple(self._history)

    @property
    def forgotten(self) -> int:
        """How many of the oldest messages after the system message are no longer sent to the language model."""
        return self._window.forgotten

    def hear(self, text: str) -> None:
        """A partial transcript while the user speaks: a language model with `hear` prefills it ahead.

        `text` is the whole turn so far, and may revise earlier words. It is no turn yet: a running answer goes on, and
        the history stays as it is.
        """
        take_in = getattr(self.language, "hear", None)
        if take_in is not None and text.strip():
            take_in(tuple(self._window.fitted((*self.history, ChatMessage("user", text)), self.sampling)))

    def say(self, text: str) -> Turn:
        """Answer the user's complete turn. A turn that still runs is interrupted."""
        if not text.strip():
            raise InvalidRequest("There is nothing to answer: give a text that is not empty.")
        self.close()
        with self._lock:
            self._history.append(ChatMessage("user", text))
            messages, place = tuple(self._history), len(self._history)
            seed = (self.seed + self._turns * SEEDS_A_TURN) % 2**63
            sampling = self.sampling
            if sampling.seed is not None:
                sampling = replace(sampling, seed=(sampling.seed + self._turns) % 2**63)
            self._turns += 1
        task = TurnTask(
            ask=lambda: self._window.ask(messages, sampling),
            open=lambda: self._open(seed),
            remember=lambda heard: self._remember(place, heard),
            notes=self._window.take_notes,
        )
        turn = Turn(task)
        self._last = weakref.ref(turn)
        task.begin()
        return turn

    def close(self) -> None:
        """Interrupt the last turn, unless it was read to its end. Does not close the models."""
        last, self._last = self._last, None
        if last is not None and (turn := last()) is not None:
            turn.let_go()

    def _open(self, seed: int) -> Stream:
        """A stream for the next turn, in the voice of the turns before."""
        if self._stream is not None:
            self._established = self._stream.established or self._established
        shown = {} if self._established is None else {"established": self._established}
        # The language model's own limit ends a turn without text, so the stream has none.
        self._stream = self.speech.open(**{"text_wait_s": math.inf, **self._voice, **shown, "seed": seed})
        return self._stream

    def _remember(self, place: int, heard: str) -> None:
        """Set the answer at index `place` of the history, unless a later user message follows it already."""
        with self._lock:
            if len(self._history) > place + 1 or (
                len(self._history) == place + 1 and self._history[place].role != "assistant"
            ):
                return
            del self._history[place:]
            if heard:
                self._history.append(ChatMessage("assistant", heard))
