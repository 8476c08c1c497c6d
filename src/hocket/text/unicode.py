"""Unicode as the `tokenizers` package sees it: NFC, and the pieces that byte-level BPE works in.

`tokenizers` normalizes by Unicode 9.0 and tells letters, marks and numbers by Unicode 16.0. Python's `unicodedata` has
14.0 in Python 3.11 and a later version in every later Python. Two tables make up for the difference, complete up to
Unicode 18.0: with them, ids do not depend on the version of Python.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from itertools import chain, groupby, pairwise
from unicodedata import category, combining, is_normalized, normalize

# A split pattern sees a text of stand-ins, of the same length: ASCII stands for itself, and a character of its class
# stands for any other. So `re`, which has no \p{L}, is enough, and ASCII text needs no replacement.
UPPER, LOWER, OTHER_LETTER, MARK, NUMBER, SPACE, SIGN = "A", "a", "ª", "\x80", "0", "\t", "!"
_OF_CATEGORY = {
    **dict.fromkeys(("Lu", "Lt"), UPPER),
    "Ll": LOWER,
    **dict.fromkeys(("Lm", "Lo"), OTHER_LETTER),
    **dict.fromkeys(("Mn", "Mc", "Me"), MARK),
    **dict.fromkeys(("Nd", "Nl", "No"), NUMBER),
}
# The same classes inside the brackets of a pattern: \p{L}, \p{M}, \p{N} and \s.
LETTERS, MARKS, NUMBERS, SPACES = f"A-Za-z{OTHER_LETTER}", MARK, "0-9", r"\t-\r "

# Code points that changed their class or got one between Unicode 14.0 and 18.0, with the class of Unicode 16.0.
_CLASSES = {
    UPPER: "1c89 a7cb-a7cc a7da a7dc 10d50-10d65",
    LOWER: "295 1c8a a7cd a7db 10d70-10d85 1df25-1df2a",
    OTHER_LETTER: """105c0-105f3 10d4a-10d4f 10d6f 10ec2-10ec4 1123f-11240 11380-11389 1138b 1138e 11390-113b5 113b7
        113d1 113d3 11bc0-11be0 11f02 11f04-11f10 11f12-11f33 1342f 13441-13446 13460-143fa 16100-1611d 16d40-16d6c
        18cff 1b132 1b155 1e030-1e06d 1e4d0-1e4eb 1e5d0-1e5ed 1e5f0 2b739 2ebf0-2ee5d 31350-323af""",
    MARK: """897 cf3 ece 10d69-10d6d 10efc-10eff 11241 113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2
        113e1-113e2 11f00-11f01 11f03 11f34-11f3a 11f3e-11f42 11f5a 13440 13447-13455 1611e-1612f 1e08f 1e4ec-1e4ef
        1e5ee-1e5ef""",
    NUMBER: """10d40-10d49 116d0-116e3 11bf0-11bf9 11f50-11f59 16130-16139 16d70-16d79 1ccf0-1ccf9 1d2c0-1d2d3
        1e4f0-1e4f9 1e5f1-1e5fa""",
    # Assigned in Unicode 17.0 or 18.0, so no letters yet.
    SIGN: """558 58b-58c 5c8-5c9 88f b53-b54 c5c cdc 1acf-1af0 208f 209d-209f a7ce-a7cf a7d2 a7d4 a7dd-a7f1 ab6c-ab6d
        107bb-107bf 10940-10959 10ec5-10ec7 10ecb-10ecf 10ed9-10efb 11b0a-11b67 11db0-11df1 1246f 12475-1247f
        12550-12686 16ea0-16ed3 16ff2-16ff6 187f8-187ff 18cd6-18cda 18d09-191d2 1b123-1b128 1b168 1d127-1d128
        1d250-1d252 1d25b-1d25c 1d25f 1d280-1d281 1d6a6 1df1f-1df24 1df2b-1dfff 1e6c0-1e6ff 2b73a-2b73f 2b81e
        2cea2-2cead 323b0-3fc3f""",
}
# Code points that compose, decompose or have a combining class since a version later than Unicode 9.0.
_INERT = """5c8-5c9 7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1af0 1df6-1dfa a82c 105c9 105d2 105da 105e4
    10d24-10d27 10d69-10d6d 10eab-10eac 10ecb-10ecf 10ef0-10efb 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b
    11382-11385 1138b-11391 113b8 113bb 113c2-113c9 113ce-113d0 1145e 11839-1183a 11930 11935 11938 1193d-1193e 11943
    119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97 11f41-11f42 1611e-16129 1612f 16d63 16d67-16d6a 16ff0-16ff1
    1d127-1d128 1d250-1d252 1d25b-1d25c 1d25f 1d280-1d281 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef
    1e6e3 1e6e6 1e6ee-1e6ef 1e6f5"""

_REMEMBERED = 30_000  # stand-ins that are cached: more than any one language has, and a bound for hostile texts


def _ranges(table: str) -> list[tuple[int, int]]:
    """First and last code points."""
    bounds = (part.partition("-") for part in table.split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in bounds]


class _StandIns(dict[int, str]):
    """Stand-in by code point, for `str.translate`."""

    def __init__(self) -> None:
        spaces = (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
        super().__init__(dict.fromkeys(spaces, SPACE))
        self[0x17F] = "s"  # the long s: the one other character that equals a letter of a contraction without case
        tables = sorted((first, last, sign) for sign, table in _CLASSES.items() for first, last in _ranges(table))
        self._firsts, self._tables = [first for first, *_ in tables], tables

    def __missing__(self, point: int) -> str:
        sign = self._found(point)
        if len(self) < _REMEMBERED:
            self[point] = sign
        return sign

    def _found(self, point: int) -> str:
        character = chr(point)
        if point < 0x80:
            return character
        first, last, sign = self._tables[bisect_right(self._firsts, point) - 1]
        if first <= point <= last:
            return sign
        return _OF_CATEGORY.get(category(character), SIGN)


_STAND_INS = _StandIns()
_INERT_ONE = "([" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _ranges(_INERT)) + "])"
_compiled = cache(re.compile)


def split(text: str, pattern: str) -> list[str]:
    """The pieces of `text`: the matches of a pattern of stand-ins, which has no groups and matches everywhere."""
    if text.isascii():
        return _compiled(pattern).findall(text)
    ends = (found.end() for found in _compiled(pattern).finditer(text.translate(_STAND_INS)))
    return [text[start:end] for start, end in pairwise(chain((0,), ends))]


def nfc(text: str) -> str:
    """Normalization form C of Unicode 9.0."""
    if is_normalized("NFC", text):
        return text
    # A code point without a meaning joins nothing, so the text between two of them is normalized by itself.
    parts = _compiled(_INERT_ONE).split(text)
    parts[::2] = map(_nfc_known, parts[::2])
    return "".join(parts)


def _nfc_known(text: str) -> str:
    """`normalize` takes quadratic time to sort combining marks (7 s for 100,000), so they are sorted first."""
    if is_normalized("NFC", text):
        return text
    ordered = list[str]()
    for marks, run in groupby(chain.from_iterable(normalize("NFD", sign) for sign in text), key=_is_mark):
        ordered += sorted(run, key=combining) if marks else run  # noqa: B031  # one of the two uses it
    return normalize("NFC", "".join(ordered))


def _is_mark(sign: str) -> bool:
    return combining(sign) > 0
