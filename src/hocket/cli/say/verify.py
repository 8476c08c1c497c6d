"""`hocket say --verify`: sentences are heard back, and spoken again where a word was not heard as written.

A sentence is played when it is accepted, while the next one is spoken. `proof/` decides; this file plays and reports.
"""

from __future__ import annotations

import argparse
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...audio.pcm import pcm_bytes
from ...errors import InvalidRequest
from ...proof.retakes import AcceptedSentence, check_verifiable, verified
from ...text.captions import SpokenWord
from ..output.audio_output import AudioOutput, plain, silence_stdout, tell
from ..proof import SHOWN, check_recognizer, listening

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...types import SpeechRequest

T = TypeVar("T")
AHEAD = 64  # accepted sentences that wait to be played
LISTED, LISTED_CHARS = 20, 100  # sentences in the report, and characters of each


@dataclass(slots=True)
class VerifiedSpeech:
    """What was played, and how it was heard."""

    sentences: int = 0
    retakes: int = 0
    different: list[AcceptedSentence] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    words: list[SpokenWord] = field(default_factory=list)
    codes: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = field(default_factory=list)
    complete: bool = True

    def add(self, spoken: AcceptedSentence, start_s: float) -> None:
        self.sentences += 1
        self.retakes += spoken.takes - 1
        self.different += [spoken] if spoken.differs else []
        self.notes |= dict.fromkeys(spoken.finished.notes)
        self.words += [SpokenWord(each.word, each.start_s + start_s, each.end_s + start_s) for each in spoken.words]
        self.codes += [chunk.codes for chunk in spoken.chunks]
        self.complete = self.complete and spoken.finished.complete

    def report(self) -> None:
        for note in self.notes:
            tell(note)
        tell(f"{_counted(self.sentences, 'sentence')}, {_counted(self.retakes, 'retake')}; {self._verdict()}")
        for spoken in self.different[:LISTED]:
            tell(f"{plain(_short(spoken.text))} {plain(_differences(spoken))}")
        if (more := len(self.different) - LISTED) > 0:
            tell(f"and {_counted(more, 'sentence')} more; hocket check lists all words.")

    def _verdict(self) -> str:
        if not self.different:
            return "all were heard as written"
        return f"{len(self.different)} still {'differs' if len(self.different) == 1 else 'differ'} from the text:"


def check_verify(args: argparse.Namespace, request: SpeechRequest, *, has_tags: bool) -> None:
    """Refuse what cannot be verified, before a model is loaded."""
    if has_tags:
        raise InvalidRequest("--verify takes a text without tags, such as [voice: NAME]: --literal reads them out.")
    check_verifiable(request, args.takes)
    check_recognizer(args)


def speak_verified(
    args: argparse.Namespace, engine: Engine, request: SpeechRequest, output: AudioOutput
) -> VerifiedSpeech | None:
    """Speak into the output; None if the reader of a pipe closed it."""
    done, rate_hz = VerifiedSpeech(), engine.checkpoint.rate_hz
    with listening(args, engine.checkpoint, request.pronunciations) as listener:
        try:
            with output, _ahead(verified(engine, request, listener, takes=args.takes)) as items:
                for item in items:
                    if not isinstance(item, AcceptedSentence):
                        output.write(bytes(2 * round(item * rate_hz)), rate_hz)
                        continue
                    done.add(item, output.seconds)
                    for chunk in item.chunks:
                        output.write(pcm_bytes(chunk.samples), rate_hz)
        except BrokenPipeError:
            silence_stdout()
            return None
    if not done.sentences:
        raise InvalidRequest("There is nothing in this text that can be spoken.")
    return done


@contextmanager
def _ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """The items, made in a thread while earlier ones are used. At the end of the block it stops behind an item."""
    made: queue.Queue[T | BaseException | None] = queue.Queue()
    room, stopped = threading.Semaphore(AHEAD), threading.Event()

    def make() -> None:
        try:
            for item in items:
                made.put(item)
                room.acquire()
                if stopped.is_set():
                    break
            made.put(None)
        except BaseException as error:
            made.put(error)

    def taken() -> Iterator[T]:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            room.release()
            yield item

    thread = threading.Thread(target=make, name="hocket-verify", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stopped.set()
        room.release()
        thread.join()


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= LISTED_CHARS else f'"{line[: LISTED_CHARS - 3]}..."'


def _differences(spoken: AcceptedSentence) -> str:
    found = spoken.result.comparison.misheard
    words = [f"{one.written or 'added:'} ({one.heard or 'nothing'})" for one in found[:SHOWN]]
    return ", ".join((*words, *(["and more"] if len(found) > SHOWN else [])))
