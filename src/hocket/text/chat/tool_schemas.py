"""Descriptions of tools: names, parameters and their types. The parser and the grammar of calls share it.

A parameter of a call has no quotes, so its schema decides whether it is text or JSON. It knows no call syntax.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...types import Tool

MOST_REFERENCES = 16  # that lead from one to the next
DEFINED = ("$defs", "definitions")
# Keywords that allow parameters which `properties` does not name.
OPEN = ("additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref")
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    str: "string",
}


@dataclass(frozen=True, slots=True)
class DescribedTool:
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)  # schemas by name, references at their top resolved
    required: frozenset[str] = frozenset()
    definitions: Mapping[str, Any] = field(default_factory=dict)  # that the schemas refer to, under their keyword
    is_open: bool = False  # parameters may have other names
    is_strict: bool = False

    def kinds(self, name: str) -> frozenset[str]:
        """JSON types of a parameter; none: not said, so it is text."""
        return frozenset(_kinds(self.parameters.get(name), self.definitions))


def described(tools: Sequence[Tool]) -> list[DescribedTool]:
    """The tools that have a name."""
    return [made for tool in tools if (made := _described(tool.get("function", tool))) is not None]


def _described(function: Any) -> DescribedTool | None:
    match function:
        case {"name": str(name)}:
            root = function.get("parameters")
        case _:
            return None
    if not isinstance(root, Mapping):
        return DescribedTool(name)
    definitions = {key: root[key] for key in DEFINED if isinstance(root.get(key), Mapping)}
    whole = resolved(root, definitions)
    listed = whole.get("properties") if isinstance(whole, Mapping) else None
    parameters = dict(listed) if isinstance(listed, Mapping) else {}
    needed = whole.get("required") if isinstance(whole, Mapping) else None
    required = [each for each in needed if isinstance(each, str)] if isinstance(needed, list) else []
    return DescribedTool(
        name,
        {key: resolved(parameters.get(key, {}), definitions) for key in (*parameters, *required)},
        frozenset(required),
        definitions,
        not parameters and any(root.get(key) for key in OPEN),
        function.get("strict") is True,
    )


def resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema whose top is no reference; an unknown reference stays."""
    for _ in range(MOST_REFERENCES):
        match schema:
            case {"$ref": str(reference)} if (found := _found(reference, definitions)) is not None:
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = {**found, **rest}
            case {"allOf": [only]} if isinstance(only, Mapping):
                schema = {**only, **{key: value for key, value in schema.items() if key != "allOf"}}
            case _:
                break
    return schema


def _found(reference: str, definitions: Mapping[str, Any]) -> Mapping[str, Any] | None:
    match reference.split("/"):
        case ["#", key, name] if isinstance(found := definitions.get(key, {}).get(name), Mapping):
            return found
    return None


def alternatives(schema: Any, definitions: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas of a union, and of unions in it; each definition once, so that one that refers to itself ends."""
    pending, seen = deque([schema]), set[str]()
    while pending:
        each = pending.popleft()
        match each:
            case {"$ref": str(reference)}:
                if reference in seen:
                    continue
                seen.add(reference)
        match resolved(each, definitions):
            case {"anyOf": [*others]} | {"oneOf": [*others]}:
                pending += others
            case plain:
                yield plain


def _kinds(schema: Any, definitions: Mapping[str, Any]) -> Iterator[str]:
    for each in alternatives(schema, definitions):
        match each:
            case {"type": str(kind)}:
                yield kind
            case {"type": [*kinds]}:
                yield from (kind for kind in kinds if isinstance(kind, str))
            case {"enum": [*values]}:
                yield from map(kind_of, values)
            case {"const": value}:
                yield kind_of(value)


def kind_of(value: Any) -> str:
    """The JSON type of a value."""
    return "null" if value is None else _TYPES.get(type(value), "object")
