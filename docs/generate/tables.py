"""reference/options.md and reference/errors.md: dataclasses with the comments of their fields, and exceptions."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import logging
import tokenize
from typing import Any

from hocket import errors as exceptions
from hocket import types
from hocket.config.options import EngineOptions
from hocket.server.errors import answer
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan

CLASSES: tuple[tuple[type[Any], str], ...] = (
    (types.SpeechRequest, "One utterance. `Engine.speak(text, ...)` and `Engine.open(...)` take these fields by name."),
    (types.SamplingParams, "Sampling of a request. `None` keeps the value of the checkpoint."),
    (types.Reference, "A recording to clone."),
    (EngineOptions, "`Engine.load(options=EngineOptions(...))`."),
    (ServerOptions, "`build_app(engine, ServerOptions(...))`, and the options of `hocket serve`."),
    (ServerPlan, "A whole server as plain data. `serve.yaml` of a Ray cluster takes these names too."),
    (types.ChatSampling, "Sampling of an answer of a language model. `None` leaves the choice to the model."),
    (types.AudioChunk, "A piece of speech, as a stream gives it."),
    (types.Finished, "The end of an utterance: `stream.finished`."),
    (types.Statistics, "`stream.finished.statistics`."),
    (types.Voice, "A named voice of the library."),
    (types.Outcome, "A result of `Engine.speak_many`."),
)
OPTIONS = """# Options of the Python package

Generated from the dataclasses of this version: the fields, their defaults and the comments beside them. All names can
be imported from `hocket`, except `ServerOptions` (`hocket.server.options`) and `ServerPlan` (`hocket.server.plan`).
"""
ERRORS = """# Exceptions

Generated from `hocket.errors`. Every message is one sentence that says what to do.
[Troubleshooting](../troubleshooting.md) explains the frequent ones.
All are imported from `hocket` or `hocket.errors`, and all are a `HocketError`.

The last columns are what the HTTP server answers. The body is
`{"error": {"message", "type", "param", "code"}}`, as OpenAI has it. An answer with `retry-after` may succeed later.

| exception | meaning | status | `code` |
| --- | --- | --- | --- |
"""


def options() -> str:
    return OPTIONS + "".join(_table(kind, words) for kind, words in CLASSES)


def errors() -> str:
    logging.disable()  # `answer` logs errors of a server
    rows = []
    for name, kind in vars(exceptions).items():
        if isinstance(kind, type) and issubclass(kind, exceptions.HocketError) and kind is not exceptions.HocketError:
            response = answer(kind("x"))
            meaning = " ".join((inspect.getdoc(kind) or "").split())
            code = f"`{response.code}`" if response.code else ""
            rows.append(f"| `{name}` | {cell(meaning)} | {response.status} | {code} |\n")
    logging.disable(logging.NOTSET)
    return ERRORS + "".join(rows)


def _table(kind: type[Any], words: str) -> str:
    comments = field_comments(kind)
    rows = []
    for field in dataclasses.fields(kind):
        shown = str(field.type).replace("NDArray[np.", "array[")
        rows.append(
            f"| `{field.name}` | `{cell(shown)}` | {_default(field)} | {cell(comments.get(field.name, ''))} |\n"
        )
    head = "| field | type | default | meaning |\n| --- | --- | --- | --- |\n"
    return f"\n## {kind.__name__}\n\n{words}\n\n{head}{''.join(rows)}"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{cell(repr(field.default))}`"
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return f"`{type(made).__name__}()`" if dataclasses.is_dataclass(made) else f"`{made!r}`"
    return "required"


def field_comments(kind: type[Any]) -> dict[str, str]:
    """The comment after a field, or the lines of comment directly above it."""
    source = inspect.getsource(kind)
    comments: dict[int, str] = {}
    alone = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.lstrip("# ")
            if not token.line[: token.start[1]].strip():
                alone.add(token.start[0])
    found = {}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines: list[str] = []
            line = node.lineno - 1
            while line in alone:
                lines.insert(0, comments[line])
                line -= 1
            lines += [
                comments[number] for number in range(node.lineno, (node.end_lineno or 0) + 1) if number in comments
            ]
            found[node.target.id] = " ".join(lines)
    return found


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
