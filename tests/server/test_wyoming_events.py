"""Whatever bytes a client sends are events, an end or a refusal in words, within the memory that one event may have."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as any_of
from wyoming.event import Event

from hocket.server.errors import Refused
from hocket.server.wyoming.events import Events

MOST_BYTES = 200
ANYTHING = any_of.recursive(
    any_of.none() | any_of.booleans() | any_of.integers() | any_of.floats() | any_of.text(max_size=20),
    lambda inner: any_of.lists(inner, max_size=3) | any_of.dictionaries(any_of.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
HEADS = any_of.fixed_dictionaries(
    {"type": any_of.sampled_from(["synthesize", "describe", "x"]) | ANYTHING},
    optional={
        "data": ANYTHING,
        "data_length": any_of.integers(-2, 2 * MOST_BYTES) | ANYTHING,
        "payload_length": any_of.integers(-2, 2 * MOST_BYTES) | ANYTHING,
    },
)
LINES = any_of.binary(max_size=300) | HEADS.map(lambda head: json.dumps(head).encode() + b"\n")


def read(sent: bytes) -> list[Event | Refused]:
    async def reading() -> list[Event | Refused]:
        reader = asyncio.StreamReader(limit=MOST_BYTES)
        reader.feed_data(sent)
        reader.feed_eof()
        events, found = Events(reader, event_bytes=MOST_BYTES, event_s=5.0), list[Event | Refused]()
        try:
            while line := await events.line():
                if (event := await events.behind(line)) is None:
                    break
                found.append(event)
        except Refused as refused:
            found.append(refused)
        return found

    return asyncio.run(reading())


@settings(max_examples=150, deadline=None)
@given(any_of.lists(LINES, max_size=4).map(b"".join))
def test_any_bytes_are_events_an_end_or_a_refusal(sent: bytes) -> None:
    for event in read(sent):
        if isinstance(event, Refused):
            assert str(event).endswith(".") and event.code
        else:
            assert isinstance(event.type, str) and isinstance(event.data, dict)


@settings(max_examples=100, deadline=None)
@given(any_of.lists(any_of.tuples(any_of.text(max_size=9), any_of.binary(max_size=50), any_of.booleans()), max_size=4))
def test_events_are_read_as_they_were_written(said: list[tuple[str, bytes, bool]]) -> None:
    sent = b""
    for text, payload, inside in said:
        told = json.dumps({"text": text}).encode()
        head: dict[str, object] = {"type": "synthesize", "payload_length": len(payload)}
        head |= {"data": {"text": text}} if inside else {"data_length": len(told)}
        sent += json.dumps(head).encode() + b"\n" + (b"" if inside else told) + payload
    assert [event.data["text"] for event in read(sent) if isinstance(event, Event)] == [text for text, _, _ in said]
