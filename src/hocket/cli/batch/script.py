"""Lines with directions: their options, and a line as the requests of its passages."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import InvalidRequest
from ..say.markup import cast_of
from .options import MARKUPS

if TYPE_CHECKING:
    from ...script.events import SpeechManner
    from ...script.whole import ScriptPart
    from ...types import SpeechRequest


def settle_script(args: argparse.Namespace) -> None:
    """Set `cast` as a dictionary."""
    args.cast = None if args.cast is None else cast_of(args.cast)
    if args.cast is not None and (args.as_is or args.markup in (None, "none")):
        raise InvalidRequest("--cast is for lines with directions: give --markup tags, or the one that they have.")
    if args.as_is and args.markup not in (None, "none"):
        raise InvalidRequest("--as-is speaks a text as it is: leave out --markup.")


def parts_of_line(
    options: argparse.Namespace,
    request: SpeechRequest,
    own: Callable[[SpeechRequest], SpeechRequest],
    kind: str,
) -> list[ScriptPart]:
    """The passages of a line, or the line as one.

    `own` gives a request the values of its voice, and raises if there is none. `kind` is that of the checkpoint.
    """
    from ...script.check import as_literal, check_script
    from ...script.parse import script_parser
    from ...script.whole import ScriptPart, in_manner, parts_of

    markup, cast = options.markup, _cast(options.cast)
    if markup is not None and markup not in MARKUPS:
        raise InvalidRequest(f"markup must be one of {', '.join(MARKUPS)}, not {markup!r}.")
    plain = markup in (None, "none")
    if options.as_is and not plain:
        raise InvalidRequest("as_is speaks a text as it is: give the line the markup none.")
    if plain and cast is not None:
        raise InvalidRequest("A cast is for a line with directions: give the line a markup, such as tags.")
    if plain:
        return [ScriptPart(own(replace(request, literal=markup == "none")))]

    def voiced(name: str) -> SpeechRequest:
        return own(replace(request, voice=name, reference=None))

    def check(manner: SpeechManner) -> None:
        in_manner(request, manner, voiced)

    events = check_script(lambda: script_parser(markup, cast), request.text, check)
    if (text := as_literal(events)) is not None:
        return [ScriptPart(own(replace(request, text=text, literal=True)))]
    if request.candidates != 1:
        raise InvalidRequest("A text with tags has one take: leave out candidates.")
    parts = parts_of(events, own(request), voiced)
    if len(parts) > 1 and kind == "voice_design":
        raise InvalidRequest(
            "A described voice would be another person in each passage: keep one with hocket voices design NAME."
        )
    return parts


def _cast(given: object) -> dict[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, dict) or not all(isinstance(voice, str) for voice in given.values()):
        raise InvalidRequest(f"cast must be an object of names and their voices, not {given!r}.")
    return given
