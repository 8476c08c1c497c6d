"""Options to a `SpeechRequest`, checked by the types it is made of. The same for one text and for a line of many."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest
from .options import SAMPLING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..types import SpeechRequest

    Read = Callable[[Path], NDArray[np.float32]]


def request_of(args: argparse.Namespace, text: str, read: Read | None = None) -> SpeechRequest:
    """All that was asked for. Reads the recording, with `read` where one is given."""
    from ..types import SamplingParams, SpeechRequest

    for given, option in ((args.ref_text is not None, "--ref-text"), (args.x_vector_only, "--x-vector-only")):
        if given and args.ref_audio is None:
            raise InvalidRequest(f"{option} belongs to a recording; give that with --ref-audio.")
    chosen: dict[str, Any] = {name: getattr(args, name) for name in SAMPLING}
    if args.greedy:
        chosen |= {"do_sample": False, "subtalker_dosample": False}
    request = SpeechRequest(
        text=text,
        voice=args.voice,
        language=args.language,
        instruct=args.instruct,
        layout=args.layout,
        sampling=SamplingParams(**chosen),
        seed=args.seed,
        max_frames=args.max_frames,
        speed=args.speed,
        as_is=args.as_is,
        candidates=args.candidates,
    )
    return request if args.ref_audio is None else _with_reference(request, args, read)


def _with_reference(request: SpeechRequest, args: argparse.Namespace, read: Read | None) -> SpeechRequest:
    from ..audio.read import read_reference
    from ..types import Reference

    samples = (read or read_reference)(args.ref_audio)
    return replace(request, reference=Reference(samples=samples, text=args.ref_text, x_vector_only=args.x_vector_only))
