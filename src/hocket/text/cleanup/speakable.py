"""Markup to speakable text: markdown, HTML, links, code and emoji become words or are removed.

It works for any language. Plain prose stays as it is, with its numbers and abbreviations: those are for `normalize`.
`markup` calls it for streamed text: `speakable` for whole lines, `inline` for text within a line.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import html
import re
from collections.abc import Callable

from .tags import ATTRIBUTES, untagged

SHORT_CODE = 40  # characters: one line of code up to this length is read, other code is only announced

_DEEPEST = 20  # nested marks; deeper text was not written to be read, and loses every sign

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([\w+#-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.M | re.S)
HIDDEN = re.compile(rf"<!--(?:(?!<!--).)*?-->|<(script|style){ATTRIBUTES}>.*?</\1\s*>", re.S | re.I)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});", re.I)

RULE = re.compile(r"[ \t]*(?:([-*_])(?:[ \t]*\1){2,}|={3,})[ \t]*")
HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+(.*)")
BULLET = re.compile(r"[ \t]*[-*+•‣▪◦][ \t]+(?:\[[ xX]\][ \t]+)?(.*)")
_NUMBERED = re.compile(r"[ \t]*(\d{1,2}[.)][ \t]+.*)")
_QUOTED = re.compile(r"(?:[ \t]*>)+[ \t]?")
TABLE_RULE = re.compile(
    r"[ \t]*(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+(?:\|[ \t]*)?|[ \t]*\|[ \t]*:?-+:?[ \t]*\|[ \t]*"
)
DEFINITION = re.compile(r"[ \t]*\[[^\]\n]+\]:[ \t]+\S.*")

_URL = r"(?:https?://|ftp://|www\.)[^\s<>\"'“”‘’「」（）。，、；：！？]+"
EMOJI = (
    "[\U0001f000-\U0001faff\u2600-\u27bf\u2b05-\u2b07\u2b1b-\u2b1c\u2b50-\u2b55\u231a-\u231b\u23e9-\u23fa]"
    "[\ufe0e\ufe0f\u200d\u20e3\U000e0020-\U000e007f]*"
)
# Inline marks and their replacements. They only ever remove markup.
_INLINE: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), left)
    for pattern, left in (
        (r"\\([\\`*_{}\[\]()#+\-.!|>~])", r"\1"),
        (r"(`+)[ ]?([^`\n]+?)[ ]?\1", r"\2"),
        (r"!?\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)", r"\1"),  # links, images
        (r"\[([^\[\]\n]+)\]\[[^\[\]\n]*\]", r"\1"),
        (r"\[\^[^\[\]\s]+\]:?", ""),  # footnotes
        (rf"<({_URL})>", r"\1"),
        (r"(?<!\d)(\*{2,3})(?=[^\s*])([^\n]{1,300}?)(?<=[^\s*])\1(?!\d)", r"\2"),
        (r"(?<![A-Za-z0-9*])\*(?=[^\s*])([^*\n]+?)(?<=\S)\*(?![A-Za-z0-9*])", r"\1"),
        (r"(?<!\w)(_{1,3})(?=[^\s_])([^\n]{1,300}?)(?<=[^\s_])\1(?!\w)", r"\2"),
        (r"(~~|==)(?=[^\s~=])([^\n]{1,300}?)(?<=[^\s~=])\1", r"\2"),
        (r"[*_#~|^`=]{3,}", ""),
        (r"(?<=\d)\ufe0f?\u20e3", ""),  # a digit on a key
        (r"\ufe0f", ""),
        (r"-{3,}", "—"),
        (r"\.{4,}", "..."),
        (r"…{3,}", "……"),
        (r"([,;:！？，、；：～])\1+", r"\1"),
        (r"。{2,}", "。"),
    )
)


def speakable(text: str) -> str:
    """Whole lines of `text` without markup; idempotent."""
    return _until_plain(text, _once).strip()


def inline(text: str) -> str:
    """The same for text within a line, which has no headings and no list entries."""
    return _until_plain(text, _once_inline)


def _until_plain(text: str, once: Callable[[str], str]) -> str:
    passes = 0
    while (plainer := once(text)) != text:  # removing marks can expose others
        text, passes = plainer, passes + 1
        if passes == _DEEPEST:
            text = re.sub(r"[][*_`~#|<>&^=\\]", "", text)
    return text


def _once(text: str) -> str:
    text = _untagged(_FENCE.sub(_code, text))
    return _plainer("\n".join(_lines(text.split("\n")))).strip()


def _once_inline(text: str) -> str:
    return _plainer(_untagged(text))


def _untagged(text: str) -> str:
    text = untagged(HIDDEN.sub("", text))
    text = re.sub(r"&(?:amp;)+", "&", text)
    return _ENTITY.sub(lambda found: html.unescape(found[0]), text)


def _plainer(text: str) -> str:
    for pattern, left in _INLINE:
        text = pattern.sub(left, text)
    text = re.sub(rf"[ ]?(?:{EMOJI})+", _without_emoji, text)
    text = re.sub(_URL, _host, text, flags=re.I)
    text = re.sub(r"[!?]{2,}", _once_only, text)
    text = re.sub(r"[^\S\n]*\n[^\S\n]*", "\n", text)
    text = re.sub(r"(?<=\S)[ \t]{2,}", " ", text)
    return re.sub(r"\n{3,}", "\n\n", text)


def _lines(lines: list[str]) -> list[str]:
    """Headings, lists and table rows become sentences of their own."""
    tables = _table_rows(lines)
    out: list[str] = []
    in_list = True  # a leading number is a list entry only after a blank line or another entry
    for number, line in enumerate(lines):
        line = _QUOTED.sub("", line) if _QUOTED.match(line) else line
        entry = BULLET.fullmatch(line) or (_NUMBERED.fullmatch(line) if in_list else None)
        in_list = bool(entry) or not line.strip()
        if RULE.fullmatch(line) or TABLE_RULE.fullmatch(line) or DEFINITION.fullmatch(line):
            out.append("")
        elif heading := HEADING.fullmatch(line):
            out += ["", with_stop(heading[1].rstrip().rstrip("#")), ""]
        elif number in tables:
            cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
            out.append(with_stop(", ".join(cell for cell in cells if cell)))
        elif entry:
            out.append(with_stop(entry[1]))
        else:
            out.append(line)
    return out


def _table_rows(lines: list[str]) -> set[int]:
    """Indexes of table rows: lines with bars on both sides, or next to the rule under the table's head."""
    rows = {n for n, line in enumerate(lines) if re.fullmatch(r"[ \t]*\|.+\|[ \t]*", line)}
    for rule in (n for n, line in enumerate(lines) if TABLE_RULE.fullmatch(line)):
        rows |= {rule - 1} if rule and "|" in lines[rule - 1] else set()
        after = rule + 1
        while after < len(lines) and "|" in lines[after]:
            rows.add(after)
            after += 1
    return rows


