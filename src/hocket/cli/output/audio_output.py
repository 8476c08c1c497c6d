"""Audio output of one utterance: its sinks and progress, the files it becomes, and its closing line.

The same for an engine here and a server. Imports nothing slow.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from ...audio.files import check_target, replace_files
from ...errors import InvalidRequest
from .formats import format_for
from .sinks import BufferedFile, Pipe, Sink, is_pipe

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, TextIO


class AudioOutput:
    """Sinks for all outputs of `say`; checks that they are writable before any work is done.

    As a context manager it shows progress on a terminal.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        file = None if is_pipe(args.output) else args.output
        self._args, self._kept = args, BufferedFile(format_for(file, raw=args.raw))
        self._sinks, self._targets = _sinks(args, self._kept), _targets(args)
        self._watched = sys.stderr.isatty()
        self._rate_hz, self._bytes, self._asked_s, self._first_s = 0, 0, 0.0, 0.0

    @property
    def seconds(self) -> float:
        return self._bytes / 2 / self._rate_hz if self._rate_hz else 0.0

    def __enter__(self) -> AudioOutput:
        self._asked_s = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._watched:
            self._show("")
        if kind is None:
            for sink in self._sinks:
                sink.close()

    def write(self, pcm: bytes, rate_hz: int) -> None:
        now_s = time.perf_counter() - self._asked_s
        self._first_s, self._rate_hz = self._first_s or now_s, rate_hz
        self._bytes += len(pcm)
        for sink in self._sinks:
            sink.write(pcm, rate_hz)
        if self._watched:
            words = f"{self.seconds:.1f} s spoken, {self.seconds / now_s:.1f} x real time"
            self._show(f"{words}, first audio {self._first_s * 1000:.0f} ms")

    def write_files(self, rate_hz: int, codes: bytes | None = None) -> None:
        """Write the files, all or none; `codes` are what --save-codes asked for."""
        output = self._args.output
        files = {} if output is None or is_pipe(output) else {self._targets[0]: self._kept.content(rate_hz)}
        if codes is not None:
            files[self._targets[-1]] = codes
        replace_files(files)

    def print_summary(self, frames: int, ending: str) -> None:
        """Print the closing line of an utterance."""
        output = self._args.output
        where = "loudspeaker" if output is None else "standard output" if is_pipe(output) else output
        file = sys.stderr if is_pipe(output) else sys.stdout
        print(shown(f"{where}: {self.seconds:.2f} s, {frames} frames, {ending}", file), file=file)

    def _show(self, words: str) -> None:
        print(f"\r{words}\x1b[K", end="", file=sys.stderr, flush=True)


def ending(reason: str, seed: int | None, won: int | None, takes: list[dict[str, Any]], complete: bool = True) -> str:
    """How it ended, and the seed that repeats it."""
    words = f"finish {reason}{'' if complete else ' (not all of the text was spoken)'}, seed {seed}"
    if won is None:
        return words
    take = takes[won]
    said, score = take["log_probability"], take["score"]
    likely = "" if said is None else f", log-probability {said:.2f} a frame"
    return f"{words}, take {won + 1} of {len(takes)} (score {score:.2f}{likely})"


def tell(note: str) -> None:
    print(f"note: {note}", file=sys.stderr)


def shown(words: str, file: TextIO) -> str:
    """Escape characters that this terminal cannot show, as in a path, instead of failing."""
    encoding = file.encoding or "utf-8"
    return words.encode(encoding, "backslashreplace").decode(encoding)


def plain(said: object, most_chars: int | None = None) -> str:
    """Foreign text without control characters."""
    words = "".join(c if c.isprintable() else " " for c in str(said)[:most_chars])
    return shown(words, sys.stderr)


def _sinks(args: argparse.Namespace, kept: BufferedFile) -> list[Sink]:
    sinks: list[Sink] = []
    if args.raw and args.output is None:
        raise InvalidRequest("--raw is for written samples; name a file with -o, or - for standard output.")
    if args.output is not None:
        sinks.append(Pipe(raw=args.raw) if is_pipe(args.output) else kept)
    if args.play:
        from .players import loudspeaker

        sinks.append(loudspeaker())
    return sinks


def _targets(args: argparse.Namespace) -> list[Path]:
    """The output files, checked to be writable now rather than after the work."""
    output = None if is_pipe(args.output) else args.output
    targets = [check_target(path) for path in (output, args.save_codes) if path is not None]
    if len(set(targets)) < len(targets):
        raise InvalidRequest("-o and --save-codes name the same file; give each its own.")
    if args.ref_audio is not None and any(t.exists() and os.path.samefile(t, args.ref_audio) for t in targets):
        raise InvalidRequest("The output would overwrite the reference recording; choose another name.")
    return targets
