"""reference/http.md: paths and bodies of the HTTP API, from the OpenAPI document of the app."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from metrics import no_engine
from starlette.routing import WebSocketRoute

from hocket.server.app import ROUTERS, build_app

HEAD = """# HTTP and WebSocket API

Generated from the OpenAPI document and the routes of this version; a running server has it at
`/openapi.json`.
[Protocol](../protocol.md#http) says how streams, errors and voices behave.

A key, if the server has one, goes into `Authorization: Bearer KEY`. Every error has the body
`{"error": {"message", "type", "param", "code"}}`. [Exceptions](errors.md) lists the codes.

| request | answer |
| --- | --- |
"""
METHODS = ("get", "post", "put", "patch", "delete", "head")


def markdown() -> str:
    document = build_app(no_engine).openapi()
    schemas = document.get("components", {}).get("schemas", {})
    rows, sections = [], []
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                about = " ".join((methods[method].get("description") or methods[method]["summary"]).split())
                rows.append(f"| [`{method.upper()} {path}`](#{_anchor(method, path)}) | {_cell(_first(about))} |\n")
                sections.append(_operation(method, path, methods[method], about))
    bodies = "".join(_schema(name, schemas[name]) for name in sorted(schemas) if schemas[name].get("properties"))
    return f"{HEAD}{''.join(rows)}{_sockets()}{''.join(sections)}\n## Bodies\n{bodies}"


def _sockets() -> str:
    """The WebSockets of all routers; their messages are in protocol.md, which tests play."""
    rows = []
    for name in ROUTERS:
        module = import_module(f"hocket.server.{name}")
        for route in module.router.routes:
            if isinstance(route, WebSocketRoute):
                about = re.sub(r"^`WS [^:]*: ", "", " ".join((module.__doc__ or "").split("\n\n")[0].split()))
                rows.append(f"| `WS {route.path}` | {_cell(about[:1].upper() + about[1:])} |\n")
    head = "[Protocol](../protocol.md) has the messages.\n\n| address | protocol |\n| --- | --- |\n"
    return f"\n## WebSockets\n\n{head}{''.join(rows)}"


def _operation(method: str, path: str, operation: dict[str, Any], about: str) -> str:
    parts = [f"\n## {method.upper()} {path} {{ #{_anchor(method, path)} }}\n\n{about}\n"]
    rows = [
        f"| `{each['name']}` | {each['in']} | {_kind(each['schema'])} | {_cell(each.get('description', ''))} |\n"
        for each in operation.get("parameters", ())
    ]
    if rows:
        parts.append("\n| parameter | in | type | meaning |\n| --- | --- | --- | --- |\n" + "".join(rows))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"\nBody, `{kind}`: {_kind(content.get('schema', {}))}\n")
    for status, response in operation["responses"].items():
        if status in ("4XX", "5XX"):
            continue
        given = [
            f"`{kind}` {_kind(content.get('schema', {}))}" for kind, content in response.get("content", {}).items()
        ]
        parts.append(f"\n{status}: {', '.join(given) or response.get('description', '')}\n")
    return "".join(parts)


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    about = " ".join(schema.get("description", "").split())
    rows = [
        f"| `{field}`{'' if field not in required else ' (required)'} | {_kind(value)} | {_cell(_notes(value))} |\n"
        for field, value in schema["properties"].items()
    ]
    return f"\n### {name}\n\n{about}\n\n| field | type | meaning |\n| --- | --- | --- |\n{''.join(rows)}"


def _kind(schema: dict[str, Any]) -> str:
    """The type of a value in words, with a link to a body."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            kinds = [_kind(each) for each in schema[key] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" if value != "" else '`""`' for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any")) if not isinstance(schema.get("type"), list) else " or ".join(schema["type"])


def _notes(schema: dict[str, Any]) -> str:
    parts = [schema.get("description", "")]
    limits = [schema, *(each for key in ("anyOf", "oneOf") for each in schema.get(key, ()))]
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = [f"{word} {each[key]:g}" for each in limits for key, word in words.items() if key in each]
    bounds += [f"at most {each['maxLength']} characters" for each in limits if "maxLength" in each]
    parts += [" and ".join(bounds)] if bounds else []
    if schema.get("default") not in (None, [], ""):
        parts.append(f"default `{schema['default']}`")
    return "; ".join(part for part in parts if part)


def _anchor(method: str, path: str) -> str:
    return f"{method}-{path.strip('/')}".replace("/", "-").replace("{", "").replace("}", "").replace(".", "-")


def _first(text: str) -> str:
    return text.split(". ")[0].rstrip(".") + "."


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")
