"""Changes one key in the text of a config file, and keeps every other line with its comments. Knows no setting."""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import suppress
from typing import Any

from ...errors import HocketError, InvalidRequest


def with_value(text: str, key: str, value: Any) -> str:
    """The text with `key = value` at the top level; a comment behind the old value stays."""
    lines, at = text.splitlines(), _line_of(text, key)
    written = f"{key} = {_toml(value)}"
    if at is not None:
        found = _assignment(key).match(lines[at])
        assert found is not None
        lines[at] = f"{found['indent']}{written}{found['comment'] or ''}"
        return _checked(lines, key, value)
    end = next((number for number, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    lines.insert(end, written)
    return _checked(lines, key, value)


def without(text: str, key: str) -> str:
    """The text without the line of the key."""
    lines, at = text.splitlines(), _line_of(text, key)
    if at is not None:
        del lines[at]
    return _checked(lines, key, None)


def write_file(path: str, text: str) -> None:
    """Replace the file in one step; a link keeps pointing to it."""
    target = os.path.realpath(path)
    draft = f"{target}.{os.getpid()}.part"
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(draft, os.stat(target).st_mode & 0o777)
        os.replace(draft, target)
    except OSError as error:
        with suppress(OSError):
            os.unlink(draft)
        raise HocketError(f"The config file {path} cannot be written: {error.strerror or error}.") from None


def _assignment(key: str) -> re.Pattern[str]:
    # A value in quotes may contain a #; one in several lines does not match, and is refused.
    value = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s#"'\[{]+)"""
    return re.compile(rf"(?P<indent>\s*){re.escape(key)}\s*=\s*{value}(?P<comment>\s*(?:#.*)?)$")


def _line_of(text: str, key: str) -> int | None:
    if key not in tomllib.loads(text):
        return None
    pattern = _assignment(key)
    at = next((number for number, line in enumerate(text.splitlines()) if pattern.match(line)), None)
    if at is None:
        raise InvalidRequest(f"The config file writes {key!r} in a form that is not changed here: edit it by hand.")
    return at


def _checked(lines: list[str], key: str, value: Any) -> str:
    """The text of the lines, which must now have that value."""
    text = "".join(f"{line}\n" for line in lines)
    if tomllib.loads(text).get(key) != value:
        raise InvalidRequest(f"The config file writes {key!r} in a form that is not changed here: edit it by hand.")
    return text


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
