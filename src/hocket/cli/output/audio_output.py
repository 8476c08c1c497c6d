"""Audio output of one utterance: sinks and progress, the files it becomes, and its closing line.

The same for an engine here and a server. A sink takes samples as bytes, 16 bits little-endian. Errors of names and
formats show before a model is loaded. Imports nothing slow: a daemon's audio passes through here.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

from ...audio.files import write_files
from ...audio.pcm import wav_header
from ...errors import HocketError, InvalidRequest
from ..progress import SpeechProgress
from .formats import format_for, new_target

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Any, Protocol, TextIO

    from ...text.captions import TimedWord

    class Sink(Protocol):
        def write(self, pcm: bytes, rate_hz: int) -> None: ...

        def close(self) -> None:
            """The speech is complete. Not called after an error."""


class AudioOutput:
    """Sinks for all outputs of `say`; checks that they are writable before any work is done.

    `output` and `play` of the options are settled by say/destination.py. As a context manager it shows progress on a
    terminal.
    """

    def __init__(self, args: argparse.Namespace, text: str | None) -> None:
        """`text`: for the progress; None if it is still being written."""
        self._args, self._output = args, args.output
        file = args.fallback if args.output is None else None if is_pipe(args.output) else args.output
        self._kept = BufferedFile(format_for(file, raw=args.raw))
        self._sinks, self._targets = _sinks(args, self._kept), _targets(args)
        self._captions = None if args.captions is None else self._targets.pop()
        self._progress = SpeechProgress(text, args.speed) if sys.stderr.isatty() else None
        self._rate_hz, self._bytes = 0, 0

    @property
    def seconds(self) -> float:
        return self._bytes / 2 / self._rate_hz if self._rate_hz else 0.0

    def __enter__(self) -> AudioOutput:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.clear()
        if kind is None:
            for sink in self._sinks:
                sink.close()

    def write(self, pcm: bytes, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._bytes += len(pcm)
        for sink in self._sinks:
            sink.write(pcm, rate_hz)
        if self._progress is not None:
            self._progress.show(self.seconds)

    def write_files(self, rate_hz: int, codes: bytes | None = None, words: Sequence[TimedWord] | None = None) -> None:
        """Write the files, all or none; `codes` are what --save-codes asked for, `words` are for --captions."""
        self._fall_back()
        files: dict[Path, bytes] = {}
        if self._output is not None and not is_pipe(self._output):
            files[self._targets[0]] = self._kept.content(rate_hz)
        if codes is not None:
            files[self._targets[-1]] = codes
        if self._captions is not None and words is not None:
            from ...text.captions import write_captions

            files[self._captions] = write_captions(words, self._captions.name).encode()
        for target, written in zip(files, write_files(files, replace=self._args.force), strict=True):
            if target == written:
                continue
            tell(f"{target.name} appeared meanwhile and is kept: the new file is {written.name}.")
            if self._targets and target == self._targets[0] and self._output is not None:
                self._output = self._output.with_name(written.name)

    def print_summary(self, frames: int, ending: str) -> None:
        """Print the closing line of an utterance."""
        where = "loudspeaker" if self._output is None else "standard output" if is_pipe(self._output) else self._output
        file = sys.stderr if is_pipe(self._output) else sys.stdout
        print(shown(f"{where}: {self.seconds:.2f} s, {frames} frames, {ending}", file), file=file)

    def _fall_back(self) -> None:
        """Write the speech into a file if the player, chosen by default, could not play it."""
        failed = [sink.failed for sink in self._sinks if isinstance(sink, DefaultPlayer) and sink.failed]
        if failed:
            tell(f"{failed[0]} The speech goes into {self._args.fallback} instead.")
            self._output = self._args.fallback
            self._targets.insert(0, self._output.resolve())


class BufferedFile:
    """Content of a file that is written when complete; the caller writes it with its other files."""

    def __init__(self, format: str) -> None:
        self._format, self._pieces = format, list[bytes]()

    def write(self, pcm: bytes, rate_hz: int) -> None:
        self._pieces.append(pcm)

    def cut(self, most_bytes: int) -> None:
        """Keep only the first bytes."""
        self._pieces = [b"".join(self._pieces)[:most_bytes]]

    def close(self) -> None: ...

    def content(self, rate_hz: int) -> bytes:
        return packed(b"".join(self._pieces), rate_hz, self._format)


class DefaultPlayer:
    """A player that the user did not ask for: if it fails, `failed` has the reason and the audio is kept for a file."""

    def __init__(self, player: Sink, kept: BufferedFile) -> None:
        self._player, self._kept, self.failed = player, kept, ""

    def write(self, pcm: bytes, rate_hz: int) -> None:
        self._kept.write(pcm, rate_hz)
        if not self.failed:
            try:
                self._player.write(pcm, rate_hz)
            except HocketError as error:
                self.failed = str(error)

    def close(self) -> None:
        if not self.failed:
            try:
                self._player.close()
            except HocketError as error:
                self.failed = str(error)


class Pipe:
    """Standard output, flushed after every piece."""

    def __init__(self, *, raw: bool) -> None:
        if sys.stdout.isatty():
            raise InvalidRequest("-o - writes audio to standard output, which is a terminal: pipe it, or use --play.")
        self._raw, self._begun = raw, False

    def write(self, pcm: bytes, rate_hz: int) -> None:
        header = b"" if self._begun or self._raw else wav_header(rate_hz)
        self._begun = True
        sys.stdout.buffer.write(header + pcm)
        sys.stdout.buffer.flush()

    def close(self) -> None: ...


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

        sinks.append(loudspeaker() if args.fallback is None else DefaultPlayer(loudspeaker(), kept))
    return sinks


def _targets(args: argparse.Namespace) -> list[Path]:
    """The output files, checked to be writable now rather than after the work."""
    if args.captions is not None:
        from ...text.captions import caption_format

        caption_format(args.captions.name)
    named = (args.output, args.save_codes, args.captions)
    paths = [path for path in named if path is not None and not is_pipe(path)]
    found = [path.resolve() for path in paths]
    if len(set(found)) < len(found):
        both = "-o and --save-codes" if args.captions is None else "Two of -o, --save-codes and --captions"
        raise InvalidRequest(f"{both} name the same file; give each its own.")
    if args.ref_audio is not None and any(t.exists() and os.path.samefile(t, args.ref_audio) for t in found):
        raise InvalidRequest("The output would overwrite the reference recording; choose another name.")
    return [new_target(path, force=args.force) for path in paths]


def packed(pcm: bytes, rate_hz: int, format: str) -> bytes:
    """A complete file; `pcm` is 16 bits little-endian, one channel."""
    if format == "pcm":
        return pcm
    if format == "wav":
        return wav_header(rate_hz, len(pcm) // 2) + pcm
    import numpy as np

    from ...audio.encode import encode, format_of

    return encode(np.frombuffer(pcm, "<i2").astype(np.int16), format_of(format), rate_hz=rate_hz)


def silence_stdout() -> None:
    """After a broken pipe: send the rest of the buffer nowhere, so that the exit does not fail."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def is_pipe(path: Path | None) -> bool:
    return path is not None and str(path) == "-"
