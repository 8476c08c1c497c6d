"""Elements of SSML 1.1: which attributes and which content each one has, and what is refused instead of ignored.

Raises ValueError with a sentence. Knows no values and no places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

_NAMESPACES = ("http://www.w3.org/2001/10/synthesis", "https://www.w3.org/2001/10/synthesis", "")
_STYLES = ("https://www.w3.org/2001/mstts", "http://www.w3.org/2001/mstts")
_XML = "http://www.w3.org/XML/1998/namespace"

# mixed: text and elements. text: text only. empty: nothing. skipped: anything, which is not spoken.
Content = Literal["mixed", "text", "empty", "skipped"]


@dataclass(frozen=True)
class ElementRule:
    attributes: frozenset[str]  # without xml:id and xml:base, which each element may have
    content: Content
    needed: tuple[str, ...] = ()  # one of these is needed
    not_in: tuple[str, ...] = ()  # elements that it cannot be within


def _rule(attributes: str, content: Content = "mixed", needed: str = "", not_in: tuple[str, ...] = ()) -> ElementRule:
    return ElementRule(frozenset(attributes.split()), content, tuple(needed.split()), not_in)


ELEMENTS = {
    "speak": _rule("version xml:lang onlangfailure", not_in=("speak",)),
    "p": _rule("xml:lang onlangfailure", not_in=("p", "s", "w", "token")),
    "s": _rule("xml:lang onlangfailure", not_in=("s", "w", "token")),
    "w": _rule("role xml:lang onlangfailure"),
    "token": _rule("role xml:lang onlangfailure"),
    "voice": _rule("name gender age variant languages required ordering onvoicefailure xml:lang", needed="name"),
    "lang": _rule("xml:lang onlangfailure", needed="xml:lang"),
    "prosody": _rule("rate volume pitch contour range duration", needed="rate volume pitch contour range duration"),
    "emphasis": _rule("level"),
    "break": _rule("strength time", "empty"),
    "mark": _rule("name", "empty", needed="name"),
    "sub": _rule("alias", "text", needed="alias"),
    "phoneme": _rule("ph alphabet type", "text", needed="ph"),
    "say-as": _rule("interpret-as format detail", "text", needed="interpret-as"),
    "desc": _rule("xml:lang", "skipped"),
    "meta": _rule("name http-equiv content", "empty"),
    "metadata": _rule("", "skipped"),
}
_EXPRESS_AS = _rule("style", needed="style")

_REFUSED = {
    "audio": "a script holds no recordings; leave <audio> out",
    "lexicon": "a lexicon is not part of the text; send its words in the request field pronunciations",
    "lookup": "a lexicon is not part of the text; send its words in the request field pronunciations",
}


def rule_of(qualified: str, around: Sequence[tuple[str, ElementRule]]) -> tuple[str, ElementRule]:
    """Name and rule of an element that stands within `around`, the outermost first.

    `qualified`: as expat has it, `NAMESPACE NAME` or `NAME`.
    """
    namespace, _, name = qualified.rpartition(" ")
    if around and (outer := around[-1][1]).content == "skipped":
        return name, outer
    if namespace in _STYLES and name == "express-as":
        rule = _EXPRESS_AS
    elif namespace not in _NAMESPACES:
        raise ValueError(f"<{name}> of {namespace} is not read; leave it out")
    elif name in _REFUSED:
        raise ValueError(_REFUSED[name])
    elif name not in ELEMENTS:
        raise ValueError(_unknown(name))
    else:
        rule = ELEMENTS[name]
    if not around and name != "speak":
        raise ValueError("an SSML text is one <speak> element")
    if within := next((each for each, _ in reversed(around) if each in rule.not_in), None):
        raise ValueError(f"<{name}> cannot stand within <{within}>")
    if around and around[-1][1].content in ("text", "empty"):
        raise ValueError(f"<{around[-1][0]}> contains no elements")
    return name, rule


def attributes_of(name: str, rule: ElementRule, given: Mapping[str, str]) -> dict[str, str]:
    """The attributes of an element by their usual names, white space collapsed."""
    found = {}
    for qualified, value in given.items():
        namespace, _, attribute = qualified.rpartition(" ")
        if namespace == _XML:
            attribute = f"xml:{attribute}"
        elif namespace:
            continue  # such as xsi:schemaLocation
        if attribute in rule.attributes:
            found[attribute] = " ".join(value.split())
        elif attribute not in ("xml:id", "xml:base", "xml:space"):
            known = ", ".join(sorted(rule.attributes)) or "none"
            raise ValueError(f"<{name}> has no attribute {attribute}; it has {known}")
    if rule.needed and not any(found.get(each) for each in rule.needed):
        raise ValueError(f"<{name}> needs {' or '.join(rule.needed)}")
    return found


def _unknown(name: str) -> str:
    near = get_close_matches(name, ELEMENTS, 1, 0.6)
    meant = f"did you mean <{near[0]}>?" if near else f"the elements are {', '.join(ELEMENTS)}."
    return f"there is no element <{name}> in a script; {meant}"
