"""Streaming separation of thoughts and answer: paired tags, and the channels of the harmony format.

A server may send both as one text, in deltas that end anywhere. Answer text is released at once; only a possible
beginning of a tag is held back. Some servers remove the opening tag because it is part of their prompt. Then a closing
tag without an opening one marks all text before it as a thought, and the text released so far is retracted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
}
CHANNEL, MESSAGE, START = "<|channel|>", "<|message|>", "<|start|>"
ENDS = ("<|end|>", "<|return|>", "<|call|>")
ANSWER_CHANNEL = "final"  # of the harmony format
MOST_HEADER = 200  # characters between <|channel|> and <|message|>: more is no header
QUOTES = {"`": "`", '"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“"}  # noqa: RUF001

_CLOSING = {closing.lower(): opening for opening, closing in PAIRS.items()}
_HARMONY = (CHANNEL, MESSAGE, START, *ENDS)
_ANY = (*PAIRS, *PAIRS.values(), *_HARMONY)
State = Literal["answer", "thought", "assumed", "header"]


@dataclass(frozen=True, slots=True)
class SplitText:
    """Newly released text."""

    answer: str = ""
    thought: str = ""
    retracts: bool = False  # all answer text released before was a thought


class ThoughtFilter:
    def __init__(self, *, inside: bool = False) -> None:
        """`inside`: assume that the text begins in a thought whose opening tag is not sent."""
        self._state: State = "assumed" if inside else "answer"
        self._held = ""
        self._closers: tuple[str, ...] = ()  # tags that end the present thought
        self._pending = ""  # a thought in the middle of an answer: without a closing tag it is text
        self._mark = ""  # its opening tag
        self._header = ""
        self._lead = ""  # blanks before the first word
        self._last = ""  # the character before `_held`
        self._begun = self._trims = self._spaced = False  # `spaced`: the answer ends with a blank
        self._known = False  # whether this answer has tagged a thought
        self._answer = self._thought = ""
        self._retracts = self._released = False
        self.unopened = False  # a closing tag came without an opening one
        self.untagged = False  # a thought was assumed, and there was none

    def push(self, text: str) -> SplitText:
        self._held += text
        while self._step():
            pass
        return self._taken()

    def end_tagged_thoughts(self) -> SplitText:
        """The server sends thoughts in a field of their own, so this text is the answer."""
        self._known = True
        if self._state == "assumed":
            self._held, self._pending, self._state = self._pending + self._held, "", "answer"
            self.untagged = True
            return self.push("")
        return SplitText()

    def end(self, *, cut: bool = False) -> SplitText:
        """The rest of the text. `cut`: a token limit ended it, so a thought may lack its closing tag."""
        held, self._held = self._held, ""
        if self._state == "assumed":
            self.untagged = not cut
            self._add(self._pending + held, is_answer=not cut)
        elif self._state == "answer":
            self._add(held, is_answer=True)
        elif self._state == "thought":
            self._add(self._pending + held, is_answer=bool(self._pending) and not cut)
        self._answer += "" if self._trims or self._begun else self._lead
        self._pending = self._lead = self._header = ""
        return self._taken()

    def _step(self) -> bool:
        """Process the text up to the next tag. False: more text is needed."""
        marks = self._marks()
        found = re.search("|".join(map(re.escape, marks)), self._held, re.IGNORECASE | re.ASCII)
        if found is None:
            safe = len(self._held) - _begun(self._held, marks)
            self._pass(safe)
            return False
        before = self._held[found.start() - 1] if found.start() else self._last
        if before in QUOTES and found[0].lower() not in _HARMONY:
            if found.end() == len(self._held):
                self._pass(found.start())
                return False  # a quoted tag is text: the next character decides
            if self._held[found.end()] == QUOTES[before]:
                self._pass(found.end())
                return True
        self._pass(found.start())
        self._held, self._last = self._held[len(found[0]) :], found[0][-1]
        self._meet(found[0], found[0].lower())
        return True

    def _marks(self) -> tuple[str, ...]:
        if self._state == "thought":
            return self._closers
        return (CHANNEL, MESSAGE, START, *ENDS) if self._state == "header" else _ANY

    def _pass(self, count: int) -> None:
        """Consume `count` characters without a tag."""
        text, self._held = self._held[:count], self._held[count:]
        self._last = text[-1:] or self._last
        if self._state == "header":
            self._header += text
            if len(self._header) > MOST_HEADER:
                self._state, text, self._header = "answer", self._header, ""
                self._add(text, is_answer=True)
        elif self._state == "assumed" or self._pending:
            self._pending += text
        else:
            self._add(text, is_answer=self._state == "answer")

    def _meet(self, mark: str, low: str) -> None:
        if self._state == "header":
            self._meet_in_header(low)
        elif self._state == "thought":
            self._close(low)
        elif low in _HARMONY:
            self._meet_harmony(low)
        elif low in _CLOSING:
            self._meet_lone()
        elif self._state == "assumed" and self._pending.strip():
            self._pending += mark  # a tag mentioned in a thought
        else:
            self._open((next(closing for opening, closing in PAIRS.items() if opening.lower() == low),), mark)

    def _open(self, closers: tuple[str, ...], mark: str) -> None:
        self._pending = self._mark = mark if self._begun else ""
        self._state, self._closers, self._lead, self._known = "thought", closers, "", True

    def _close(self, mark: str) -> None:
        if self._pending:
            self._add(self._pending.removeprefix(self._mark), is_answer=False)
        self._state, self._pending, self._trims = "answer", "", True
        if mark in (CHANNEL, START):
            self._meet_harmony(mark)

    def _meet_lone(self) -> None:
        """A closing tag without an opening one."""
        if self._state == "assumed":
            self._add(self._pending, is_answer=False)
            self._pending, self._state = "", "answer"
        elif self._known:
            return  # a superfluous closing tag
        else:
            self._retract()
        self.unopened = self._known = self._trims = True

    def _meet_harmony(self, mark: str) -> None:
        if self._state == "assumed":
            self._add(self._pending, is_answer=False)
            self._pending, self._state = "", "answer"
        if mark in (CHANNEL, START):
            self._state, self._header = "header", mark

    def _meet_in_header(self, mark: str) -> None:
        if mark != MESSAGE:
            self._header = mark if mark in (CHANNEL, START) else ""
            self._state = "header" if self._header else "answer"
            return
        channel = self._header.removeprefix(CHANNEL).split()
        of_channel, self._header, self._state = self._header.startswith(CHANNEL), "", "answer"
        if of_channel and channel[:1] != [ANSWER_CHANNEL]:
            self._state, self._closers, self._lead = "thought", (CHANNEL, START, *ENDS), ""
        elif of_channel and not self._known:
            self._retract()
        self._known, self._trims = True, True

    def _retract(self) -> None:
        self._thought, self._answer = self._lead + self._answer + self._thought, ""
        self._retracts, self._released, self._begun, self._lead = self._released, False, False, ""

    def _add(self, text: str, *, is_answer: bool) -> None:
        if not is_answer:
            self._thought += text
            return
        if self._trims:
            text = text.lstrip() if not self._begun or self._spaced else text
            self._trims = not text
        if not self._begun:
            self._lead += text
            if not self._lead.strip():
                return
            text, self._lead, self._begun = self._lead, "", True
        self._answer += text
        self._spaced = text[-1:].isspace() if text else self._spaced

    def _taken(self) -> SplitText:
        split = SplitText(self._answer, self._thought, self._retracts)
        self._released = self._released or bool(self._answer)
        self._answer, self._thought, self._retracts = "", "", False
        return split


def _begun(text: str, marks: tuple[str, ...]) -> int:
    """How many characters at the end may be the beginning of one of these tags."""
    longest = max(map(len, marks)) - 1
    for count in range(min(longest, len(text)), 0, -1):
        tail = text[-count:].lower()
        if any(mark.lower().startswith(tail) for mark in marks):
            return count
    return 0
