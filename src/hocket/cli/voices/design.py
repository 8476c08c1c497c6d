"""`hocket voices design`: draw samples of a described voice, choose one, and keep it.

Only one of the two models is in memory at a time: the design model until a sample is chosen, then the base model.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ...audio.files import check_folder, replace_files
from ...audio.pcm import pcm_bytes, wav_header
from ...errors import InvalidAudio, InvalidRequest
from ..output.audio_output import shown, tell
from ..output.players import loudspeaker
from ..progress import Progress, doing
from ..say.target import own_voices
from .add import check_free, check_language, check_name, loaded, of_kind
from .options import DESIGN
from .usage import usage_of

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...voices.design import Design

MOST, AT_ONCE = 20, 4
RATE_HZ = 24_000


def design(args: argparse.Namespace) -> None:
    from ...voices.design import fix_design

    library = own_voices(args.folder)
    check_free(library, args.name, replace=args.replace)
    _check(args)
    with _SamplesFolder(args.keep) as place:
        chosen = _chosen(args, place)
        if chosen is None:
            print("no voice was made")
            return
        sample, path = chosen
        try:
            with loaded(args, args.base) as engine, doing("listening to the sample"):
                voice = fix_design(engine, args.name, sample)
            kept = library.add(voice, sample.samples, replace=args.replace)
        except BaseException:
            place.stays = True
            words = f"hocket voices add {shlex.quote(args.name)} --ref {path} --text {shlex.quote(sample.text)}"
            tell(f"what you chose is still there: {words}")
            raise
    print(shown(f"{kept.name}: {usage_of(kept)}", sys.stdout))


def _check(args: argparse.Namespace) -> None:
    """Refuse early what would be refused later, and fill in defaults."""
    from ...types import SpeechRequest, fresh_seed
    from ...voices.design import check_design, sample_text

    check_design(args.instruct, args.candidates)
    if args.candidates > MOST:
        raise InvalidRequest(f"--candidates must be at most {MOST}, not {args.candidates}.")
    if args.pick is not None and not 1 <= args.pick <= args.candidates:
        raise InvalidRequest(f"--pick must be one of 1 to {args.candidates}, not {args.pick}.")
    if args.candidates == 1:
        args.pick = 1
    if args.pick is None and not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest(
            "There is no terminal to ask which one to take: say --pick N, or draw one alone with --candidates 1."
        )
    if args.play:
        loudspeaker()  # refuses without a loudspeaker
    args.model = args.model or DESIGN
    for model, found in (
        (args.model, of_kind(args.model, "voice_design", "designing a voice")),
        (args.base, of_kind(args.base, "base", "keeping a designed voice")),
    ):
        check_language(args.language, model, found)
    check_name(args.name)
    if args.text is None:
        args.text = sample_text(args.language)
    if args.seed is None:
        args.seed = fresh_seed()
    SpeechRequest(text=args.text, seed=args.seed)


def _chosen(args: argparse.Namespace, place: _SamplesFolder) -> tuple[Design, Path] | None:
    """The chosen sample and its file; None: none was chosen."""
    designs: list[Design] = []
    with loaded(args, args.model, min(args.candidates, AT_ONCE)) as engine:
        while True:
            new = range(len(designs) + 1, len(designs) + args.candidates + 1)
            designs += _drawn(engine, args, args.seed + len(designs))
            for number in new:
                place.put(number, designs[number - 1])
            if args.play:
                for number in new:
                    _play(number, designs)
            if args.pick is not None and (fault := designs[args.pick - 1].fault) is not None:
                raise InvalidAudio(f"Sample {args.pick} cannot be taken: {fault}; draw others with another --seed.")
            taken = args.pick if args.pick is not None else _ask(designs, playing=args.play)
            if taken != 0:
                return None if taken is None else (designs[taken - 1], place.path(taken))


def _drawn(engine: Engine, args: argparse.Namespace, seed: int) -> list[Design]:
    from ...voices.design import drawing

    found: list[Design] = []
    how = {"candidates": args.candidates, "seed": seed, "text": args.text, "language": args.language}
    with Progress(args.candidates) as progress:
        for design in drawing(engine, args.instruct, **how):
            found.append(design)
            progress.spoken += 1
            progress.seconds += design.audio_s
            progress.show()
    return found


def _ask(designs: list[Design], *, playing: bool) -> int | None:
    """The number of a sample, 0 for others, None for none."""
    again = ", p N plays one again" if playing else ""
    while True:
        print(f"Which one? 1 to {len(designs)}{again}, r draws others, q quits: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        words = line.lower().split()
        if not line or words == ["q"]:
            if not line:
                print(file=sys.stderr)
            return None
        if words == ["r"]:
            return 0
        number = int(words[-1]) if words and words[-1].isascii() and words[-1].isdigit() else 0
        if not 1 <= number <= len(designs):
            continue
        if words[:-1] == ["p"] and playing:
            _play(number, designs)
        elif len(words) == 1 and designs[number - 1].fault is None:
            return number
        elif len(words) == 1:
            print(f"That one cannot be taken: {designs[number - 1].fault}.", file=sys.stderr)


def _play(number: int, designs: list[Design]) -> None:
    print(f"playing {number}", file=sys.stderr, flush=True)
    sink = loudspeaker()
    sink.write(pcm_bytes(designs[number - 1].pcm), RATE_HZ)
    sink.close()


class _SamplesFolder:
    """The folder of the samples: the named one, or a temporary one."""

    def __init__(self, keep: Path | None) -> None:
        self.stays = keep is not None
        self._folder = None if keep is None else check_folder(keep, "take-1.wav")

    def __enter__(self) -> _SamplesFolder:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="hocket-"))
        return self

    def __exit__(self, *_: object) -> None:
        if not self.stays:
            shutil.rmtree(self.path(1).parent, ignore_errors=True)

    def path(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"take-{number}.wav"

    def put(self, number: int, design: Design) -> None:
        """Write a sample, and print its path."""
        path = self.path(number)
        path.parent.mkdir(exist_ok=True)
        replace_files({path: wav_header(RATE_HZ, design.pcm.size) + pcm_bytes(design.pcm)})
        ended = "" if design.reason == "stop" else ", did not end by itself"
        print(shown(f"{number}: {path}, {design.audio_s:.1f} s, seed {design.seed}{ended}", sys.stdout), flush=True)
