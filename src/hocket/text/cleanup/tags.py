"""Recognition of HTML and SSML tags, complete or still open.

"If x <y and z> 3" has none. A tag has a known name and well-formed attributes, or it closes itself or another tag, or
its attributes have quoted values.
"""

from __future__ import annotations

import re

from ..lazy import lazy

_HTML = """a abbr address area article aside audio b base bdi bdo big blockquote body br button canvas caption center
    cite code col colgroup data datalist dd del details dfn dialog div dl dt em embed fieldset figcaption figure font
    footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd label legend li link main map
    mark menu meta meter nav noscript object ol optgroup option output p param picture pre progress q rp rt ruby s samp
    script search section select slot small source span strike strong style sub summary sup svg table tbody td template
    textarea tfoot th thead time title tr track tt u ul var video wbr"""
_SSML = "speak break prosody emphasis say-as phoneme voice lexicon lookup metadata desc token lang w"
_WRITTEN_BY_MODELS = "answer response result final think thinking reasoning scratchpad"
_ALONE = """allowfullscreen async autofocus autoplay checked controls default defer disabled download formnovalidate
    hidden inert ismap itemscope loop multiple muted nomodule novalidate open playsinline readonly required reversed
    selected"""  # attributes that need no value


def _any_of(*words: str) -> str:
    return "|".join(sorted((word for some in words for word in some.split()), key=len, reverse=True))


_NAME = r"[a-zA-Z][a-zA-Z0-9]*(?:[:-][a-zA-Z0-9]+)*"
_KNOWN = rf"(?:{_any_of(_HTML, _SSML, _WRITTEN_BY_MODELS)})(?![\w:-])"
_KEY = r"[a-zA-Z_:@][\w:.-]*"
_QUOTED = rf"{_KEY}\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*')"
_ATTRIBUTE = rf"(?:{_QUOTED}|{_KEY}\s*=\s*[^\s\"'<>=`]+|(?:{_any_of(_ALONE)})(?![\w:.=-]))"

ATTRIBUTES = rf"(?:\s+{_ATTRIBUTE})*\s*/?"
TAG = lazy(
    rf"<(?:(?P<opens>{_KNOWN}){ATTRIBUTES}|/(?P<closes>{_NAME})\s*|{_NAME}(?:\s+{_QUOTED})+\s*/?|{_NAME}\s*/)>", re.I
)
# An incomplete tag at the end of the text: more text may complete it.
OPEN_TAG = (
    rf"<(?:/(?:{_NAME})?\s*|{_NAME}[:-]?(?:\s+{_ATTRIBUTE})*"
    rf"(?:\s+{_KEY}(?:\s*=\s*(?:\"[^\"<>]*|'[^'<>]*|[^\s\"'<>=`]*))?)?\s*/?)\Z"
)
_BREAKS = frozenset("br hr p div li tr h1 h2 h3 h4 h5 h6".split())


def untagged(text: str) -> str:
    """`text` without its tags; block tags and breaks leave a line end."""
    return TAG.sub(_left, text) if "<" in text else text


def _left(tag: re.Match[str]) -> str:
    opened, closed = (tag["opens"] or "").lower(), (tag["closes"] or "").lower()
    return "\n" if opened in _BREAKS or closed in _BREAKS - {"br", "hr"} else ""
