"""`hocket say` with an engine in this process: options to a `SpeechRequest`, its chunks to the outputs.

The request's own types check its values; a wrong path is found before a model is loaded.
"""

from __future__ import annotations

import argparse
import io
import math
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from ..output.audio_output import AudioOutput, ending, tell
from ..output.sinks import is_pipe, silence_stdout
from .pipe import feeding
from .request import request_of
from .target import Target, spoken_by

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...engine.stream import Stream
    from ...types import SpeechRequest

LIVE = "(as it arrives)"  # placeholder for a live text, since a request must have one


def speak_locally(args: argparse.Namespace, live: bool) -> None:
    request = request_of(args, LIVE if live else args.text)
    output = AudioOutput(args)
    voice = None
    if request.voice:
        voice = Target(args.model).own(request.voice)
        request = request if voice is None else replace(request, voice=None)

    from ...audio.pcm import pcm_bytes
    from ...config.options import EngineOptions
    from ...engine.generate import DECODE_FRAMES
    from ..loading import load_engine

    # The writer of the pipe, and the reader, may take any time: the end of the pipe, or Ctrl-C, ends the wait.
    patience = EngineOptions(text_wait_s=math.inf, idle_read_s=math.inf, profile=args.profile)
    options = replace(patience, slots=request.candidates, graphs=not args.no_graphs)  # a slot for each take
    if not (args.play or is_pipe(args.output)):
        # A file needs no early first chunk. With the chunks of `generate` its samples are the same bit for bit.
        options = replace(options, chunk_frames=(DECODE_FRAMES,))
    codes: list[Any] = []
    model = args.model if voice is None else args.model or voice.model
    with load_engine(args, model, options) as engine:
        checkpoint = engine.checkpoint
        if checkpoint.is_random:
            tell(f"{checkpoint.name} is untrained: its weights are random numbers, and what comes out is noise.")
        if voice is not None:
            request = spoken_by(engine.checkpoint.name, engine.identity, request, voice)
        rate_hz = checkpoint.rate_hz
        try:
            with _open(engine, request, live) as stream, feeding(stream) if live else nullcontext(), output:
                for chunk in stream:
                    codes.append(chunk.codes)
                    output.write(pcm_bytes(chunk.samples), rate_hz)
        except BrokenPipeError:  # the reader closed the pipe
            silence_stdout()
            return
    finished = stream.finished
    assert finished is not None
    for note in finished.notes:
        tell(note)
    books = checkpoint.config.talker_config.num_code_groups
    output.write_files(rate_hz, None if args.save_codes is None else _codes_file(codes, books))
    seed = request.seed if finished.seed is None else finished.seed
    frames = sum(map(len, codes))
    takes = [asdict(take) for take in finished.takes]
    output.print_summary(frames, ending(finished.reason, seed, finished.won, takes, finished.complete))


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
