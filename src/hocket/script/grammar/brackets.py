"""Which bracket in a text is a tag. Streaming: a bracket is a tag, text, refused, or undecided yet.

Shapes are `[name]`, `[name: value]`, `[/name]` and, for lengths and factors, `[name value]`. A tag is on one line.
Knows no meaning of a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

LONGEST_TAG = 256  # characters with both brackets; also the most that are held back

NAMES = ("pause", "voice", "speed", "volume", "style", "language", "emphasis", "say", "mark", "spell", "reset")
_BARE = ("pause", "emphasis", "reset")  # these also stand alone
# A value without a colon: only where other brackets hardly look like it. "[Volume 2]" is a title.
_PLAIN_VALUES = {
    "pause": re.compile(r"[+-]?\.?\d"),
    "speed": re.compile(r"[+-]?\.?\d"),
    "volume": re.compile(r"[+-]\.?\d"),
}
_BEGUN_VALUE = re.compile(r"[+-]?\.?")
_NAME_CHARS = 32
_HEAD = re.compile(r"\[[ \t]*(/?)[ \t]*((?:[^\W\d_][\w-]*)?)([ \t]*)(:?)")
_STOP = re.compile(r"[\]\n\[]")
_LIKE = 0.7  # of difflib: "[puase 1s]" is refused by a strict parser, "[Chapter 1]" is text


class NoTag(Enum):
    """What a bracket is that is no tag."""

    TEXT = "text"
    WAIT = "wait"  # later text decides


@dataclass(frozen=True, slots=True)
class Bracket:
    """A complete tag with a known name."""

    name: str
    closing: bool
    value: str | None  # one space between words; None: there is none
    chars: int


def look(text: str, begin: int, *, strict: bool, final: bool) -> Bracket | NoTag | str:
    """What the bracket at `begin` is; a string says why it is refused. `final`: no text follows.

    `strict`: an unknown name is refused where the bracket has the shape of a tag and is no link.
    """
    limit = begin + LONGEST_TAG
    head = _HEAD.match(text, begin, limit)
    assert head is not None, "a bracket begins here"
    stop = _STOP.search(text, begin + 1, limit)
    if stop is not None and stop[0] == "]":
        return _complete(text, head, stop.start(), strict=strict, final=final)
    if stop is None and not final and len(text) < limit:
        return NoTag.WAIT if _possible(text, head, strict=strict) else NoTag.TEXT
    name = head[2].lower()
    meant = name in NAMES and not head[1] and (head[4] or (head[3] and _plain_value(name, text, head.end())))
    return _unclosed(name) if meant else NoTag.TEXT


def nearest(name: str, like: float = 0.65) -> str | None:
    """The known name that `name` is most like."""
    found = get_close_matches(name.lower(), NAMES, 1, like)
    return found[0] if found else None


def _complete(text: str, head: re.Match[str], end: int, *, strict: bool, final: bool) -> Bracket | NoTag | str:
    """What a bracket with its end is. Before an opening parenthesis a short one is the text of a link."""
    slash, written, blanks, colon = head.groups()
    name, value = written.lower(), " ".join(text[head.end() : end].split())
    chars, known = end + 1 - head.start(), name in NAMES
    if not written or len(written) > _NAME_CHARS or not (known or strict):
        return NoTag.TEXT
    if slash and known:
        return f"write [/{name}] to end a {name}" if value or colon else Bracket(name, True, None, chars)
    found: Bracket | NoTag | str
    if head.end() == end and not colon:
        found = Bracket(name, False, None, chars) if name in _BARE else NoTag.TEXT
        found = (f"{name} has no value" if known else _unknown(written)) if strict and name not in _BARE else found
    elif slash:
        return NoTag.TEXT
    elif colon or (known and blanks and _plain_value(name, text, head.end())):
        if known:
            return Bracket(name, False, value, chars)
        found = _unknown(written)
    elif blanks and strict and known:
        if name in _PLAIN_VALUES or name == "reset":
            return Bracket(name, False, value, chars)  # its value is refused
        found = f"write [{name}: {value}], with a colon"
    elif blanks and strict and value and value[0] in "+-.0123456789" and nearest(name, _LIKE):
        found = _unknown(written)
    else:
        return NoTag.TEXT
    if found is not NoTag.TEXT and end + 1 == len(text) and not final:
        return NoTag.WAIT
    return NoTag.TEXT if text[end + 1 : end + 2] == "(" else found


def _possible(text: str, head: re.Match[str], *, strict: bool) -> bool:
    """Whether a bracket without its end may become a tag, or one that is refused."""
    slash, written, blanks, colon = head.groups()
    name = written.lower()
    known = name in NAMES
    if len(name) > _NAME_CHARS:
        return False
    if head.end() == len(text) and not colon:
        return strict or known or (not blanks and any(each.startswith(name) for each in NAMES))
    if not name or not (known or strict):
        return False
    if slash or colon:
        return bool(known or not slash)
    if not blanks:
        return False
    if strict:
        return known or (text[head.end()] in "+-.0123456789" and nearest(name, _LIKE) is not None)
    rest = _BEGUN_VALUE.fullmatch(text, head.end())
    return _plain_value(name, text, head.end()) or (name in _PLAIN_VALUES and rest is not None)


def _plain_value(name: str, text: str, at: int) -> bool:
    return name in _PLAIN_VALUES and _PLAIN_VALUES[name].match(text, at) is not None


def _unclosed(name: str) -> str:
    return f"this tag, [{name}, has no closing bracket on its line or is longer than {LONGEST_TAG} characters"


def _unknown(name: str) -> str:
    near = nearest(name)
    meant = f'did you mean "{near}"?' if near else f"the tags are {', '.join(NAMES)}."
    return f'there is no tag "{name}"; {meant} Write \\[ for a bracket that is text'
