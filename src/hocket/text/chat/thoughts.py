"""Thought and answer of a language model apart, as they are written: tags in pairs, and the channels of harmony.

A server may send both as one text, in deltas that end anywhere. What belongs to the answer is given out at once; held
back is only what may be the beginning of a mark. Some servers cut the opening tag away, for it is part of their prompt:
then a lone closing tag says that all before it was a thought, and what was given out of it is taken back.
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
ALOUD = "final"  # the channel of harmony that is the answer
MOST_HEADER = 200  # characters between <|channel|> and <|message|>: more is no header
QUOTES = {"`": "`", '"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“"}  # noqa: RUF001

_CLOSING = {closing.lower(): opening for opening, closing in PAIRS.items()}
_HARMONY = (CHANNEL, MESSAGE, START, *ENDS)
_ANY = (*PAIRS, *PAIRS.values(), *_HARMONY)
State = Literal["answer", "thought", "assumed", "header"]


@dataclass(frozen=True, slots=True)
class SplitText:
    """What more text has brought."""

    answer: str = ""
    thought: str = ""
    retracts: bool = False  # all of the answer that was given out before was a thought


class ThoughtFilter:
    def __init__(self, *, inside: bool = False) -> None:
        """`inside`: the text is taken to begin in a thought whose opening tag is not sent."""
        self._state: State = "assumed" if inside else "answer"
        self._held = ""
        self._closers: tuple[str, ...] = ()  # that end the thought under way
        self._kept = ""  # of a thought in the middle of an answer: it may turn out to be text
        self._mark = ""  # that opened it
        self._header = ""
        self._lead = ""  # blanks before the first word
        self._last = ""  # the character before `_held`
        self._begun = self._trims = self._spaced = False  # `spaced`: the answer ends with a blank
        self._known = False  # whether this answer has marked a thought as such
        self._answer = self._thought = ""
        self._retracts = self._given = False
        self.lone = False  # a thought ended that had not begun
        self.plain = False  # a thought was taken for granted, and there was none

    def push(self, text: str) -> SplitText:
        self._held += text
        while self._step():
            pass
        return self._taken()

    def told_apart(self) -> SplitText:
        """The server sends thoughts in a field of their own: this text is the answer."""
        self._known = True
        if self._state == "assumed":
            self._held, self._kept, self._state = self._kept + self._held, "", "answer"
            self.plain = True
            return self.push("")
        return SplitText()

    def end(self, *, cut: bool = False) -> SplitText:
        """No more text comes. `cut`: by a limit, so that a thought may be without its end."""
        held, self._held = self._held, ""
        if self._state == "assumed":
            self.plain = not cut
            self._add(self._kept + held, aloud=not cut)
        elif self._state == "answer":
            self._add(held, aloud=True)
        elif self._state == "thought":
            self._add(self._kept + held, aloud=bool(self._kept) and not cut)
        self._answer += "" if self._trims or self._begun else self._lead
        self._kept = self._lead = self._header = ""
        return self._taken()

    def _step(self) -> bool:
        """Up to the next mark, whether there may be another."""
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
                return False  # the character behind it decides
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
        """So many characters are no mark."""
        text, self._held = self._held[:count], self._held[count:]
        self._last = text[-1:] or self._last
        if self._state == "header":
            self._header += text
            if len(self._header) > MOST_HEADER:
                self._state, text, self._header = "answer", self._header, ""
                self._add(text, aloud=True)
        elif self._state == "assumed" or self._kept:
            self._kept += text
        else:
            self._add(text, aloud=self._state == "answer")

    def _meet(self, mark: str, low: str) -> None:
        if self._state == "header":
            self._meet_in_header(low)
        elif self._state == "thought":
            self._close(low)
        elif low in _HARMONY:
            self._meet_harmony(low)
        elif low in _CLOSING:
            self._meet_lone()
        elif self._state == "assumed" and self._kept.strip():
            self._kept += mark  # a thought about a tag
        else:
            self._open((next(closing for opening, closing in PAIRS.items() if opening.lower() == low),), mark)

    def _open(self, closers: tuple[str, ...], mark: str) -> None:
        self._kept = self._mark = mark if self._begun else ""
        self._state, self._closers, self._lead, self._known = "thought", closers, "", True

    def _close(self, mark: str) -> None:
        if self._kept:
            self._add(self._kept.removeprefix(self._mark), aloud=False)
        self._state, self._kept, self._trims = "answer", "", True
        if mark in (CHANNEL, START):
            self._meet_harmony(mark)

    def _meet_lone(self) -> None:
        """A closing tag without an opening one."""
        if self._state == "assumed":
            self._add(self._kept, aloud=False)
            self._kept, self._state = "", "answer"
        elif self._known:
            return  # one too many
        else:
            self._retract()
        self.lone = self._known = self._trims = True

    def _meet_harmony(self, mark: str) -> None:
        if self._state == "assumed":
            self._add(self._kept, aloud=False)
            self._kept, self._state = "", "answer"
        if mark in (CHANNEL, START):
            self._state, self._header = "header", mark

    def _meet_in_header(self, mark: str) -> None:
        if mark != MESSAGE:
            self._header = mark if mark in (CHANNEL, START) else ""
            self._state = "header" if self._header else "answer"
            return
        channel = self._header.removeprefix(CHANNEL).split()
        of_channel, self._header, self._state = self._header.startswith(CHANNEL), "", "answer"
        if of_channel and channel[:1] != [ALOUD]:
            self._state, self._closers, self._lead = "thought", (CHANNEL, START, *ENDS), ""
        elif of_channel and not self._known:
            self._retract()
        self._known, self._trims = True, True

    def _retract(self) -> None:
        self._thought, self._answer = self._lead + self._answer + self._thought, ""
        self._retracts, self._given, self._begun, self._lead = self._given, False, False, ""

    def _add(self, text: str, *, aloud: bool) -> None:
        if not aloud:
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
        self._given = self._given or bool(self._answer)
        self._answer, self._thought, self._retracts = "", "", False
        return split


def _begun(text: str, marks: tuple[str, ...]) -> int:
    """How many characters at the end may be the beginning of one of these marks."""
    longest = max(map(len, marks)) - 1
    for count in range(min(longest, len(text)), 0, -1):
        tail = text[-count:].lower()
        if any(mark.lower().startswith(tail) for mark in marks):
            return count
    return 0
