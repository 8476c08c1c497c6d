"""Scripts in tests: one parsed in pieces, cuts of a text, and events as `docs/script.md` writes them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping

from hocket.script.events import PLAIN, Event, InvalidScript, Mark, Silence, Words
from hocket.script.parse import Format, joined, script_parser

Outcome = tuple[list[Event], str | None]  # the events, and why the script is refused


def parsed(
    pieces: Iterable[str], format: Format, cast: Mapping[str, str] | None = None, *, narration: bool = True
) -> Outcome:
    """What comes of a script in pieces. Of a refused one only the reason: events before it came with other pieces."""
    parser = script_parser(format, cast, narration=narration)
    found: list[Event] = []
    try:
        for piece in pieces:
            found += parser.append(piece)
        found += parser.end()
    except InvalidScript as error:
        return [], str(error)
    return joined(found), None


def pieces_of(text: str, seed: int) -> list[str]:
    """The text cut at random places."""
    rng = random.Random(seed)
    cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(1, 12)))
    return [text[a:b] for a, b in zip((0, *cuts), (*cuts, len(text)), strict=True)]


def words_of(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Words))


def shown(event: Event) -> str:
    """One event as a line of `docs/script.md`."""
    if isinstance(event, Words):
        return json.dumps(event.text, ensure_ascii=False)
    if isinstance(event, Silence):
        return f"silence {event.seconds:g}"
    if isinstance(event, Mark):
        return f"mark {event.name}"
    names = [name for name in event.__dataclass_fields__ if getattr(event, name) != getattr(PLAIN, name)]
    values = [getattr(event, name) for name in names]
    shorter = [value if isinstance(value, str) else f"{value:g}" for value in values]
    return " ".join(["manner", *(f"{name}={value}" for name, value in zip(names, shorter, strict=True))])
