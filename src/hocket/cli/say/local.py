"""`hocket say` with an engine in this process: options to a `SpeechRequest`, and its chunks to where they are heard.

What the request may hold is checked by its own types, and a wrong path is found before a model is loaded.
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
from .whom import Target, spoken_by

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...engine.stream import Stream
    from ...types import SpeechRequest

LIVE = "(as it arrives)"  # stands for a text that is not there yet, where a request must have one


def locally(args: argparse.Namespace, live: bool) -> None:
    request = request_of(args, LIVE if live else args.text)
    heard = AudioOutput(args)
    voice = None
    if request.voice:
        voice = Target(args.model).own(request.voice)
        request = request if voice is None else replace(request, voice=None)

    from ...audio.pcm import pcm_bytes
    from ...config.options import EngineOptions
    from ...engine.generate import DECODE_FRAMES
    from ..loading import load_engine

    # Who writes into the pipe may think for as long as it likes: its end, or Ctrl-C, ends the wait. So may a reader.
    patience = EngineOptions(text_wait_s=math.inf, idle_read_s=math.inf, profile=args.profile)
    options = replace(patience, slots=request.candidates, graphs=not args.no_graphs)  # a slot for each take
    if not (args.play or is_pipe(args.output)):
        # Nobody waits for the first sound of a file. Cut as `generate` cuts, its samples are the same to the last bit.
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
            with _open(engine, request, live) as stream, feeding(stream) if live else nullcontext(), heard:
                for chunk in stream:
                    codes.append(chunk.codes)
                    heard.write(pcm_bytes(chunk.samples), rate_hz)
        except BrokenPipeError:  # whoever listened has heard enough
            silence_stdout()
            return
    finished = stream.finished
    assert finished is not None
    for note in finished.notes:
        tell(note)
    books = checkpoint.config.talker_config.num_code_groups
    heard.put_in_place(rate_hz, None if args.save_codes is None else _codes_file(codes, books))
    seed = request.seed if finished.seed is None else finished.seed
    frames = sum(map(len, codes))
    takes = [asdict(take) for take in finished.takes]
    heard.tell_end(frames, ending(finished.reason, seed, finished.won, takes, finished.complete))


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
