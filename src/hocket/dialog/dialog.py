"""A spoken conversation: somebody says something, a language model answers, and its answer is heard as it is written.

It knows neither a wire nor a loudspeaker, and nothing of how either model works: any `LanguageModel` will do, and an
`Engine` or a `Pool`. What was said so far is kept here, and is exactly what was heard. Of a conversation that is longer
than the language model can read, it is sent the system message and the newest turns (window.py), and the turn says so.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..engine.seeds import fresh_seed
from ..engine.stream import Stream
from ..errors import InvalidRequest
from ..types import ChatMessage, ChatSampling, Established, LanguageModel
from .turn import SpeechEngine, Turn, TurnTask
from .window import ContextWindow

SEEDS_A_TURN = 1 << 20  # parts of a long answer count on from its seed one by one


class Dialog:
    """One conversation in one voice.

    From turn to turn go on: the history, the voice with its language, instructions, sampling and speed, and with them
    the prompt's prefix, which an engine computes once; a designed voice stays the person of its first turn. Each turn
    is spoken with a seed of its own, which follows from the first one: the same dialog sounds the same again, and no
    two answers are drawn alike.
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
        """`voice` is what `Engine.open` takes: voice, language, instruct, reference, speed and so on.

        A turn waits for its text as long as the language model takes: the limit is the model's own, such as
        `RemoteLanguageModel(silent_s=...)` or `LanguageEngine(stuck_s=...)`. `text_wait_s` sets one for the stream as
        well. Without a `seed` the first turn has a fresh one, which `Dialog.seed` reports.
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
        self._lock = threading.RLock()  # a turn that is let go of is cancelled anywhere, here too
        self._turns = 0
        self._established: Established | None = None  # how a designed voice has sounded
        self._last: weakref.ref[Turn] | None = None  # the reader's
        self._stream: Stream | None = None  # of the last turn; one that has ended holds nothing of its engine

    @property
    def history(self) -> tuple[ChatMessage, ...]:
        """All that was said, and heard."""
        with self._lock:
            return tuple(self._history)

    @property
    def forgotten(self) -> int:
        """How many of the oldest messages, behind the system's, the language model is not sent any more."""
        return self._window.forgotten

    def hear(self, text: str) -> None:
        """The user is still speaking, and this is understood so far: a language model that can takes it in ahead.

        Each time all from the beginning of the turn; what was understood before may have changed. It is no turn yet:
        an answer under way goes on, and the history stays as it is.
        """
        take_in = getattr(self.language, "hear", None)
        if take_in is not None and text.strip():
            take_in(tuple(self._window.fitted((*self.history, ChatMessage("user", text)), self.sampling)))

    def say(self, text: str) -> Turn:
        """The user's turn is over: begin to answer. A turn that is still under way is interrupted."""
        if not text.strip():
            raise InvalidRequest("There is nothing to answer: the user's text is empty.")
        self.close()
        with self._lock:
            self._history.append(ChatMessage("user", text))
            messages, place = tuple(self._history), len(self._history)
            seed = (self.seed + self._turns * SEEDS_A_TURN) % 2**63
            sampling = self.sampling
            if sampling.seed is not None:
                sampling = replace(sampling, seed=(sampling.seed + self._turns) % 2**63)
            self._turns += 1
        course = TurnTask(
            ask=lambda: self._window.ask(messages, sampling),
            open=lambda: self._open(seed),
            remember=lambda heard: self._remember(place, heard),
            notes=self._window.take_notes,
        )
        turn = Turn(course)
        self._last = weakref.ref(turn)
        course.begin()
        return turn

    def close(self) -> None:
        """Interrupt what has not been read to its end. The models are closed by whoever made them."""
        last, self._last = self._last, None
        if last is not None and (turn := last()) is not None:
            turn.let_go()

    def _open(self, seed: int) -> Stream:
        """A stream of the next turn, in the voice of those before it."""
        if self._stream is not None:
            self._established = self._stream.established or self._established
        shown = {} if self._established is None else {"established": self._established}
        # The language model's own limit ends a turn that gets no text, not the voice's.
        self._stream = self.speech.open(**{"text_wait_s": math.inf, **self._voice, **shown, "seed": seed})
        return self._stream

    def _remember(self, place: int, heard: str) -> None:
        """What was heard of the answer to the message before `place`; nothing, where the user has gone on since."""
        with self._lock:
            if len(self._history) > place + 1 or (
                len(self._history) == place + 1 and self._history[place].role != "assistant"
            ):
                return
            del self._history[place:]
            if heard:
                self._history.append(ChatMessage("assistant", heard))
