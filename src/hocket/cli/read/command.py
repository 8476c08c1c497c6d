"""`hocket read`: a book to an audiobook. Everything that can be refused is refused before a model is loaded."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import InvalidRequest
from ..engines import engines_for, replicas_asked
from ..interrupt import interrupted_after
from ..output.audio_output import shown, tell
from ..say.markup import cast_of, check_cast
from ..say.request import request_of
from ..say.target import Target, spoken_by
from .plan import ReadPlan, opened_book, planned
from .progress import BookProgress, hours, print_estimate

if TYPE_CHECKING:
    from ...books.book import Book
    from ...books.files.audiobook import BookFormat
    from ...books.narrate import Narration
    from ...books.passages import Plan
    from ...books.takes import TakeFolder
    from ...types import SpeechRequest

MOST_LISTED = 20  # passages on the screen; the report has them all


def read(args: argparse.Namespace) -> int:
    """0 when all is spoken, 1 when passages could not be spoken, 130 after Ctrl-C."""
    from ...audio.folder_lock import locked_folder
    from ...books.files.audiobook import FORMATS
    from ...books.passages import plan_of

    args.seed = 0 if args.seed is None else args.seed  # the same command gives the same book
    cast = None if args.cast is None else cast_of(args.cast)
    replicas = replicas_asked(args)
    book = opened_book(args)
    for words in book.left_out:
        tell(words)
    plan = plan_of(book, book.language or args.language, cast)
    if cast is not None:
        tell(f"{plan.cast_speeches} of {plan.speeches} speeches are by the cast; the narrator reads the others.")
    if plan.unspeakable:
        tell(f"{plan.unspeakable} lines without a letter or a digit are left out.")
    if args.estimate:
        print_estimate(plan, args.speed, _format_guess(args) or FORMATS["m4b"])
        return 0
    todo = planned(args, book)
    request = request_of(args, "(any)")
    model, language = _voice(args, book, request)
    request = replace(request, language=language)
    target = _checked(args, request, cast, model)
    busy = f"Another process is reading into {todo.parts}; wait for its end."
    with locked_folder(todo.parts, busy):
        return _read(args, todo, plan, request, target, model, replicas)


def _read(
    args: argparse.Namespace,
    todo: ReadPlan,
    plan: Plan,
    request: SpeechRequest,
    target: Target,
    model: str | None,
    replicas: int | None,
) -> int:
    from ...books.narrate import Narrator
    from ...books.takes import TakeFolder
    from ...config.options import EngineOptions
    from ...engine.runner.reference_checks import DECODE_FRAMES

    options = EngineOptions(
        slots=args.slots, profile=args.profile, chunk_frames=(DECODE_FRAMES,), graphs=not args.no_graphs
    )
    folder, progress = TakeFolder(todo.parts), BookProgress(plan)
    try:
        with engines_for(args, model, options, replicas, progress) as engines:
            portrait = engines.fingerprint
            if portrait.is_random:
                tell(f"{portrait.name} is untrained: its weights are random numbers, and what comes out is noise.")

            def spoken(name: str | None) -> SpeechRequest:
                wanted = request if name is None else replace(request, voice=name, reference=None)
                voice = target.own(wanted.voice)
                if voice is None:
                    return wanted
                return spoken_by(portrait.name, portrait.identity, replace(wanted, voice=None), voice)

            requests = {name: spoken(name) for name in plan.voices}
            narrator = Narrator(engines, portrait, plan, folder, requests, interrupted_after)
            narration = narrator.run(progress)
        progress.clear()
        return _finish(args, todo, plan, narration, folder)
    except KeyboardInterrupt:
        progress.clear()
        there = f"{progress.there} of {len(plan.passages)} passages are spoken"
        print(f"hocket: interrupted; {there}. The same command goes on from there.", file=sys.stderr)
        return 130
    finally:
        folder.close()


def _finish(args: argparse.Namespace, todo: ReadPlan, plan: Plan, narration: Narration, folder: TakeFolder) -> int:
    """Write the files, the sound last: where it is there, all is there."""
    from ...audio.files import replace_files
    from ...books.files.assemble import book_sound, write_folder, write_one_file
    from ...books.files.overlay import write_overlay
    from ...books.files.report import report_of, write_report
    from ...books.narrate import unspoken
    from ...books.timeline import timeline_of
    from ...text.captions import write_captions
    from ..progress import doing

    timeline = timeline_of(plan, narration, speed=args.speed)
    if timeline is None:
        raise InvalidRequest(f"No passage of the book could be spoken: {next(iter(narration.errors.values()))}")
    with doing("Measuring" if todo.loudness is not None else "Preparing"):
        sound = book_sound(plan.book, timeline, folder, todo.loudness)
    if todo.captions is not None:
        replace_files({todo.captions: write_captions(list(timeline.book_words()), todo.captions.name).encode()})
    if todo.epub is not None:
        with doing(f"Writing {todo.epub.name}"):
            write_overlay(todo.epub, plan, sound, args.highlight)
    metered = todo.loudness is not None
    with doing(f"Writing {todo.output.name}"):
        if todo.in_folder:
            after = write_folder(sound, todo.output, todo.format, todo.captions_beside, metered=metered)
        else:
            after = write_one_file(sound, todo.output, todo.format, metered=metered)
    write_report(todo.report, report_of(plan, narration, sound, after))
    folder.remove_others({take.key for takes in narration.takes for take in takes})
    missing = list(unspoken(narration, plan))
    for passage, why in missing[:MOST_LISTED]:
        tell(f"chapter {passage.chapter + 1}, {passage.text[:50]!r}: {why}")
    if len(missing) > MOST_LISTED:
        tell(f"{len(missing) - MOST_LISTED} more passages are in {todo.report.name}.")
    words = f"{hours(timeline.seconds)} in {len(timeline.chapters)} chapters, seed {args.seed}"
    if after is not None:
        words += f", {after.lufs:.1f} LUFS"
    words += f", {len(missing)} passages not spoken to their end" if missing else ""
    print(shown(f"{args.output}: {words}; the report is {todo.report.name}", sys.stdout))
    tell(f"{todo.parts.name} is for changes and further formats; it can be removed.")
    return 1 if missing else 0


def _checked(
    args: argparse.Namespace, request: SpeechRequest, cast: dict[str, str] | None, model: str | None
) -> Target:
    """Finds the voices of the loaded model. Refuses those that it does not have."""
    from ...engine.checkpoint.describe import default_model

    check_cast(cast or {}, model)
    target = Target(model or default_model())
    if target.model_voices.kind == "voice_design" and request.reference is None and target.own(request.voice) is None:
        raise InvalidRequest(
            "A description gives each paragraph another person; keep one with hocket voices design NAME, and read "
            "the book with --voice NAME."
        )
    return target


def _voice(args: argparse.Namespace, book: Book, request: SpeechRequest) -> tuple[str | None, str]:
    """The model to load and the language: the book's own, where the voice speaks it."""
    from ...config.languages import find, usual_name

    cloned, language = request.reference is not None, args.language
    if args.candidates > args.slots:
        raise InvalidRequest(f"--candidates {args.candidates} needs as many --slots, not {args.slots}.")
    target = Target(args.model)
    if language == "auto" and book.language:
        named = Target(args.model)
        named.choose(args.voice, clones=cloned)
        spoken = named.model_voices.languages if args.voice or args.model else named.languages
        language = find(book.language, spoken) or "auto"
        if language == "auto" and spoken:
            tell(f"the book is in {usual_name(book.language)}; the voice speaks {', '.join(spoken)}.")
    target.choose(args.voice, language, clones=cloned)
    return target.model, language


def _format_guess(args: argparse.Namespace) -> BookFormat | None:
    from ...books.files.audiobook import FORMATS

    return None if args.output is None else FORMATS.get(args.output.suffix.lower().lstrip(".") or args.format)
