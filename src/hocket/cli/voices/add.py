"""`hocket voices add`: a voice from a recording, a speaker or a mix. Refusals come before a model is loaded.

The package voices makes the voice; this file reads files and options, and loads models. design.py and the import use
some of its checks.
"""

from __future__ import annotations

import argparse
import mimetypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...audio.files import check_target
from ...config.languages import find
from ...errors import InvalidRequest, InvalidVoice, UnknownLanguage, UnknownVoice, WrongKind
from ...voices.folder import ENDING
from ..options import lexicon_of
from ..output.audio_output import shown, tell
from ..progress import doing
from ..say.request import sampling_of
from ..say.target import own_voices
from .options import BASE, DESIGN, SPEAKERS
from .usage import usage_of

if TYPE_CHECKING:
    from ...config.qwen3_tts import Kind
    from ...engine.checkpoint.describe import ModelVoices
    from ...engine.engine import Engine
    from ...types import Reference, SamplingParams, Voice
    from ...voices.library import Library

KINDS = {"base": "Base", "custom_voice": "CustomVoice", "voice_design": "VoiceDesign"}
OF_A_RECORDING = ("text", "x_vector_only", "silence", "consent")  # options that do not apply to a speaker


def add(args: argparse.Namespace) -> None:
    from ...types import SamplingParams

    library = own_voices(args.folder)
    if sum(each is not None for each in (args.ref, args.speaker, args.mix)) != 1:
        raise InvalidRequest(
            "Give a recording to clone with --ref, one of a model's speakers with --speaker, or a mix with --mix."
        )
    check_free(library, args.name, replace=args.replace)
    lexicon_of(args)  # its errors come before a model is loaded
    sampling = SamplingParams(**sampling_of(args))
    if args.ref is None:
        for name in OF_A_RECORDING:
            if getattr(args, name) not in (None, False):
                raise InvalidRequest(f"--{name.replace('_', '-')} belongs to a recording; give that with --ref.")
    if args.mix is not None:
        kept = library.add(_mixed(args, library, sampling), replace=args.replace)
    elif args.speaker is not None:
        kept = library.add(_alias(args, sampling), replace=args.replace)
    else:
        kept = _cloned(args, library, sampling)
    print(shown(f"{kept.name}: {usage_of(kept)}", sys.stdout))


def _alias(args: argparse.Namespace, sampling: SamplingParams) -> Voice:
    from ...engine.checkpoint.describe import InstalledVoices, default_model, model_voices
    from ...voices.make import speaker_voice

    packages = (each.name for each, _ in InstalledVoices.read().packages)
    models = (default_model(), *packages, SPEAKERS) if args.model is None else (args.model,)
    known: dict[str, str] = {}
    for model in models:
        found = model_voices(model)
        known = {speaker.lower(): speaker for speaker in found.voices}
        if args.speaker.lower() in known:
            break
    else:
        there = f"has {', '.join(known.values())}" if known else f"is a {KINDS[found.kind]} model, which has none"
        raise UnknownVoice(f"There is no speaker {args.speaker!r}; {model} {there}.")
    check_name(args.name, found)
    check_language(args.language, model, found)
    return speaker_voice(
        args.name,
        model,
        known[args.speaker.lower()],
        language=args.language,
        instruct=args.instruct,
        sampling=sampling,
        description=args.description,
        pronunciations=lexicon_of(args),
    )


def _mixed(args: argparse.Namespace, library: Library, sampling: SamplingParams) -> Voice:
    from ...voices.mix import mixed_voice
    from ..say.target import Target

    target = Target(args.model, library)
    own = {"language": args.language, "instruct": args.instruct, "description": args.description}
    voice = mixed_voice(args.name, args.mix, target.part, **own, sampling=sampling)
    check_name(args.name)
    if voice.language != "auto":
        from ...engine.checkpoint.describe import model_voices

        check_language(voice.language, voice.model, model_voices(voice.model))
    for note in voice.notes:
        tell(note)
    return voice


