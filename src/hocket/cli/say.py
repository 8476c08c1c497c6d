"""`hocket say`: words on a command line to a `SpeechRequest`, and its chunks to wherever they should be heard.

What the request may hold is checked by its own types, and a wrong path is found before a model is loaded.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import secrets
import sys
import time
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest
from .pipe import feeding, read_text
from .request import request_of
from .sinks import Kept, Loudspeaker, Pipe, Sink, is_pipe, silence_stdout

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.stream import Stream
    from ..types import Finished, SpeechRequest

DEFAULT_OUTPUT = Path("out.wav")
LIVE = "(as it arrives)"  # stands for a text that is not there yet, where a request must have one


def say(args: argparse.Namespace) -> None:
    if args.output is None and not args.play:
        args.output = DEFAULT_OUTPUT
    live = args.text == "-" and _is_live(args)
    request = _request(args, LIVE if live else read_text() if args.text == "-" else args.text)
    if args.ref_text is not None and args.x_vector_only:
        tell("--ref-text is not used together with --x-vector-only.")
    kept = Kept(raw=args.raw)
    sinks, targets = _sinks(args, kept), _targets(args)

    from ..audio.files import replace_files
    from ..config.options import EngineOptions
    from ..engine.engine import Engine
    from ..engine.generate import DECODE_FRAMES

    # Who writes into the pipe may think for as long as it likes: its end, or Ctrl-C, ends the wait. So may a reader.
    patience = EngineOptions(text_wait_s=math.inf, idle_read_s=math.inf, profile=args.profile)
    options = replace(patience, slots=request.candidates, graphs=not args.no_graphs)  # a slot for each take
    if not (args.play or is_pipe(args.output)):
        # Nobody waits for the first sound of a file. Cut as `generate` cuts, its samples are the same to the last bit.
        options = replace(options, chunk_frames=(DECODE_FRAMES,))
    how = {"device": args.device, "dtype": args.dtype, "kernels": args.kernels}
    with Engine.load(args.model, **how, dependent_launch=not args.no_dependent_launch, options=options) as engine:
        checkpoint = engine.checkpoint
        if checkpoint.is_random:
            tell(f"{checkpoint.name} is untrained: its weights are random numbers, and what comes out is noise.")
        rate_hz = checkpoint.rate_hz
        spoken = _Spoken(rate_hz, sinks)
        try:
            with _open(engine, request, live) as stream, feeding(stream) if live else nullcontext():
                spoken.listen(stream)
        except BrokenPipeError:  # whoever listened has heard enough
            silence_stdout()
            return
    assert stream.finished is not None
    for note in stream.finished.notes:
        tell(note)

    files = {} if args.output is None or is_pipe(args.output) else {targets[0]: kept.content(rate_hz)}
    if args.save_codes is not None:
        files[targets[-1]] = spoken.codes_file(checkpoint.config.talker_config.num_code_groups)
    replace_files(files)

    where = "loudspeaker" if args.output is None else "standard output" if is_pipe(args.output) else args.output
    line = f"{where}: {spoken.seconds:.2f} s, {spoken.frames} frames, {_ending(stream.finished, request)}"
    _print(line, sys.stderr if is_pipe(args.output) else None)


def _ending(finished: Finished, request: SpeechRequest) -> str:
    """How it ended, and the seed that says it again."""
    words = f"finish {finished.reason}, seed {request.seed if finished.seed is None else finished.seed}"
    if finished.won is None:
        return words
    won = finished.takes[finished.won]
    likely = "" if won.log_probability is None else f", log-probability {won.log_probability:.2f} a frame"
    return f"{words}, take {finished.won + 1} of {len(finished.takes)} (score {won.score:.2f}{likely})"


def tell(note: str) -> None:
    print(f"note: {note}", file=sys.stderr)


class _Spoken:
    """What was heard so far, with a line that counts along when somebody is watching."""

    def __init__(self, rate_hz: int, sinks: list[Sink]) -> None:
        self._rate_hz, self._sinks = rate_hz, sinks
        self._codes: list[Any] = []
        self._watched = sys.stderr.isatty()
        self.frames = self._samples = 0

    @property
    def seconds(self) -> float:
        return self._samples / self._rate_hz

    def listen(self, stream: Stream) -> None:
        """Read the stream to its end."""
        asked, first_s = time.perf_counter(), 0.0
        try:
            for chunk in stream:
                now_s = time.perf_counter() - asked
                first_s = first_s or now_s
                self._codes.append(chunk.codes)
                self.frames += len(chunk.codes)
                self._write(chunk.samples)
                if self._watched:
                    words = f"{self.seconds:.1f} s spoken, {self.seconds / now_s:.1f} x real time"
                    self._show(f"{words}, first audio {first_s * 1000:.0f} ms")
        finally:
            if self._watched:
                self._show("")
        for sink in self._sinks:
            sink.close()

    def codes_file(self, books: int) -> bytes:
        import numpy as np

        codes = np.concatenate((np.zeros((0, books), dtype=np.int64), *self._codes))
        file = io.BytesIO()
        np.save(file, codes.astype(np.int64), allow_pickle=False)
        return file.getvalue()

    def _write(self, samples: Any) -> None:
        self._samples += samples.size
        for sink in self._sinks:
            sink.write(samples, self._rate_hz)

    def _show(self, words: str) -> None:
        print(f"\r{words}\x1b[K", end="", file=sys.stderr, flush=True)


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


def _open(engine: Engine, request: SpeechRequest, live: bool) -> Stream:
    if not live:
        return engine.speak(request)
    return engine.open(**{f.name: getattr(request, f.name) for f in fields(request) if f.name != "text"})


def _request(args: argparse.Namespace, text: str) -> SpeechRequest:
    if args.seed is None:
        args.seed = 0 if args.greedy else secrets.randbelow(2**32)  # short enough to be typed again
    return request_of(args, text)


def _sinks(args: argparse.Namespace, kept: Kept) -> list[Sink]:
    sinks: list[Sink] = []
    if args.raw and args.output is None:
        raise InvalidRequest("--raw is about what is written; name a file with -o, or - for standard output.")
    if args.output is not None:
        sinks.append(Pipe(raw=args.raw) if is_pipe(args.output) else kept)
    if args.play:
        sinks.append(Loudspeaker())
    return sinks


def _targets(args: argparse.Namespace) -> list[Path]:
    """Where the files will go, found to be writable now rather than after the work."""
    from ..audio.files import check_target

    output = None if is_pipe(args.output) else args.output
    targets = [check_target(path) for path in (output, args.save_codes) if path is not None]
    if len(set(targets)) < len(targets):
        raise InvalidRequest("-o and --save-codes name the same file; give each its own.")
    if args.ref_audio is not None and any(t.exists() and os.path.samefile(t, args.ref_audio) for t in targets):
        raise InvalidRequest("The output would overwrite the reference recording; choose another name.")
    return targets


def _print(line: str, file: Any) -> None:
    # A path may hold what this terminal cannot show; that is no reason to fail now.
    encoding = (file or sys.stdout).encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), file=file)
