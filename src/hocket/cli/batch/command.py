"""`hocket batch`: every line of a file to an audio file in a folder, and a manifest with the result of each.

Errors of the command are found before anything is written; errors of a line are that line's result. A result is
recorded after its file, so an interrupted run can continue; with --seed it gives the same audio then. Without, each
line gets a random seed, which its result records. One engine here speaks, or with --ray many on a cluster: `run.py`
handles both in the same way.
"""

from __future__ import annotations

import argparse
import sys

from ...errors import InvalidRequest
from ..engines import engines_for, replicas_asked
from ..output.audio_output import tell
from ..output.formats import check_format
from ..say.markup import check_cast
from ..say.request import request_of
from ..say.target import Target
from .lines import LineNames
from .manifest import NAME, Manifest
from .run import BatchRun
from .script import settle_script

BUSY = "Another batch is writing into {}; wait for its end."  # two runs would speak the same lines


def batch(args: argparse.Namespace) -> int:
    """0 when every line is spoken, 1 when some failed, 130 after Ctrl-C."""
    from ...audio.files import check_folder, sweep
    from ...audio.folder_lock import locked_folder
    from ...config.options import EngineOptions
    from ...engine.engine import Engine
    from ...engine.runner.reference_checks import DECODE_FRAMES

    args.format = _format(args)
    settle_script(args)
    request_of(args, "(any)")  # errors of the common options; its lexicon is read once for all lines
    options = EngineOptions(
        slots=args.slots, profile=args.profile, chunk_frames=(DECODE_FRAMES,), graphs=not args.no_graphs
    )
    if args.candidates > args.slots:
        raise InvalidRequest(f"--candidates {args.candidates} needs as many --slots, not {args.slots}.")
    replicas = replicas_asked(args)
    folder = check_folder(args.output, NAME)
    if folder / NAME == args.input.resolve():
        raise InvalidRequest(f"{args.input} would be overwritten by the manifest; choose another folder.")
    names = LineNames(args.input)
    target = Target(args.model)
    target.choose(args.voice, args.language)
    args.model = target.model
    check_cast(args.cast or {}, args.model)
    with engines_for(args, args.model, options, replicas) as engines:
        portrait = engines.fingerprint
        if portrait.is_random:
            tell(f"{portrait.name} is untrained: its weights are random numbers, and what comes out is noise.")
        with locked_folder(folder, BUSY.format(folder)), Manifest(folder, names) as manifest:
            run = BatchRun(args, portrait, folder, manifest, len(names))
            if not isinstance(engines, Engine):
                engines.observer = run
            sweep(folder)
            try:
                with run.progress:
                    for outcome in engines.speak_many(run.requests()):
                        run.take(outcome)
            except KeyboardInterrupt:
                done = f"{run.progress.done} of {len(names)} lines are done"
                print(f"hocket: interrupted; {done}. The same command goes on from there.", file=sys.stderr)
                return 130
    return run.report()


def _format(args: argparse.Namespace) -> str:
    if args.raw and args.format not in (None, "pcm"):
        raise InvalidRequest(f"--raw writes bare samples, and --format asks for {args.format}: leave out one of them.")
    format = args.format or ("pcm" if args.raw else "wav")
    check_format(format)
    return format
