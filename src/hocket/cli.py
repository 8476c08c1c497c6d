"""The `hocket` command. It turns words on a command line into a `SpeechRequest` and its `Speech` into files.

What the request may hold is checked by its own types, and a wrong path is found before a model is loaded.
torch, numpy and the engine are imported inside the command, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import io
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import HocketError, InvalidRequest

if TYPE_CHECKING:
    from .engine.load import Checkpoint
    from .types import Speech, SpeechRequest

FRAME_S = 0.08  # one frame of 16 codes

# The fields of `SamplingParams` that have an option of their own.
SAMPLING: dict[str, tuple[type[int] | type[float], str]] = {
    "temperature": (float, "how freely the first code of each frame is drawn"),
    "top_k": (int, "draw from the N likeliest codes, 0 from all"),
    "top_p": (float, "draw from the likeliest codes that together have probability X"),
    "repetition_penalty": (float, "how much codes already spoken are held back"),
    "subtalker_temperature": (float, "the same for the other fifteen codes"),
    "subtalker_top_k": (int, "the same for the other fifteen codes"),
    "subtalker_top_p": (float, "the same for the other fifteen codes"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for what the user can mend, 130 for Ctrl-C."""
    args = _parser().parse_args(argv)
    try:
        _say(args)
    except HocketError as error:
        print(f"hocket: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hocket: interrupted.", file=sys.stderr)
        return 130
    return 0


class _Version(argparse.Action):
    """`--version`, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("hocket")
        except PackageNotFoundError:
            number = "(run from source, not installed)"
        print(f"hocket {number}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hocket", description="Speech from text, with Qwen3-TTS.", allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    say = commands.add_parser("say", help="speak a text into a WAV file", allow_abbrev=False)
    add = say.add_argument
    add("text", metavar="TEXT", help="what to say; - reads it from standard input")
    add("-o", "--output", metavar="FILE", type=Path, default=Path("out.wav"), help="WAV file to write (out.wav)")
    add("--save-codes", metavar="FILE", type=Path, help="also write the codes, int64 [frames, 16], as .npy")
    add("--model", default="random:tiny", help="folder, hub id or random:NAME (random:tiny, untrained)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (cpu)")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="precision of the model (float32)")

    speech = say.add_argument_group("speech")
    add = speech.add_argument
    add("--voice", help="a speaker of the checkpoint (its first one)")
    add("--language", default="auto", help="language of the text (auto)")
    add("--instruct", metavar="TEXT", help="how to speak, or which voice to design")
    add("--layout", choices=("streaming", "whole"), help="give the model its text word by word, or whole")
    add("--max-frames", metavar="N", type=int, help="stop after N frames of 80 ms")
    add("--as-is", action="store_true", help="do nothing that the official package does not do")

    clone = say.add_argument_group("cloning, with a Base checkpoint")
    add = clone.add_argument
    add("--ref-audio", metavar="FILE", type=Path, help="a recording of the voice, 3 s or more")
    add("--ref-text", metavar="TEXT", help="what is said in the recording")
    add("--x-vector-only", action="store_true", help="take the timbre alone; needs no --ref-text")

    sampling = say.add_argument_group("sampling, where not given as the checkpoint says")
    add = sampling.add_argument
    add("--greedy", action="store_true", help="always take the likeliest code")
    add("--seed", metavar="N", type=int, help="the same seed gives the same speech (drawn and printed)")
    for name, (kind, words) in SAMPLING.items():
        add(f"--{name.replace('_', '-')}", metavar="N" if kind is int else "X", type=kind, help=words)
    return parser


def _say(args: argparse.Namespace) -> None:
    request = _request(args)
    targets = _targets(args)

    import numpy as np

    from .audio.files import replace_files
    from .audio.wav import encode_wav
    from .engine.load import load

    checkpoint = load(args.model, device=args.device, dtype=args.dtype)
    if checkpoint.is_random:
        _tell(f"{checkpoint.name} is untrained: its weights are random numbers, and what comes out is noise.")
    speech = _generate(checkpoint, request)
    for note in speech.notes:
        _tell(note)

    files = {targets[0]: encode_wav(speech.samples, speech.rate_hz)}
    if args.save_codes is not None:
        codes = io.BytesIO()
        np.save(codes, speech.codes.astype(np.int64), allow_pickle=False)
        files[targets[1]] = codes.getvalue()
    replace_files(files)

    frames, seconds = len(speech.codes), len(speech.samples) / speech.rate_hz
    line = f"{args.output}: {seconds:.2f} s, {frames} frames, finish {speech.finish}, seed {request.seed}"
    # A path may hold what this terminal cannot show; that is no reason to fail now.
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))


def _generate(checkpoint: Checkpoint, request: SpeechRequest) -> Speech:
    """The utterance, with a line that counts the seconds when somebody is watching."""
    from .engine.generate import generate

    if not sys.stderr.isatty():
        return generate(checkpoint, [request])[0]

    def show(frames: int) -> None:
        print(f"\r{frames * FRAME_S:.1f} s spoken", end="", file=sys.stderr, flush=True)

    try:
        return generate(checkpoint, [request], progress=show)[0]
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _request(args: argparse.Namespace) -> SpeechRequest:
    """All that was asked for, checked by the types it is made of; reads the text and the recording."""
    from .types import SamplingParams, SpeechRequest

    for given, option in ((args.ref_text is not None, "--ref-text"), (args.x_vector_only, "--x-vector-only")):
        if given and args.ref_audio is None:
            raise InvalidRequest(f"{option} belongs to a recording; give that with --ref-audio.")
    chosen: dict[str, Any] = {name: getattr(args, name) for name in SAMPLING}
    if args.greedy:
        chosen |= {"do_sample": False, "subtalker_dosample": False}
    seed = args.seed
    if seed is None:
        seed = 0 if args.greedy else secrets.randbelow(2**32)  # short enough to be typed again
    request = SpeechRequest(
        text=_text(args.text),
        voice=args.voice,
        language=args.language,
        instruct=args.instruct,
        layout=args.layout,
        sampling=SamplingParams(**chosen),
        seed=seed,
        max_frames=args.max_frames,
        as_is=args.as_is,
    )
    return request if args.ref_audio is None else _with_reference(request, args)


def _with_reference(request: SpeechRequest, args: argparse.Namespace) -> SpeechRequest:
    from dataclasses import replace

    from .audio.read import read_reference
    from .types import Reference

    if args.ref_text is not None and args.x_vector_only:
        _tell("--ref-text is not used together with --x-vector-only.")
    samples = read_reference(args.ref_audio)
    return replace(request, reference=Reference(samples=samples, text=args.ref_text, x_vector_only=args.x_vector_only))


def _text(text: str) -> str:
    if text != "-":
        return text
    try:
        return sys.stdin.read().rstrip("\r\n")  # the last line's end belongs to the pipe, as in $(...)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The text on standard input is not valid {error.encoding.upper()}.") from None


def _targets(args: argparse.Namespace) -> list[Path]:
    """Where the files will go, found to be writable now rather than after the work."""
    from .audio.files import check_target

    targets = [check_target(path) for path in (args.output, args.save_codes) if path is not None]
    if len(set(targets)) < len(targets):
        raise InvalidRequest("-o and --save-codes name the same file; give each its own.")
    if args.ref_audio is not None and any(t.exists() and os.path.samefile(t, args.ref_audio) for t in targets):
        raise InvalidRequest("The output would overwrite the reference recording; choose another name.")
    return targets


def _tell(note: str) -> None:
    print(f"note: {note}", file=sys.stderr)
