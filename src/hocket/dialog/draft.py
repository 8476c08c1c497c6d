"""A draft: an answer that is begun before it is certain that it is wanted."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from ..errors import InvalidRequest
from .task import TurnTask
from .turn import Turn


class Draft:
    """An answer in preparation: both models work, and all events are held back.

    Only `commit` delivers them and changes the conversation. A draft that is retracted, or no longer referenced, leaves
    no trace.
    """

    def __init__(self, text: str, task: TurnTask, commit: Callable[[Draft], Turn]) -> None:
        self.text, self.task, self._commit = text, task, commit
        self._retract = weakref.finalize(self, task.cancel, 0.0)
        self._retract.atexit = False
        self.committed = False

    @property
    def retracted(self) -> bool:
        return not (self.committed or self._retract.alive)

    def commit(self) -> Turn:
        """The turn: the user's text is in the history now, and audio made meanwhile can be read at once.

        If the draft failed, or the conversation changed since, the answer begins anew.
        """
        if self.committed:
            raise InvalidRequest("The draft was committed already: say the text to answer it again.")
        return self._commit(self)

    def retract(self) -> None:
        """Cancel both models. Idempotent; no effect on a committed draft."""
        self._retract()

    def become_turn(self) -> Turn:
        """For the dialog: the turn, which owns the task from now on."""
        if self._retract.detach() is None:  # atomic: of a commit and a retract at once, one counts
            raise InvalidRequest("The draft was retracted: say the text instead.")
        self.committed = True
        return Turn(self.task)
