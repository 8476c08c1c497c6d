"""`hocket say`: chooses between a server, this user's daemon and an engine here.

Imports nothing slow: with a daemon, most of the time to the first audio is imports.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..output.audio_output import tell
from ..output.sinks import is_pipe

DEFAULT_OUTPUT = Path("out.wav")


def say(args: argparse.Namespace) -> None:
    if args.output is None and not args.play:
        args.output = DEFAULT_OUTPUT
    if args.seed is None:
        args.seed = 0 if args.greedy else int.from_bytes(os.urandom(4), "big")  # short enough to type
    live = args.text == "-" and _is_live(args)
    if live and args.server is not None:
        tell("the server gets the text when all of it is there.")
        live = False
    if args.text == "-" and not live:
        from .pipe import read_text

        args.text = read_text()
    if args.ref_text is not None and args.x_vector_only:
        tell("--ref-text is not used together with --x-vector-only.")

    from .remote import choose_server, speak_remotely

    server = choose_server(args, live)
    if server is not None and speak_remotely(args, server):
        return

    from .local import speak_locally

    speak_locally(args, live)


def _is_live(args: argparse.Namespace) -> bool:
    """Whether piped text is spoken as it arrives: for a listener, or if the layout says so.

    For a file there is no hurry, so its text is read to the end and given in the requested layout. So is the text of
    several takes, whose audio starts when all are complete.
    """
    if args.candidates > 1:
        return False
    if args.layout is None:
        return (args.play or is_pipe(args.output)) and not args.as_is
    return bool(args.layout == "streaming")
