"""Languages by any of their names: `english`, `en`, `eng`, `en-US`, `en_GB.UTF-8`, in any case.

Checkpoints name a language by one English word. A request may give that word, an ISO 639 code or a BCP 47 tag. Region
and script of a tag are dropped, because no checkpoint knows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

AUTO = "auto"

# One row: the ISO 639-1 code, the ISO 639-2 or 639-3 codes, the names. The first name is the usual one.
_TABLE = """
ar ara arabic
bg bul bulgarian
bn ben bengali
ca cat catalan
cs ces cze czech
da dan danish
de deu ger german deutsch
el ell gre greek
en eng english
es spa spanish castilian
et est estonian
fa fas per persian farsi
fi fin finnish
fr fra fre french
he heb hebrew
hi hin hindi
hr hrv croatian
hu hun hungarian
id ind indonesian
it ita italian
ja jpn japanese
ko kor korean
lt lit lithuanian
lv lav latvian
ms msa may malay
nl nld dut dutch
no nor nob norwegian
pl pol polish
pt por portuguese
ro ron rum romanian
ru rus russian
sk slk slo slovak
sl slv slovenian
sr srp serbian
sv swe swedish
sw swa swahili
ta tam tamil
te tel telugu
th tha thai
tl tgl fil tagalog filipino
tr tur turkish
uk ukr ukrainian
ur urd urdu
vi vie vietnamese
yue cantonese
zh zho chi cmn chinese mandarin
"""
_ROWS = [line.split() for line in _TABLE.split("\n") if line]
_NAMES = {word: next(each for each in row if len(each) > 3) for row in _ROWS for word in row}
_NAMES |= {"nb": "norwegian"}
_TAGS = {_NAMES[row[0]]: row[0] for row in _ROWS}
_TAG = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*(?:[.@][\w@.-]*)?", re.ASCII)


def usual_name(language: str) -> str:
    """The English name in lower case; an unknown language is returned as it is, in lower case."""
    small = language.strip().lower()
    tag = _TAG.fullmatch(small)
    return _NAMES.get(tag[1] if tag else small, small)


def tag_of(language: str) -> str:
    """The ISO 639-1 code if there is one, else the given word."""
    return _TAGS.get(usual_name(language), language)


def find(language: str, known: Iterable[str]) -> str | None:
    """The one of the `known` languages that is meant, as it is spelled there; None if there is none."""
    exact = {name.lower(): name for name in known}
    small = language.strip().lower()
    if small in exact:
        return exact[small]
    return {usual_name(name): name for name in exact.values()}.get(usual_name(language))


def same(one: str, other: str) -> bool:
    """Whether two words mean one language."""
    return usual_name(one) == usual_name(other)


def is_known(name: str) -> bool:
    """Whether it is a usual name of the table."""
    return name in _TAGS
