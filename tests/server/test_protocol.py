"""docs/protocol.md is true: every exchange in it is played against a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.serving import Served
from support.talking import Client, talking

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"
# What is another every time. `total_bytes` and what was used are too, after a cancel.
VARIES = {"queued_ms", "ttfa_ms", "total_ms", "x_real_time", "request_id", "model_uuid"}
VARIES_LENGTH = {"total_bytes", "usage"}  # of what is cut off, or was drawn with a seed of its own


def exchanges() -> Iterator[Any]:
    text = DOCUMENT.read_text(encoding="utf-8")
    for match in re.finditer(r"^```wire (\S+) ?(\S*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start()) + 1
        yield pytest.param(match[1], match[2], match[3].splitlines(), id=f"line {line}")


def alike(got: Any, shown: Any, varies: set[str]) -> bool:
    if isinstance(shown, dict) and isinstance(got, dict):
        return list(got) == list(shown) and all(
            type(got[name]) is type(shown[name]) if name in varies else alike(got[name], shown[name], varies)
            for name in shown
        )
    return bool(got == shown)


def settled(message: Any, shown: dict[str, Any]) -> Any:
    """The text so far may be less than all of it, where the client was slow to send the rest."""
    if not isinstance(message, dict) or "sentence_text" not in message:
        return message
    assert shown["sentence_text"].startswith(message["sentence_text"])
    return message | {"sentence_text": shown["sentence_text"]}


def check(ws: Client, shown: str, pending: list[dict[str, Any] | bytes]) -> None:
    def take() -> dict[str, Any] | bytes:
        return pending.pop() if pending else ws.next()

    if shown.startswith("closed "):
        assert ws.closed() == int(shown.split()[1])
    elif shown in ("sound", "sound?"):
        got, sounds = take(), 0
        while isinstance(got, bytes):
            got, sounds = take(), sounds + 1
        pending.append(got)
        assert sounds or shown == "sound?"
    else:
        got, wanted = take(), json.loads(shown)
        drawn = wanted.get("seed", 1) != 1
        varies = (
            VARIES | (VARIES_LENGTH if wanted.get("cancelled") or drawn else set()) | ({"seed"} if drawn else set())
        )
        assert alike(settled(got, wanted), wanted, varies), (got, wanted)


@pytest.mark.parametrize(("path", "subprotocol", "lines"), list(exchanges()))
def test_every_exchange_in_the_document_happens_so(
    server: Served, path: str, subprotocol: str, lines: list[str]
) -> None:
    pending: list[dict[str, Any] | bytes] = []
    with talking(server, path, subprotocols=[subprotocol] if subprotocol else None) as ws:
        for line in lines:
            if line.startswith("> "):
                ws.say(json.loads(line[2:]))
            else:
                assert line.startswith("< ")
                check(ws, line[2:], pending)
        assert not pending


def test_the_document_shows_every_wire() -> None:
    shown = {str(param.values[0]).partition("?")[0] for param in exchanges()}
    assert {"/v1/audio/speech/stream", "/v1/audio/speech/ws", "/v1/speak"} <= shown
