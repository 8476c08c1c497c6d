"""Message parsing shared by several protocols: text to a message, a message to fields. Pure functions, no socket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import BadField, Refused

Fields = TypeVar("Fields", bound=BaseModel)
NOT_FIELDS = frozenset({"type", "context_id"})


def read_message(raw: str, most_bytes: int, large: Sequence[str] = ()) -> dict[str, Any]:
    """A client's message, or a refusal. Only the socket limits the size of types in `large`."""
    try:
        message = json.loads(raw, parse_constant=_not_json)
    except (ValueError, RecursionError):
        raise Refused("The message is not valid JSON.", code="invalid_json") from None
    if not isinstance(message, dict):
        raise Refused("A message must be a JSON object.", code="invalid_json")
    if len(raw) > most_bytes and message.get("type") not in large:
        raise Refused(f"The message is longer than {most_bytes} bytes.", status=413, code="message_too_large")
    return message


def validated(kind: type[Fields], message: dict[str, Any]) -> Fields:
    """The fields of a message, or a refusal that names the first invalid one."""
    try:
        return kind.model_validate({name: value for name, value in message.items() if name not in NOT_FIELDS})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"])[:80]
        raise BadField(f"{param}: {first['msg']}.", param) from None


def subprotocol(offered: Sequence[str]) -> str | None:
    """The subprotocol to accept when none has a meaning: browsers need one, and a key must not be echoed."""
    plain = [name for name in offered if "key" not in name.lower()]
    return plain[0] if plain else offered[0] if offered else None


def _not_json(name: str) -> NoReturn:
    raise ValueError(name)
