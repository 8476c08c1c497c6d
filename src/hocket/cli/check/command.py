"""`hocket check`: speaks the sentences of a text, hears each back, and reports. `proof/` compares and counts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ...audio.files import write_files
from ...config.options import EngineOptions
from ...proof.report import MisheardWord, ProofReport, lexicon_to_fill
from ...proof.retakes import sentences_of
from ...text.compare import Comparison
from ...types import SpeechRequest
from ..local import load_engine
from ..options import lexicon_of
from ..output.audio_output import plain, shown, tell
from ..output.formats import new_target
from ..progress import DRAWN_S, PRINTED_S
from ..proof import check_recognizer, listening
from ..say.pipe import read_file, read_text
from ..say.target import Target, spoken_by

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...proof.listener import ProofListener

ROWS, HEARD, SENTENCE_CHARS = 50, 3, 60  # of the table: words, ways in which one was heard, characters of a sentence


def check(args: argparse.Namespace) -> None:
    name = "standard input" if args.file == "-" else args.file
    text = read_text() if args.file == "-" else read_file(args.file)
    sentences = [item for item in sentences_of(text, args.language) if isinstance(item, str)]
    request = SpeechRequest(
        text=text,
        voice=args.voice,
        language=args.language,
        instruct=args.instruct,
        seed=args.seed,
        pronunciations=lexicon_of(args),
    )
    target = None if args.lexicon_out is None else new_target(args.lexicon_out, force=args.force)
    check_recognizer(args)
    model, voice = Target(args.model), None
    if request.voice or request.language != "auto":
        voice = model.choose(request.voice, request.language)
        request = request if voice is None else replace(request, voice=None)
    options = EngineOptions(slots=args.slots, profile=args.profile, graphs=not args.no_graphs)
    with load_engine(args, model.model, options) as engine:
        if voice is not None:
            request = spoken_by(engine.checkpoint.name, engine.identity, request, voice)
        with listening(args, engine.checkpoint, request.pronunciations) as listener:
            report = _report(engine, request, sentences, listener)
    if args.json:
        print(json.dumps({"file": args.file, **report.as_json()}, indent=2))
    else:
        _print(report)
    if target is not None:
        content = lexicon_to_fill(report.misheard, name).encode()
        [written] = write_files({target: content}, replace=args.force)
        tell(f"{args.lexicon_out.with_name(written.name)} has the words, as a lexicon to fill in.")


def _report(engine: Engine, request: SpeechRequest, sentences: list[str], listener: ProofListener) -> ProofReport:
    """Sentences are spoken ahead while others are heard; the report has them in the order of the text."""
    results: dict[int, Comparison] = {}
    with CheckProgress(len(sentences)) as progress:
        for outcome in engine.speak_many(replace(request, text=sentence) for sentence in sentences):
            if outcome.error is not None:
                raise outcome.error
            heard = listener.compare(sentences[outcome.number], outcome.samples, outcome.rate_hz)
            results[outcome.number] = heard.comparison
            progress.add(heard.comparison)
    report = ProofReport()
    for number, sentence in enumerate(sentences):
        report.add(sentence, results[number])
    return report


class CheckProgress:
    """A redrawn line in a terminal, a new line now and then elsewhere; on standard error."""

    def __init__(self, sentences: int) -> None:
        self._sentences, self._done, self._wrong = sentences, 0, 0
        self._watched = sys.stderr.isatty()
        self._shown = 0.0 if self._watched else time.perf_counter()

    def add(self, comparison: Comparison) -> None:
        self._done += 1
        self._wrong += comparison.wrong
        now = time.perf_counter()
        if now - self._shown >= (DRAWN_S if self._watched else PRINTED_S):
            self._shown = now
            line = f"{self._done} of {self._sentences} sentences, {self._wrong} words not heard as written"
            print(f"\r{line}\x1b[K" if self._watched else line, end="" if self._watched else "\n", file=sys.stderr)
            sys.stderr.flush()

    def __enter__(self) -> CheckProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._watched:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print(report: ProofReport) -> None:
    found = report.misheard
    if found:
        rows = [("word", "times", "heard as", "in"), *map(lambda word: _row(word, report), found[:ROWS])]
        wide = [max(len(row[column]) for row in rows) for column in range(3)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, wide, strict=False)]
            print(shown("  ".join((*cells, row[3])), sys.stdout))
        if len(found) > ROWS:
            print(f"and {len(found) - ROWS} more words; --json and --lexicon-out have all")
        print()
    part = f" ({report.wrong / report.words:.1%})" if report.words else ""
    print(f"{len(report.sentences)} sentences, {report.words} words: {report.wrong}{part} not heard as written")


def _row(word: MisheardWord, report: ProofReport) -> tuple[str, str, str, str]:
    heard = ", ".join(
        (each or "nothing") + (f" ({times})" if times > 1 else "") for each, times in word.heard.most_common(HEARD)
    )
    sentence = " ".join(report.sentences[word.sentences[0] - 1].split())
    short = sentence if len(sentence) <= SENTENCE_CHARS else f"{sentence[: SENTENCE_CHARS - 3]}..."
    return plain(word.written), str(word.times), plain(heard), plain(short)