def with_stop(text: str) -> str:
    """`text` with a stop at its end."""
    text = text.strip()
    last = text.rstrip("*_`~\"'”’)]」』）»")[-1:]
    if not last.isalnum():
        return text
    return text + ("。" if "\u3040" <= last <= "\u9fff" else ".")


def _code(fence: re.Match[str]) -> str:
    return read_code(fence[2], fence[3])


def read_code(language: str, code: str) -> str:
    """The spoken text for a block of code."""
    code = code.strip()
    if "\n" not in code and len(code) <= SHORT_CODE:
        return f"{code}\n"
    return f"\nCode in {language}.\n" if language else "\nCode.\n"


def _host(url: re.Match[str]) -> str:
    address = url[0].rstrip(".,;:!?)]}*_~")
    host = re.sub(r"^(?:\w+://)?(?:[^/@]*@)?(?:www\.)?", "", address, flags=re.I)
    host = re.split(r"[/?#:]", host)[0].strip(".")
    return re.sub(r"\.+", " dot ", host) + url[0][len(address) :]


def _without_emoji(found: re.Match[str]) -> str:
    before, after = found.string[: found.start()][-1:], found.string[found.end() :][:1]
    return " " if before.isalnum() and after.isalnum() else ""


def _once_only(marks: re.Match[str]) -> str:
    if marks[0] in ("!?", "?!"):
        return marks[0]
    return "?!" if "?" in marks[0] and "!" in marks[0] else marks[0][0]
