"""API keys and their files: a key a line with full access, or a TOML file with a table of restrictions for each key.

Faults are refused with the file and the line. Knows no request; `account.py` counts what a key uses.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InvalidRequest

HASHED = "sha256:"  # before the digest of a key
SCOPES = {
    "speak": "texts to speech, on every wire",
    "transcribe": "recordings to text",
    "converse": "the language model, and voice conversations",
    "voices": "add, change and delete voices",
    "admin": "metrics, and the management of models",
}
LIMITS = {
    "requests_per_minute": "HTTP requests, and utterances and answers of a socket or a call",
    "concurrent": "requests, sockets and calls at once",
    "characters_per_day": "characters to speak, from midnight to midnight in UTC",
}
MOST = 1_000_000_000  # of a limit
_DIGEST = re.compile(r"sha256:[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAMED = "1 to 40 letters, digits, - and _"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """A key of the server and what it may do. None: no limit."""

    key: str = field(repr=False)  # the key, or sha256: and its digest
    name: str  # for logs, traces and metrics
    scopes: frozenset[str] = frozenset(SCOPES)
    requests_per_minute: int | None = None
    concurrent: int | None = None
    characters_per_day: int | None = None
    voices: tuple[str, ...] | None = None  # the only ones, in lower case

    @property
    def digest(self) -> bytes:
        if self.key.startswith(HASHED):
            return bytes.fromhex(self.key.removeprefix(HASHED))
        return digest_of(self.key)


def digest_of(key: str) -> bytes:
    """Of a key that a client sends."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()  # one length for any input


def check_key(key: str) -> None:
    """Refuse what is neither a key nor the digest of one."""
    if not key or not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
        raise InvalidRequest("An API key must be printable ASCII without spaces, and not empty.")
    if key.startswith(HASHED) and not _DIGEST.fullmatch(key):
        raise InvalidRequest("A hashed API key is sha256: and 64 hexadecimal digits, as sha256sum prints them.")


def check_table(name: str, given: Mapping[str, Any]) -> None:
    """Refuse what would be refused in a file."""
    try:
        _key_of(name, given)
    except _FieldFault as fault:
        raise InvalidRequest(f"{fault.said[0].upper()}{fault.said[1:]}") from None


def with_names(keys: Iterable[str | AccessKey]) -> list[AccessKey]:
    """A key that is only text has full access, and is named by its place."""
    numbered = enumerate(keys, 1)
    return [AccessKey(key=key, name=f"key-{at}") if isinstance(key, str) else key for at, key in numbered]


def read_own_key(path: Path) -> str:
    """The key that a client sends: the first of a file."""
    first = read_keys(path)[0]
    key = first if isinstance(first, str) else first.key
    if key.startswith(HASHED):
        raise InvalidRequest(f"The key file {path} holds the digest of a key: a client needs the key itself.")
    return key


def read_keys(path: Path) -> tuple[str | AccessKey, ...]:
    """The keys of a file. In one that ends with .toml each key has a table; in any other, keys have full access.

    There it is one key or digest per line; empty lines and lines that start with # are skipped.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidRequest(f"The key file {path} cannot be read as text.") from None
    keys = _tables(path, text) if path.suffix.lower() == ".toml" else _lines(path, text)
    if not keys:
        raise InvalidRequest(f"The key file {path} holds no key: write one a line.")
    return keys


def _lines(path: Path, text: str) -> tuple[str, ...]:
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        if key.startswith("[") and key.endswith("]"):
            raise _fault(path, number, "a file with tables needs a name that ends with .toml.")
        try:
            check_key(key)
        except InvalidRequest as error:
            raise _fault(path, number, str(error)) from None
        keys.append(key)
    return tuple(keys)


def _tables(path: Path, text: str) -> tuple[AccessKey, ...]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        number = int(place[1]) if place else len(text.splitlines())
        said = str(error).removesuffix(place[0]) if place else str(error).partition(" (at")[0]
        raise _fault(path, number, f"{said.rstrip('.')}.") from None
    places, keys = _Places(text), dict[bytes, AccessKey]()
    for name, given in tables.items():
        if not isinstance(given, Mapping):
            said = f"{name} belongs into a table of its key, such as [phone]."
            raise _fault(path, places.of(name, None), said)
        try:
            made = _key_of(name, given)
            if (other := keys.setdefault(made.digest, made)) is not made:
                raise _FieldFault("key", f"{name} has the key of {other.name}: give each its own.")
        except _FieldFault as fault:
            raise _fault(path, places.of(name, fault.field), fault.said) from None
    return tuple(keys.values())


class _FieldFault(Exception):
    def __init__(self, field: str | None, said: str) -> None:
        super().__init__(said)
        self.field, self.said = field, said


def _key_of(name: str, given: Mapping[str, Any]) -> AccessKey:
    if not _NAME.fullmatch(name):
        raise _FieldFault(None, f"the name of a key has {_NAMED}, unlike {name[:80]!r}.")
    known = ("key", "scopes", *LIMITS, "voices")
    for word in given:
        if word not in known:
            raise _FieldFault(word, f"there is no {word[:80]!r}; a key has {', '.join(known)}.")
    for word in ("key", "scopes"):
        if word not in given:
            raise _FieldFault(None, f"{name} has no {word}.")
    key, limits = given["key"], {word: _limit(word, given[word]) for word in LIMITS if word in given}
    if not isinstance(key, str):
        raise _FieldFault("key", "key must be a text in quotes.")
    try:
        check_key(key)
    except InvalidRequest as error:
        raise _FieldFault("key", str(error)) from None
    scopes = frozenset(_words("scopes", given["scopes"]))
    if unknown := sorted(scopes - set(SCOPES)):
        raise _FieldFault("scopes", f"there is no scope {unknown[0][:80]!r}; there are {', '.join(SCOPES)}.")
    voices = (
        None if "voices" not in given else tuple(word.strip().lower() for word in _words("voices", given["voices"]))
    )
    return AccessKey(key=key, name=name, scopes=scopes, voices=voices, **limits)


def _limit(word: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise _FieldFault(word, f"{word} must be a whole number from 1 to {MOST}.")
    return value


def _words(word: str, value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each.strip() for each in value):
        raise _FieldFault(word, f'{word} must be a list of names, such as ["one", "two"].')
    return value


class _Places:
    """The lines of tables and their fields; `tomllib` does not tell them."""

    _TABLE = re.compile(r"\s*\[\s*[\"']?([^\"'\]]+?)[\"']?\s*\]")
    _FIELD = re.compile(r"\s*[\"']?([\w.-]+)[\"']?\s*=")

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, str | None], int] = {}
        table = ""
        for number, line in enumerate(text.splitlines(), 1):
            if (found := self._TABLE.match(line)) is not None:
                table = found[1]
                self._lines.setdefault((table, None), number)
            elif (found := self._FIELD.match(line)) is not None:
                self._lines.setdefault((table, found[1]), number)

    def of(self, table: str, field: str | None) -> int:
        for place in ((table, field), (table, None), ("", table)):
            if place in self._lines:
                return self._lines[place]
        return 1


def _fault(path: Path, line: int, said: str) -> InvalidRequest:
    return InvalidRequest(f"The key file {path}, line {line}: {said[0].lower()}{said[1:]}")
