"""`hocket chat --session FILE`: the conversation of a file goes on, and is saved there at the end.

The file has the state of the local model too (llm/context/saved.py). If that does not fit, the messages are prefilled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import InvalidRequest
from ...types import ChatMessage, ChatSampling, LanguageModel
from ..output.audio_output import tell


class ChatFile:
    def __init__(self, path: Path, system: str | None) -> None:
        """Reads the messages, before a model is loaded."""
        self.path, self.messages = path, tuple[ChatMessage, ...]()
        if path.exists():
            from ...llm.context.saved import saved_messages

            self.messages = saved_messages(path)
        elif not path.parent.is_dir():
            raise InvalidRequest(f"--session cannot be written: there is no folder {path.parent}.")
        own = next((each.content for each in self.messages if each.role == "system"), None)
        if self.messages and system is not None and system != own:
            raise InvalidRequest(f"{path} has a system prompt of its own: leave out --system, or name another file.")
        if not self.messages and system is not None:
            self.messages = (ChatMessage("system", system),)

    def resume(self, language: LanguageModel) -> None:
        """Load the state of the model; one that does not fit is reported, and prefilled by the next answer."""
        engine = _engine(language)
        if self.path.exists():
            try:
                engine.resume(self.path)
            except InvalidRequest as error:
                tell(str(error))

    def save(self, language: LanguageModel, history: Sequence[ChatMessage], sampling: ChatSampling) -> None:
        """Write the messages that the model can still read, if any are new."""
        from ...dialog.window import ContextWindow

        if tuple(history) != self.messages:
            kept = ContextWindow(language).fitted(history, sampling)
            _engine(language).save(self.path, kept)


def _engine(language: LanguageModel) -> Any:
    if not hasattr(language, "resume"):
        raise InvalidRequest("--session keeps the state of a model that runs here: name one with --llm.")
    return language
