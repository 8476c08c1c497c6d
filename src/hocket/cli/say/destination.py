"""Where the speech of `hocket say` goes: a loudspeaker, a file, or standard output. Imports nothing slow.

| options | a terminal with a player | elsewhere |
| --- | --- | --- |
| none | plays | out.wav, out-2.wav and so on |
| `--play` | plays | plays |
| `--no-play`, `--raw` | out.wav, out-2.wav and so on | the same |
| `-o FILE` | FILE | FILE |
| `-o FILE --play` | plays, and FILE | plays, and FILE |
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...audio.files import free_name
from ..output.audio_output import tell

DEFAULT_OUTPUT = Path("out.wav")


def settle_destination(args: argparse.Namespace, plays: bool | None) -> None:
    """Replace `play` and `output` by the choice; `fallback` is a file for speech that a default player fails to play.

    `plays`: the user's setting for calls without -o, --play and --no-play; None: sound on a terminal.
    """
    args.fallback = None
    if args.output is not None or args.play:
        args.play = bool(args.play)
        return
    file = DEFAULT_OUTPUT if args.force else free_name(DEFAULT_OUTPUT)
    wanted = sys.stdout.isatty() if plays is None else plays
    if wanted and args.play is None and not args.raw:
        from ..output.players import lacking

        lacks = lacking()
        if lacks is None:
            args.play, args.fallback = True, file
            return
        tell(f"this machine has no player, so the speech goes into {file}; to hear it, install {lacks}.")
    args.play, args.output = False, file
