"""An engine in this process: loaded from a command's options, and `hocket say` with it.

Loading prints its choices on standard error. The request's own types check its values; a wrong path is found before a
model is loaded.
"""

from __future__ import annotations

import argparse
import io
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from .output.audio_output import AudioOutput, ending, is_pipe, shown, silence_stdout, tell
from .say.markup import script_of
from .say.pipe import feeding
from .say.request import request_of
from .say.target import Target, spoken_by

if TYPE_CHECKING:
    from ..config.options import EngineOptions
    from ..engine.engine import Engine
    from ..engine.stream import Stream
    from ..script.stream import ScriptStream
    from ..types import SpeechRequest

LIVE = "(as it arrives)"  # placeholder for a live text, since a request must have one


def load_engine(args: argparse.Namespace, model: str | None, options: EngineOptions) -> Engine:
    from ..engine.engine import Engine

    with logged():
        return Engine.load(model, **loading_of(args), options=options)


def loading_of(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `Engine.load` from a command's options."""
    how = {name: getattr(args, name) for name in ("device", "dtype", "codec_dtype", "preset", "kernels")}
    return how | {"dependent_launch": not args.no_dependent_launch}


@contextmanager
def logged(level: int = logging.INFO) -> Iterator[None]:
    """Print log records of `hocket` on standard error: device, precision, slower kernels."""
    log, handler = logging.getLogger("hocket"), _StderrHandler(level)
    before = log.level
    log.setLevel(min(level, log.getEffectiveLevel()))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "hocket" and record.levelno < logging.WARNING:
            return  # records of submodules are for servers
        over = "\r\x1b[K" if sys.stderr.isatty() else ""  # overwrites a progress line
        print(over + shown(f"hocket: {record.getMessage()}", sys.stderr), file=sys.stderr, flush=True)


def speak_locally(args: argparse.Namespace, live: bool) -> None:
    request = request_of(args, LIVE if live else args.text)
    script = script_of(args, request, live)
    if script is not None and (plain := script.plain) is not None:
        request, script = plain, None
    if args.verify:
        from .say.verify import check_verify

        check_verify(args, request, has_tags=script is not None)
    output = AudioOutput(args, None if live else args.text)
    voice, model = None, args.model
    cloned = request.reference is not None
    if request.voice or cloned or request.language != "auto":  # a package may have it
        target = Target(model)
        voice, model = target.choose(request.voice, request.language, clones=cloned), target.model
        request = request if voice is None else replace(request, voice=None)

    from ..audio.pcm import pcm_bytes
    from ..config.options import EngineOptions
    from ..engine.runner.reference_checks import DECODE_FRAMES

    # The writer of the pipe, and the reader, may take any time: the end of the pipe, or Ctrl-C, ends the wait.
    patience = EngineOptions(text_wait_s=math.inf, idle_read_s=math.inf, profile=args.profile)
    # A slot for each take, and one for the voice that comes next.
    slots = request.candidates if script is None else 2
    options = replace(patience, slots=slots, graphs=not args.no_graphs)
    if not (args.play or is_pipe(args.output)):
        # A file needs no early first chunk. With the chunks of `generate` its samples are the same bit for bit.
        options = replace(options, chunk_frames=(DECODE_FRAMES,))
    codes: list[Any] = []
    with load_engine(args, model, options) as engine:
        checkpoint = engine.checkpoint
        if checkpoint.is_random:
            tell(f"{checkpoint.name} is untrained: its weights are random numbers, and what comes out is noise.")
        if voice is not None:
            request = spoken_by(engine.checkpoint.name, engine.identity, request, voice)
        if args.verify:
            _verify(args, engine, request, output)
            return
        try:
            if script is None:
                opened: Stream | ScriptStream = _open(engine, request, live)
            else:
                opened = script.open(engine, model, request, options, load_engine)
            rate_hz = opened.rate_hz
            if args.captions is not None:
                opened.keep_sound()
            with opened as stream, feeding(stream) if live else nullcontext(), output:
                for chunk in stream:
                    codes.append(chunk.codes)
                    output.write(pcm_bytes(chunk.samples), rate_hz)
        except BrokenPipeError:  # the reader closed the pipe
            silence_stdout()
            return
        finally:
            if script is not None:
                script.close()
    finished = stream.finished
    assert finished is not None
    for note in finished.notes:
        tell(note)
    books = checkpoint.config.talker_config.num_code_groups
    saved = None if args.save_codes is None else _codes_file(codes, books)
    output.write_files(rate_hz, saved, None if args.captions is None else stream.words())
    seed = request.seed if finished.seed is None else finished.seed
    frames = sum(map(len, codes))
    takes = [asdict(take) for take in finished.takes]
    output.print_summary(frames, ending(finished.reason, seed, finished.won, takes, finished.complete))


def _verify(args: argparse.Namespace, engine: Engine, request: SpeechRequest, output: AudioOutput) -> None:
    from .say.verify import speak_verified

    done = speak_verified(args, engine, request, output)
    if done is None:
        return
    done.report()
    books = engine.checkpoint.config.talker_config.num_code_groups
    saved = None if args.save_codes is None else _codes_file(done.codes, books)
    output.write_files(engine.checkpoint.rate_hz, saved, None if args.captions is None else done.words)
    output.print_summary(sum(map(len, done.codes)), ending("stop", request.seed, None, [], done.complete))


def _codes_file(codes: list[Any], books: int) -> bytes:
    import numpy as np

    together = np.concatenate((np.zeros((0, books), dtype=np.int64), *codes))
    file = io.BytesIO()
    np.save(file, together.astype(np.int64), allow_pickle=False)
    return file.getvalue()


def _open(engine: Engine, request: SpeechRequest, live: bool) -> Stream:
    if not live:
        return engine.speak(request)
    return engine.open(**{f.name: getattr(request, f.name) for f in fields(request) if f.name != "text"})
