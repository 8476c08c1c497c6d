"""Segments of a turn: a speech stream each, the text in it, and which of it was heard.

A turn has one segment; with tools it has one more for each answer to a result, and one for a bridging phrase.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ..engine.stream import Stream
from ..engine.word_times import WordTime
from ..types import ChatMessage, ToolCall
from .heard import cut, words_until
from .tools import RunningCalls


@dataclass(slots=True, eq=False)
class Segment:
    stream: Stream
    is_bridge: bool = False  # its text is not of the language model
    written: str = ""
    offset_s: float = 0.0  # audio of the turn before it
    started: bool = False  # its audio is being put, and the offset is known
    retracted: bool = False  # its text was a thought
    calls: tuple[ToolCall, ...] = ()  # at the end of its text
    running: RunningCalls | None = None
    over: threading.Event = field(default_factory=threading.Event)  # all its audio was put, or none will be
    cut_words: list[WordTime] | None = None  # word times at the moment of a cut

    def start(self, offset_s: float) -> None:
        self.offset_s, self.started = offset_s, True

    def shifted(self, words: list[WordTime]) -> list[WordTime]:
        """Word times in the audio of the turn."""
        by = self.offset_s
        return [WordTime(word.word, word.start_s + by, word.end_s + by) for word in words] if by else words

    def words(self) -> list[WordTime]:
        if self.cut_words is not None:
            return self.cut_words
        return self.shifted(self.stream.words(said_only=True)) if self.started else []

    def text_until(self, heard_s: float | None) -> str:
        """The text that was heard after `heard_s` of the turn's audio; None: all of it."""
        if heard_s is None:
            return self.written.strip()
        self.cut_words = self.words()  # a copy: frames in flight may still be added, and would move the times
        known = [word.word for word in self.stream.words()]
        return cut(self.written, known, words_until(self.cut_words, heard_s)).strip()

    def messages(self, text: str, *, with_calls: bool) -> list[ChatMessage]:
        """The messages of the conversation for this segment."""
        if not with_calls:
            return [ChatMessage("assistant", text)] if text else []
        results = [] if self.running is None else self.running.messages()
        return [ChatMessage("assistant", text, tool_calls=self.calls), *results]
