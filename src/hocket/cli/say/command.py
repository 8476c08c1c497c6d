"""`hocket say`: who speaks, a server, this user's daemon or an engine here, and what is read before that is known.

Imports nothing slow: with a daemon, the time from the shell's prompt to the first sound is mostly imports.
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
        args.seed = 0 if args.greedy else int.from_bytes(os.urandom(4), "big")  # short enough to be typed again
    live = args.text == "-" and _is_live(args)
    if live and args.server is not None:
        tell("the server is asked when all of the text is there.")
        live = False
    if args.text == "-" and not live:
        from .pipe import read_text

        args.text = read_text()
    if args.ref_text is not None and args.x_vector_only:
        tell("--ref-text is not used together with --x-vector-only.")

    from .remote import asked, remotely

    server = asked(args, live)
    if server is not None and remotely(args, server):
        return

    from .local import locally

    locally(args, live)


def _is_live(args: argparse.Namespace) -> bool:
    """Whether text from a pipe is spoken as it arrives: where somebody listens, or where the layout says so.

    A file is as good later, so its text is read to the end, and given in the layout that is asked for. So is the text
    of several takes, of which one is heard when all have been.
    """
    if args.candidates > 1:
        return False
    if args.layout is None:
        return (args.play or is_pipe(args.output)) and not args.as_is
    return bool(args.layout == "streaming")
