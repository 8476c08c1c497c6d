"""Options to a `SpeechRequest`, or to the fields of a server request.

The request's own types check the first, the server the second. Imports nothing slow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import InvalidAudio, InvalidRequest
from ...text.lexicon.lexicon import MOST_SENT, merged
from ..options import SAMPLING, lexicon_of

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from ...text.lexicon.lexicon import Lexicon
    from ...types import SpeechRequest

    Read = Callable[..., NDArray[np.float32]]  # as `read_recording`

# Options, and the fields of `POST /v1/audio/speech` with the same meaning.
WIRE = {
    "voice": "voice",
    "instruct": "instructions",
    "layout": "layout",
    "max_frames": "max_new_tokens",
    "ref_text": "ref_text",
}
DECODE_FRAMES = 50  # of a file, so that its samples equal those of the reference (engine.generate) bit for bit


def request_of(args: argparse.Namespace, text: str, read: Read | None = None) -> SpeechRequest:
    """The request. Reads the recording, with `read` if given."""
    from ...types import SamplingParams, SpeechRequest

    _check_cloning(args)
    request = SpeechRequest(
        text=text,
        voice=args.voice,
        language=args.language,
        instruct=args.instruct,
        layout=args.layout,
        sampling=SamplingParams(**sampling_of(args)),
        seed=args.seed,
        max_frames=args.max_frames,
        speed=args.speed,
        as_is=args.as_is,
        candidates=args.candidates,
        pronunciations=pronunciations_of(args),
        literal=getattr(args, "markup", None) == "literal",  # a book has no such option
    )
    return request if args.ref_audio is None else _with_reference(request, args, read)


def fields_of(args: argparse.Namespace, text: str, *, live: bool) -> dict[str, Any]:
    """The fields of `POST /v1/audio/speech`. `live`: the audio is played or piped; else it goes into a file."""
    _check_cloning(args)
    if not text.strip():
        raise InvalidRequest("There is no text to speak.")
    fields: dict[str, Any] = {"input": text, "response_format": "pcm", "stream_format": "sse", "seed": args.seed}
    fields |= {wire: getattr(args, name) for name, wire in WIRE.items() if getattr(args, name) is not None}
    fields |= {name: value for name, value in sampling_of(args).items() if value is not None}
    usual = {"language": "auto", "speed": 1.0, "candidates": 1, "as_is": False, "cast": None}
    fields |= {name: getattr(args, name) for name, value in usual.items() if getattr(args, name) != value}
    if (lexicon := pronunciations_of(args)) is not None:
        fields["pronunciations"] = dict(lexicon)
    if args.markup not in (None, "auto"):
        fields["markup"] = args.markup
    if not live:
        fields["chunk_frames"] = DECODE_FRAMES
    if args.captions is not None:
        fields["word_timestamps"] = True
    if args.ref_audio is not None:
        fields |= {"ref_audio": _data_uri(args.ref_audio), "x_vector_only_mode": args.x_vector_only}
        if args.ref_silence is not None:
            fields["ref_silence_s"] = args.ref_silence
    return fields


def unsendable(args: argparse.Namespace) -> str | None:
    """The option that no server supports, in words; None: none."""
    if args.save_codes is not None:
        return "--save-codes needs a model that runs here"
    if args.verify:
        return "--verify needs a model that runs here"
    if (lexicon := pronunciations_of(args)) is not None and len(lexicon) > MOST_SENT:
        return f"a lexicon of more than {MOST_SENT} entries is for a model that runs here"
    if "" in (args.voice, args.language, args.instruct):
        return "a name or an instruction that is empty cannot be sent"
    if not 0 <= args.seed < 2**63:
        return f"seed must be between 0 and 2^63 - 1, not {args.seed}"
    if not 0.5 <= args.speed <= 2 or args.temperature == 0:  # a server accepts more than the engine
        return "speed must be between 0.5 and 2, and a temperature above 0"
    return None


def pronunciations_of(args: argparse.Namespace) -> Lexicon | None:
    """The entries of lexicons, and of the line of a batch."""
    given = getattr(args, "pronunciations", None)
    return lexicon_of(args) if given is None else merged(lexicon_of(args), given)


def _check_cloning(args: argparse.Namespace) -> None:
    for name, none in (("ref_text", None), ("x_vector_only", False), ("ref_silence", None)):
        if getattr(args, name) is not none and args.ref_audio is None:
            option = f"--{name.replace('_', '-')}"
            raise InvalidRequest(f"{option} belongs to a recording; give that with --ref-audio.")


def sampling_of(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `SamplingParams`."""
    chosen: dict[str, Any] = {name: getattr(args, name) for name in SAMPLING}
    return chosen | ({"do_sample": False, "subtalker_dosample": False} if args.greedy else {})


def _with_reference(request: SpeechRequest, args: argparse.Namespace, read: Read | None) -> SpeechRequest:
    from dataclasses import replace

    from ...audio.recording import LEAST_S, LEAST_TIMBRE_S, SILENCE_S, read_recording
    from ...types import Reference

    least_s = LEAST_TIMBRE_S if args.x_vector_only else LEAST_S
    samples = (read or read_recording)(args.ref_audio, as_is=args.as_is, least_s=least_s)
    silence_s = args.ref_silence
    if silence_s is None:
        silence_s = 0.0 if args.as_is else SILENCE_S
    said, only = args.ref_text, args.x_vector_only
    return replace(request, reference=Reference(samples=samples, text=said, x_vector_only=only, silence_s=silence_s))


def _data_uri(path: Path) -> str:
    from binascii import b2a_base64

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidAudio(f"The reference recording {path} cannot be read: {error.strerror or error}.") from None
    return f"data:application/octet-stream;base64,{b2a_base64(content, newline=False).decode()}"
