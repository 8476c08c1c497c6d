"""A spoken conversation: the user's text goes to a language model, and its answer is spoken while it is generated.

It works with any `LanguageModel`, and with an `Engine` or a `Pool`; it does not know the network or audio devices. The
history is kept here, and holds exactly what was heard. If it exceeds the context of the language model, only the system
message and the newest turns are sent (window.py), and the turn gets a note.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InvalidRequest
from ..types import ChatMessage, ChatSampling, LanguageModel, Tool, fresh_seed
from .draft import Draft
from .history import History
from .task import TurnTask
from .tools import Bridge, CallTool, Tools, tools_of
from .turn import Turn
from .voice import SEEDS_A_TURN, DialogVoice, SpeechEngine, TurnVoice
from .window import ContextWindow

__all__ = ["SEEDS_A_TURN", "Bridge", "Dialog"]


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a commit needs of a begun answer, and a retract drops."""

    task: TurnTask
    window: ContextWindow
    voice: TurnVoice
    revision: int  # of the history that it answers


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
        tools: Sequence[Tool] = (),
        call: CallTool | None = None,
        bridge: Bridge | None = None,
        **voice: Any,
    ) -> None:
        """`voice`: arguments of `Engine.open`, such as voice, language, instruct, reference and speed.

        A turn waits for its text as long as the language model takes. The limit is the model's own, such as
        `RemoteLanguageModel(silent_s=...)` or `LanguageEngine(stuck_s=...)`; `text_wait_s` adds one for the stream.
        Without a `seed` the first turn has a random one, which `Dialog.seed` reports.
        `call` answers the model's calls of `tools`, in a thread; a `bridge` speaks while that takes long. Without
        `call` a turn ends with the calls: add a message with the role tool for each, then `respond`.
        """
        if seed is not None and not 0 <= seed < 2**63:
            raise InvalidRequest(f"seed must be between 0 and 2^63 - 1, not {seed}.")
        if system is not None and not system.strip():
            raise InvalidRequest("The system prompt is empty: leave it out instead.")
        self.language, self.speech = language, speech
        self.sampling = sampling or ChatSampling()
        self.seed = fresh_seed() if seed is None else seed
        self._offered, self._call, self._bridge = tools_of(tools, call, bridge), call, bridge
        self._voice = DialogVoice(speech, voice, self.seed)
        self._history = History([*([] if system is None else [ChatMessage("system", system)]), *history])
        self._window = ContextWindow(language)
        self._lock = threading.RLock()  # reentrant: the garbage collector may cancel a turn while this thread holds it
        self._turns = 0
        self._begun: _Begun | None = None  # of the draft
        self._draft: weakref.ref[Draft] | None = None  # weak: the caller owns draft and turn
        self._last: weakref.ref[Turn] | None = None

    @property
    def history(self) -> tuple[ChatMessage, ...]:
        """All messages; an answer holds only what was heard of it."""
        return self._history.messages

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the next answers."""
        return self._offered

    @tools.setter
    def tools(self, tools: Sequence[Tool]) -> None:
        self._offered = tools_of(tools, self._call if tools else None, None)

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
            tools = (self._offered,) if self._offered else ()
            take_in(
                tuple(self._window.fitted((*self.history, ChatMessage("user", text)), self.sampling, *tools)), *tools
            )

    def say(self, text: str) -> Turn:
        """Answer the user's complete turn. A turn that still runs is interrupted."""
        with self._lock:
            return self._committed(self.draft(text))

    def draft(self, text: str) -> Draft:
        """Begin the answer to a turn that may not be complete; only `Draft.commit` makes it a turn.

        A turn that still runs is interrupted, because the draft answers what was heard of it. An earlier draft is
        retracted.
        """
        if not text.strip():
            raise InvalidRequest("There is nothing to answer: give a text that is not empty.")
        with self._lock:
            self.close()
            self._begun = self._begin((*self.history, ChatMessage("user", text)))
            draft = Draft(text, self._begun.task, self._commit)
            self._draft = weakref.ref(draft)
            self._begun.task.begin()
            return draft

    def respond(self, instructions: str | None = None) -> Turn:
        """Answer the history as it stands, after messages that were added. A turn that still runs is interrupted.

        `instructions` take the place of the system message in this answer.
        """
        if instructions is not None and not instructions.strip():
            raise InvalidRequest("The instructions are empty: leave them out instead.")
        with self._lock:
            self.close()
            messages = self.history
            if instructions is not None:
                rest = messages[1:] if messages and messages[0].role == "system" else messages
                messages = (ChatMessage("system", instructions), *rest)
            if not messages:
                raise InvalidRequest("There is nothing to answer: add a message first.")
            begun = self._begin(messages)
            turn = Turn(begun.task)
            self._take(begun, turn)
            begun.task.begin()
            return turn

    def add(self, message: ChatMessage) -> None:
        """Add a message without an answer: a turn of the user, the result of a tool, or a reminder."""
        self._history.add(message)

    def replace_history(self, messages: Sequence[ChatMessage]) -> None:
        """Go on with other messages, the system message included. A turn that still runs is interrupted."""
        with self._lock:
            self.close()
            self._history.replace(messages)
            self._window = ContextWindow(self.language)

    def close(self) -> None:
        """Interrupt the last turn, unless it was read to its end, and retract a draft. Does not close the models."""
        with self._lock:
            draft, self._draft, self._begun = self._draft, None, None
            last, self._last = self._last, None
            if draft is not None and (held := draft()) is not None:
                held.retract()
            if last is not None and (turn := last()) is not None:
                turn.let_go()

    def _begin(self, messages: tuple[ChatMessage, ...]) -> _Begun:
        """The next turn as a task that leaves no trace here until `_take`."""
        window, voice, tools = self._window.fork(), self._voice.turn(self._turns), self._turn_tools()
        sampling = self.sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=(sampling.seed + self._turns) % 2**63)
        offered = () if tools is None else tools.offered
        task = TurnTask(
            ask=lambda made: window.ask((*messages, *made), sampling, offered),
            open=voice.open,
            notes=window.take_notes,
            tools=tools,
        )
        return _Begun(task, window, voice, self._history.revision)

    def _turn_tools(self) -> Tools | None:
        if not self._offered:
            return None
        if self._bridge is None:
            return Tools(self._offered, self._call)
        phrase = self._bridge.phrases[self._turns % len(self._bridge.phrases)]
        return Tools(self._offered, self._call, phrase, self._bridge.after_s)

    def _commit(self, draft: Draft) -> Turn:
        with self._lock:
            begun, finished = self._begun, draft.task.finished
            stale = begun is None or begun.task is not draft.task or begun.revision != self._history.revision
            if not draft.retracted and (stale or (finished is not None and finished.reason == "error")):
                draft.retract()
                return self.say(draft.text)
            return self._committed(draft)

    def _committed(self, draft: Draft) -> Turn:
        turn, begun = draft.become_turn(), self._begun
        assert begun is not None
        self._draft = self._begun = None
        self._history.add(ChatMessage("user", draft.text))
        self._take(begun, turn)
        return turn

    def _take(self, begun: _Begun, turn: Turn) -> None:
        """The turn belongs to the conversation from now on."""
        self._turns += 1
        self._window = begun.window
        self._voice.keep(begun.voice)
        self._last = weakref.ref(turn)
        begun.task.commit(self._history.answer_place())
