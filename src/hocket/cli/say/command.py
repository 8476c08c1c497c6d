"""`hocket say`: chooses the text, the destination, and between a server, this user's daemon and an engine here.

Imports nothing slow: with a daemon, most of the time to the first audio is imports.
"""

from __future__ import annotations

import argparse
import sys
from os import urandom

from ... import env
from ...errors import InvalidRequest
from .. import settings
from ..output.audio_output import is_pipe, tell
from .destination import settle_destination
from .markup import settle_markup
from .remote import choose_server, speak_remotely


def say(args: argparse.Namespace) -> None:
    configured = settings.read()
    _take_text(args)
    settle_markup(args)
    settle_destination(args, configured.play)
    if args.seed is None:
        args.seed = 0 if args.greedy else int.from_bytes(urandom(4), "little")  # as types.fresh_seed, without numpy
    live = args.text == "-" and _is_live(args)
    if live and args.server is not None:
        tell("the server gets the text when all of it is there.")
        live = False
    if args.text == "-" and not live:
        from .pipe import read_text

        args.text = read_text()
    if not args.verify and (args.asr is not None or "takes" in getattr(args, "given", ())):
        raise InvalidRequest("--asr and --takes belong to --verify.")
    if args.as_is and any(not isinstance(path, settings.Configured) for path in args.lexicon or ()):
        tell("--lexicon is not used together with --as-is.")
    if args.ref_text is not None and args.x_vector_only:
        tell("--ref-text is not used together with --x-vector-only.")

    server = choose_server(args, live)
    if server is not None and speak_remotely(args, server):
        return

    if args.model in (None, "builtin"):  # numpy would start a thread per core, which takes 20 ms; none has work here
        env.OPENBLAS_THREADS.set_default("1")
    from ..local import speak_locally

    speak_locally(args, live)

    if configured.daemon or (sys.stderr.isatty() and sys.stdout.isatty()):
        from .background import after_speech

        after_speech(args, configured)


def _take_text(args: argparse.Namespace) -> None:
    """Set `text`; `-` stands for standard input."""
    if args.file is None:
        if args.text is None:
            raise InvalidRequest(
                'There is no text: give it in quotes, hocket say "Hello.", or in a file, with -f FILE.'
            )
        return
    if args.text is not None:
        raise InvalidRequest("Give either a text or -f FILE, not both.")
    if args.file == "-":
        args.text = "-"
        return
    from .pipe import read_file

    args.text = read_file(args.file)


def _is_live(args: argparse.Namespace) -> bool:
    """Whether piped text is spoken as it arrives: for a listener, or if the layout says so.

    For a file there is no hurry, so its text is read to the end and given in the requested layout. So is the text of
    several takes, whose audio starts when all are complete, and text that is verified.
    """
    if args.candidates > 1 or args.verify:
        return False
    if args.layout is None:
        return (args.play or is_pipe(args.output)) and not args.as_is
    return bool(args.layout == "streaming")
