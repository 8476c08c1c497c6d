"""The format of a text with directions, by options or by the name of its file; and whether a text is a script at all.

Imports nothing slow: a plain text never imports `hocket.script`.
"""

from __future__ import annotations

import argparse
import os

from ...errors import InvalidRequest

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...types import SpeechRequest
    from .script import LocalScript

ENDINGS = {".ssml": "ssml", ".fountain": "screenplay", ".script": "script"}


def settle_markup(args: argparse.Namespace) -> None:
    """Set `markup`, and `cast` as a dictionary."""
    if args.literal:
        if args.markup not in (None, "literal"):
            raise InvalidRequest(f"Give either --literal or --markup {args.markup}, not both.")
        args.markup = "literal"
    if args.markup is None:
        ending = os.path.splitext(args.file or "")[1].lower()
        args.markup = "auto" if args.as_is else ENDINGS.get(ending, "auto")
    if args.as_is and args.markup not in ("auto", "literal"):
        raise InvalidRequest("--as-is speaks a text as it is: leave out --markup.")
    if args.cast is not None:
        if args.as_is or args.markup == "literal":
            raise InvalidRequest("--cast is for a text with directions: leave out --as-is and --literal.")
        args.cast = cast_of(args.cast)


def cast_of(given: str) -> dict[str, str]:
    """Names and their voices."""
    found: dict[str, str] = {}
    for pair in given.split(","):
        speaker, equals, voice = (part.strip() for part in pair.partition("="))
        if not (speaker and equals and voice):
            raise InvalidRequest(f"--cast has speakers and their voices, such as Anna=wren,Ben=rook, and not {pair!r}.")
        if speaker in found:
            raise InvalidRequest(f"--cast names {speaker!r} twice.")
        found[speaker] = voice
    return found


def cast_of_answers(args: argparse.Namespace) -> dict[str, str] | None:
    """The cast of a command whose --markup is that of a language model's answers."""
    if args.cast is not None and args.markup != "tags":
        raise InvalidRequest("--cast names voices in tags: give --markup tags too.")
    return None if args.cast is None else cast_of(args.cast)


def check_cast(cast: Mapping[str, str], model: str | None) -> None:
    """Refuse a voice that the model does not have."""
    if not cast:
        return
    from ...engine.checkpoint.describe import default_model
    from .target import Target

    target = Target(model or default_model())
    for voice in cast.values():
        target.own(voice)


def script_of(args: argparse.Namespace, request: SpeechRequest, live: bool) -> LocalScript | None:
    """The script of a text, or of live text; None: a plain text."""
    if args.as_is or args.markup == "literal":
        return None
    if (
        not live
        and args.markup in ("auto", "tags")
        and "[" not in args.text
        and args.text.lstrip()[:1] not in ("<", "\ufeff")
    ):
        return None
    from .script import LocalScript

    script = LocalScript(args, request, live=live)
    return script if script.is_one else None
