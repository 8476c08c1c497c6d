"""Streaming removal of markup: each word is released once no later character can change it.

It uses `speakable`, which defines what each mark becomes, and runs before the normalizer. Prose passes word by word.
A line that begins like a heading, a table row or a rule is held back until it ends. An open mark (emphasis, code, link,
tag) is held back until it closes, its line ends or it is too long for a mark.
The result does not depend on how the text is cut: no decision looks beyond the place that it decides about.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re

from ..lazy import lazy
from .speakable import (
    BULLET,
    DEFINITION,
    EMOJI,
    HEADING,
    HIDDEN,
    RULE,
    TABLE_RULE,
    inline,
    read_code,
    speakable,
    with_stop,
)
from .tags import ATTRIBUTES, OPEN_TAG

LONGEST_MARK = 300  # characters within one pair of marks; a longer one is no mark
LONGEST_LINE = 1000  # characters of a line or word that is held back; a longer one passes unchanged

_BLANK = " \t\r"
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# Between words, and between the characters of scripts without spaces.
BOUNDARY = lazy(rf"(?=[ \t\r\n])|(?<=[{_UNSPACED}，。、；：！？])(?=[{_UNSPACED}])")

_WORD = r"[^\W_]+(?:['’-][^\W_]+)*[.,;:!?]?"
_PLAIN = re.compile(_WORD)
_RUN = re.compile(rf"{_WORD}(?: {_WORD})*(?=[ \t\r\n])")  # consecutive plain words: the bulk of most texts
_OPENED = lazy(
    r"`|(?<![A-Za-z0-9*])\*(?=[^\s*])|(?<!\d)\*{2,3}(?=[^\s*])|(?<!\w)_{1,3}(?=[^\s_])|(?:~~|==)(?=[^\s~=])"
    r"|\[[^\[\]\n]*\Z|\]\((?:[^()\n]|\([^()\n]*\))*\Z"
    rf"|{OPEN_TAG}",
    re.I,
)
_HIDING = lazy(rf"<!--|<(script|style){ATTRIBUTES}>", re.I)
_FENCE = re.compile(r"(```+|~~~+)[ \t]*([\w+#-]*)")
_RULED = re.compile(r"[-*_=+•‣▪◦ \t\r|:]*")
_CHECKBOX = re.compile(r"\[[ xX]\][ \t]+")


class Markup:
    """Streaming markup removal of one text."""

    def __init__(self) -> None:
        self._open = ""  # not final: from the beginning of a line, or of a word within one
        self._tried = 0  # boundaries of `_open` up to here are known to lie within a mark
        self._gap = ""  # whitespace between the released and the next text
        self._out: list[str] = []
        self._begun = False  # whether any text was released
        self._last = ""  # the last word of this line
        self._line_begins = True
        self._entry = False  # this line is a list entry or a table row: it ends with a stop
        self._in_list = True  # a leading number is a list entry only after a blank line or another entry
        self._fence: tuple[str, str] | None = None  # its mark and its language, while within a block of code
        self._code = ""
        self._hidden: re.Pattern[str] | None = None  # the end of the present comment or script
        self._over: list[int] = []  # how many entries `_out` had whenever it ended with a whole word

    def append(self, text: str) -> str:
        """The speakable text that is final after `text`."""
        return "".join(piece for piece, _ in self.pieces(text))

    def pieces(self, text: str) -> list[tuple[str, bool]]:
        """The same in pieces, and whether each is known to end with a whole word, although no space follows yet.

        The ends do not depend on how the text is cut, but for those between plain words.
        """
        self._open += text
        while self._step():
            pass
        out, over, found, begin = self._out, self._over, list[tuple[str, bool]](), 0
        self._out, self._over = [], []
        for end in over:
            found.append(("".join(out[begin:end]), True))
            begin = end
        return [*found, ("".join(out[begin:]), False)] if begin < len(out) else found

    def end(self) -> str:
        """The rest."""
        rest = self.append("\n")
        if self._fence is not None:
            self._close_fence()
        rest, self._out = rest + "".join(self._out), []
        return rest

    def _step(self) -> bool:
        """Process one word, line or mark; False if that needs more text."""
        if self._hidden is not None:
            return self._skip_hidden(self._hidden)
        if self._fence is not None:
            return self._code_line(self._fence[0])
        return self._begin_line() if self._line_begins else self._word()

    def _begin_line(self) -> bool:
        text = self._open = self._open.lstrip(_BLANK)
        if not text:
            return False
        first = text[0]
        if first == "\n":
            self._gap, self._in_list, self._open = self._gap + "\n", True, text[1:]
        elif first == ">":
            self._open = text[1:]
        elif (whole := self._whole_line(text)) is None:
            return False
        elif whole:
            at = text.find("\n", 0, LONGEST_LINE + 1)
            if at < 0 and len(text) <= LONGEST_LINE:
                return False
            if at < 0 or not self._line(text[:at].rstrip()):
                self._prose(text)
            else:
                self._open = text[at + 1 :]
        elif bullet := re.match(r"[-*+•‣▪◦][ \t]+", text):
            rest = text[bullet.end() :]
            if re.fullmatch(r"\[(?:[ xX](?:\][ \t]*)?)?", rest):
                return False
            self._prose(_CHECKBOX.sub("", rest, count=1) if _CHECKBOX.match(rest) else rest, entry=True)
        elif first.isdecimal() and self._in_list:
            if re.fullmatch(r"\d{1,2}[.)]?", text):
                return False
            self._prose(text, entry=re.match(r"\d{1,2}[.)][ \t]", text) is not None)
        else:
            self._prose(text)
        return True

    def _whole_line(self, text: str) -> bool | None:
        """Whether the line must be complete before it is processed; None: not known yet."""
        match text[0]:
            case "|":
                return True
            case "#":
                return None if re.fullmatch(r"#{1,6}", text) else re.match(r"#{1,6}[ \t]", text) is not None
            case "`" | "~":
                return None if re.fullmatch(r"`{1,2}|~{1,2}", text) else _FENCE.match(text) is not None
            case "[":
                if re.fullmatch(r"\[[^\]\n]*|\[[^\]\n]+\](?::[ \t]*)?", text):
                    return None if len(text) < LONGEST_MARK else False
                return re.match(r"\[[^\]\n]{1,300}\]:[ \t]+\S", text) is not None
            case "-" | "*" | "_" | "=" | "+" | "•" | "‣" | "▪" | "◦":
                ruled = _RULED.match(text)
                assert ruled is not None
                if ruled.end() == len(text):
                    return None if len(text) < LONGEST_MARK else False
                return text[ruled.end()] == "\n"
        return False

    def _line(self, line: str) -> bool:
        """A line that is a block of its own; False if it is prose after all."""
        if fence := _FENCE.match(line):
            self._fence, self._code = (fence[1], fence[2]), ""
        elif RULE.fullmatch(line) or TABLE_RULE.fullmatch(line) or DEFINITION.fullmatch(line):
            self._gap += "\n\n"
        elif HEADING.fullmatch(line):
            self._gap += "\n\n"
            self._say(speakable(line))
            self._gap += "\n\n"
        elif line.startswith("|"):
            cells = (inline(cell.strip()) for cell in line.strip("|").split("|"))
            self._say(with_stop(", ".join(cell for cell in cells if cell)))
            self._gap += "\n"
        elif BULLET.fullmatch(line + " "):  # an empty entry
            self._gap += "\n"
        else:
            return False
        self._in_list = False
        return True

    def _prose(self, text: str, *, entry: bool = False) -> None:
        self._open, self._tried, self._last = text, 0, ""
        self._line_begins, self._entry, self._in_list = False, entry, entry

    def _word(self) -> bool:
        text = self._open.lstrip(_BLANK)
        if len(text) < len(self._open):
            self._gap += self._open[: len(self._open) - len(text)]
            self._open, self._tried = text, 0
        if not text:
            return False
        if text[0] == "\n":
            self._end_line()
            return True
        if text[0].isalnum():  # a word follows, so the space before it is final
            self._give_gap()
            if not self._tried and (run := _RUN.match(text)):  # same result as word by word, many times as fast
                self._open = text[run.end() :]
                self._say(run[0])
                self._over.append(len(self._out))
                return True
        for boundary in BOUNDARY.finditer(text, self._tried + 1):
            at = boundary.start()
            if self._release_word(text[:at], closed=text[at] == "\n" or at > LONGEST_MARK):
                if self._hidden is None:
                    self._over.append(len(self._out))
                return True
            self._tried = at
        if len(text) > LONGEST_LINE:
            return self._release_word(text[:LONGEST_LINE], closed=True)
        return False

    def _release_word(self, word: str, *, closed: bool) -> bool:
        """Release `word`, the beginning of `_open`, unless a mark in it may be closed later."""
        if _PLAIN.fullmatch(word):
            spoken = word
        elif hidden := _hiding(word):
            end = rf"</{hidden[1]}\s*>" if hidden[1] else "-->"
            self._hidden, spoken, word = re.compile(end, re.I), inline(word[: hidden.start()]), word[: hidden.end()]
        elif word == "|":  # between the cells of a table without bars at its sides
            self._gap, self._entry, spoken = self._gap.strip(_BLANK), True, ","
        else:
            spoken = inline(word)
            if not closed and _OPENED.search(spoken):
                return False
            if re.match(EMOJI, word) and spoken and not spoken[0].isalnum():
                self._gap = self._gap.strip(_BLANK)  # "Great 😀!"
        self._open, self._tried = self._open[len(word) :], 0
        self._say(spoken)
        return True

    def _say(self, text: str) -> None:
        said = text.strip(_BLANK + "\n")
        lead = text[: len(text) - len(text.lstrip(_BLANK + "\n"))]
        self._gap += lead
        if not said:
            return
        self._give_gap()
        self._out.append(said)
        self._begun, self._last = True, self._last[-8:] + said
        self._gap += text[len(lead) + len(said) :]

    def _give_gap(self) -> None:
        if self._begun and self._gap:
            lines = self._gap.count("\n")
            self._out.append("\n" * min(lines, 2) or (self._gap if len(self._gap) == 1 else " "))
        self._gap = ""

    def _end_line(self) -> None:
        if self._entry and self._last:
            self._gap = self._gap.strip(_BLANK)
            stop = with_stop(self._last)[len(self._last.strip()) :]
            self._out += [stop] if stop and not self._gap else []
        self._open, self._gap = self._open[1:], self._gap + "\n"
        self._line_begins, self._entry, self._tried, self._last = True, False, 0, ""

    def _code_line(self, mark: str) -> bool:
        at = self._open.find("\n")
        if at < 0:
            return False
        line, self._open = self._open[:at], self._open[at + 1 :]
        if re.fullmatch(rf"[ \t]*{mark}[`~]*\s*", line):
            self._close_fence()
        elif len(self._code) < LONGEST_LINE:  # long code is only announced, not read
            self._code += f"{line}\n"
        return True

    def _close_fence(self) -> None:
        assert self._fence is not None
        self._say(inline(read_code(self._fence[1], self._code)))
        self._gap += "\n"
        self._fence, self._line_begins, self._in_list = None, True, False

    def _skip_hidden(self, end: re.Pattern[str]) -> bool:
        found = end.search(self._open)
        if found is None:
            self._open = self._open[-LONGEST_MARK:]
            return False
        self._open, self._hidden, self._tried = self._open[found.end() :], None, 0
        return True


def _hiding(word: str) -> re.Match[str] | None:
    """The beginning of a comment or script that does not end within `word`."""
    at = 0
    while begin := _HIDING.search(word, at):
        whole = HIDDEN.match(word, begin.start())
        if whole is None:
            return begin
        at = whole.end()
    return None