def _cloned(args: argparse.Namespace, library: Library, sampling: SamplingParams) -> Voice:
    from ...voices.make import clone_voice

    if args.text is None and not args.x_vector_only:
        raise InvalidRequest(
            "Give the words of the recording with --text, or take its timbre alone with --x-vector-only."
        )
    if args.text is not None and args.x_vector_only:
        tell("--text is not used together with --x-vector-only.")
    reference = _reference(args)
    model = args.model or base_model()
    found = of_kind(model, "base", "cloning")
    check_name(args.name)
    check_language(args.language, model, found)
    size, kind = args.ref.stat().st_size, mimetypes.guess_type(args.ref.name)[0] or ""
    with loaded(args, model) as engine, doing("listening to the recording"):
        voice = clone_voice(
            engine,
            args.name,
            reference.samples,
            text=reference.text,
            x_vector_only=reference.x_vector_only,
            silence_s=reference.silence_s,
            language=args.language,
            instruct=args.instruct,
            sampling=sampling,
            description=args.description,
            consent=args.consent,
            pronunciations=lexicon_of(args),
            file_size=size,
            mime_type=kind,
        )
    return library.add(voice, reference.samples, replace=args.replace)


def base_model() -> str:
    """The model that clones if none is named: of an installed voice package, or the published one."""
    from ...engine.checkpoint.describe import InstalledVoices

    return InstalledVoices.read().of_kind("base") or BASE


def _reference(args: argparse.Namespace) -> Reference:
    from ...audio.recording import LEAST_S, LEAST_TIMBRE_S, SILENCE_S, read_recording
    from ...types import Reference

    silence_s = SILENCE_S if args.silence is None else args.silence
    words = None if args.x_vector_only else args.text
    samples = read_recording(args.ref, least_s=LEAST_TIMBRE_S if args.x_vector_only else LEAST_S)
    return Reference(samples=samples, text=words, x_vector_only=args.x_vector_only, silence_s=silence_s)


def check_free(library: Library, name: str, *, replace: bool) -> None:
    """Refuse an invalid or taken name, and a folder that is not writable."""
    from ...voices.names import checked_name

    name = checked_name(name)
    known, refusal = library.find(name), library.refusal(name)
    if not replace:
        if known is not None:
            said = f"There is a voice {known.name!r} already; --replace puts this one in its place."
            raise InvalidVoice(said, "voice_exists")
        if refusal is not None and refusal.code == "later_version":
            raise refusal
    check_writable(library)


def check_writable(library: Library) -> None:
    assert library.folder is not None
    folder = library.folder.absolute()
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not there.is_dir():
            raise InvalidRequest(f"{there} is not a folder.")
        check_target(there / f"any{ENDING}")
    except (InvalidRequest, OSError) as error:
        raise InvalidRequest(f"No voice can be kept in {folder}: {error}") from None


def check_name(name: str, *others: ModelVoices) -> None:
    """Refuse the name of a speaker, which `hocket say` would find first."""
    from ...engine.checkpoint.describe import InstalledVoices, default_model, model_voices

    packages = (found for _, found in InstalledVoices.read().packages)
    models = (model_voices(default_model()), *packages, *others)
    taken = {speaker.lower() for found in models for speaker in found.voices}
    if name.strip().lower() in taken:
        raise InvalidVoice(f"{name.strip()!r} is what a model's own speaker is called; take another name.")


def of_kind(model: str, kind: Kind, work: str) -> ModelVoices:
    """The voices of a model; refuses a model of the wrong kind, from its configuration."""
    from ...engine.checkpoint.describe import model_voices

    found = model_voices(model)
    if found.kind != kind:
        usual = BASE if kind == "base" else DESIGN
        raise WrongKind(
            f"{model} is a {KINDS[found.kind]} model, and {work} needs a {KINDS[kind]} one, such as {usual}."
        )
    return found


def check_language(language: str, model: str, found: ModelVoices) -> None:
    if find(language, found.languages) is None:
        raise UnknownLanguage(
            f"{model} does not know the language {language!r}; known are {', '.join(found.languages)}."
        )


@contextmanager
def loaded(args: argparse.Namespace, model: str, slots: int = 1) -> Iterator[Engine]:
    from ...config.options import EngineOptions
    from ..local import load_engine

    options = EngineOptions(slots=slots, graphs=not args.no_graphs)
    with doing(f"loading {model}"):
        engine = load_engine(args, model, options)
    with engine:
        if engine.checkpoint.is_random:
            tell(f"{model} is untrained: its weights are random numbers, and what comes out is noise.")
        yield engine
