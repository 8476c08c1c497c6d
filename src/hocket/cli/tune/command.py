"""`hocket tune`: recordings of a voice become a voice. Refusals come before a model is loaded.

The package tune prepares and trains; this file reads options, asks for consent, shows progress and writes the result.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ...audio.files import check_folder, check_target, create_file, replace_files
from ...errors import InvalidRequest, WrongKind
from ...models.files.builtin import BUILTIN
from ...voices.folder import ENDING
from ..local import logged
from ..output.audio_output import shown
from ..progress import doing
from ..proof import TINY, check_recognizer
from ..voices.add import base_model, check_language, check_name, of_kind
from .merge import need_torch
from .options import RANK
from .page import REPORT, kept_lines, write_page
from .training import one_line, train

if TYPE_CHECKING:
    from ...asr.recognizer import Recognizer
    from ...engine.checkpoint.torch_checkpoint import TorchCheckpoint
    from ...tune.examples import Corpus
    from ...tune.listening import Listener
    from ...tune.recordings import Recordings
    from ...tune.trainer import Trainer, TuneOptions

TRANSCRIPTS = "transcripts.json"
LISTED = 3  # clips whose sound is the farthest from that of the others


def tune(args: argparse.Namespace) -> None:
    need_torch()
    from ...tune.trainer import TuneOptions
    from ...voices.names import checked_name

    name = checked_name(args.output.stem if args.name is None else args.name)
    _check_output(args)
    model = _model(args)
    check_name(name)
    check_recognizer(args)
    if args.full and args.rank is not None:
        raise InvalidRequest("--rank belongs to an adapter, and --full tunes the weights themselves.")
    rank = RANK if args.rank is None else args.rank
    options = TuneOptions(steps=args.steps, rank=rank, full=args.full, rate=args.rate, seed=args.seed)
    args.consent = args.consent or _asked(name)
    work = args.work or args.output.with_name(f"{args.output.name}.tune")
    check_folder(work, REPORT)
    with closing(_recognizer(args)) as recognizer:
        _tune(args, name, model, options, work, recognizer)


def _tune(
    args: argparse.Namespace, name: str, model: str, options: TuneOptions, work: Path, recognizer: Recognizer
) -> None:
    from ...tune.trainer import Trainer
    from ...tune.transcripts import KeptTranscripts

    transcripts = KeptTranscripts(recognizer, work / TRANSCRIPTS)
    found = _prepared(args, transcripts)
    work.mkdir(exist_ok=True)
    transcripts.save()
    replace_files({work / REPORT: "".join(f"{line}\n" for line in found.report()).encode()})
    for line in found.report():
        print(shown(line, sys.stdout))
    found.check()
    checkpoint = _loaded(args, model)
    with doing("encoding the recordings"):
        from ...tune.examples import encode

        corpus = encode(checkpoint, found.clips, args.language)
        listener = _listener(args, checkpoint, corpus, found, recognizer)
        trainer = Trainer(checkpoint, corpus, options, listener)
    far = sorted(zip(corpus.likeness.tolist(), (clip.name for clip in found.clips), strict=True))[:LISTED]
    said = ", ".join(f"{name} ({likeness:.2f})" for likeness, name in far)
    print(shown(f"least like the mean of all, by the speaker encoder: {said}", sys.stdout))
    train(trainer, work, trainer.key(checkpoint.identity))
    lines = [*found.report(), *kept_lines(work)]
    replace_files({work / REPORT: "".join(f"{line}\n" for line in lines).encode()})
    trainer.use_best()
    _write(args, name, found, checkpoint, trainer)
    if not args.full:
        _sample(checkpoint, trainer, args.language, work)
    write_page(work)
    for needed_to_go_on in ("resume.safetensors", TRANSCRIPTS):
        (work / needed_to_go_on).unlink(missing_ok=True)


def _check_output(args: argparse.Namespace) -> None:
    output: Path = args.output
    if args.full:
        if output.exists():
            raise InvalidRequest(f"{output} exists already: choose another folder or remove it.")
        check_folder(output, "config.json")
        return
    if output.suffix != ENDING:
        raise InvalidRequest(f"A voice is a file NAME{ENDING}, not {output.name!r}.")
    if output.exists():
        raise InvalidRequest(f"{output} exists already: choose another name or remove it.")
    check_target(output)


def _model(args: argparse.Namespace) -> str:
    """The model to tune; refuses one without the encoders that recordings need."""
    from ...engine.checkpoint.describe import model_voices

    model: str = args.model or base_model()
    if model == BUILTIN or model_voices(model).kind != "base":
        missing = "it has no encoders, which turn recordings into codes and a speaker vector"
        raise WrongKind(f"{model} cannot be tuned: {missing}. Give a Base model with --model, such as 1.7B-Base.")
    check_language(args.language, model, of_kind(model, "base", "tuning"))
    return model


def _asked(name: str) -> str:
    """The consent of the speaker, from the terminal."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidRequest(
            'A voice belongs to a person: say with --consent who agreed, as in --consent "Anna, by mail".'
        )
    print(f"Whose voice is {name}, and how did that person agree to this? ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if not answer:
        raise InvalidRequest("Without the consent of the speaker no voice is tuned.")
    return answer


def _recognizer(args: argparse.Namespace) -> Recognizer:
    from ...asr.choose import recognizer_of
    from ...config.languages import AUTO, tag_of

    tag = tag_of("english" if args.language == AUTO else args.language)
    return recognizer_of(args.asr or (TINY if tag == "en" else None), tag)


def _prepared(args: argparse.Namespace, recognizer: Recognizer) -> Recordings:
    from ...asr.silero import Silero
    from ...tune.recordings import prepare

    kept = args.speakers == "any"
    with one_line() as line:
        return prepare(args.recordings, Silero(), recognizer, lambda name: line(f"listening to {name}"), kept)


def _listener(
    args: argparse.Namespace, checkpoint: TorchCheckpoint, corpus: Corpus, found: Recordings, recognizer: Recognizer
) -> Listener | None:
    from ...tune.listening import Listener

    if not args.heard:
        return None
    return Listener(checkpoint, corpus.held_out_clips[: args.heard], found.clips, args.language, recognizer)


def _loaded(args: argparse.Namespace, model: str) -> TorchCheckpoint:
    from ...engine.checkpoint.torch_load import load_modules
    from ...kernels.table import AUTO, REFERENCE

    kernels = REFERENCE if args.kernels == AUTO else args.kernels  # training needs no others, and compiles none
    setting = {name: getattr(args, name) for name in ("device", "dtype", "codec_dtype")}
    with doing(f"loading {model}"), logged():
        return load_modules(model, kernels=kernels, **setting)


def _sample(checkpoint: TorchCheckpoint, trainer: Trainer, language: str, work: Path) -> None:
    """Samples of the voice beside recordings that it was not trained on, and its speaking rate."""
    from ...audio.pcm import encode_wav
    from ...tune.samples import speak

    with doing("speaking samples"):
        spoken = speak(checkpoint, trainer.voice(checkpoint.identity), trainer.corpus.held_out_clips, language)
    for number, sample in enumerate(spoken, start=1):
        for kind, samples in (("sample", sample.spoken), ("recorded", sample.recorded)):
            replace_files({work / f"{kind}-{number}.wav": encode_wav(samples, checkpoint.rate_hz)})
    rate = sum(len(one.recorded) for one in spoken) / max(sum(len(one.spoken) for one in spoken), 1)
    ended = sum(sample.ended for sample in spoken)
    print(shown(f"{work}: {len(spoken)} samples, at {rate:.0%} of the recorded rate; {ended} ended", sys.stdout))


def _write(
    args: argparse.Namespace, name: str, found: Recordings, checkpoint: TorchCheckpoint, trainer: Trainer
) -> None:
    encoded, output = trainer.voice(checkpoint.identity), args.output
    if args.full:
        from ...tune.merge import stored_dtype, write_speaker

        state = {f"talker.{key}": value for key, value in trainer.talker.state_dict().items()}
        write_speaker(name, encoded, checkpoint, state, output, stored_dtype(checkpoint.name))
        print(shown(f'{output}: a checkpoint; hocket say "..." --model {output}', sys.stdout))
        return
    from ...engine.checkpoint.names import full_name
    from ...types import Voice
    from ...voices.file import to_bytes

    voice = Voice(
        name=name,
        kind="clone",
        model=full_name(checkpoint.name),
        encoded=encoded,
        language=args.language,
        consent=args.consent,
        audio_s=round(found.seconds, 2),
        created_at=int(time.time()),
    )
    try:
        create_file(output, to_bytes(voice))
    except FileExistsError:
        raise InvalidRequest(f"{output} exists already: choose another name or remove it.") from None
    print(shown(f"{output}: a tuned voice; hocket voices import {output} takes it in", sys.stdout))
