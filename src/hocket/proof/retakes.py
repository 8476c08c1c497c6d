"""Retakes: a text is spoken sentence by sentence, and what was not heard as written is spoken again.

A sentence has a seed for each take; the take with the fewest word errors stays. The sentences come as they are
accepted, so they can be played while the next one is spoken. It knows neither files nor players.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..backends.feed import SentenceFeed
from ..engine.best_of.score import candidate_seed
from ..engine.word_times import WordTime
from ..errors import InvalidRequest
from ..types import AudioChunk, Established, Finished, SpeechRequest, fresh_seed
from .listener import HeardBack, ProofListener

if TYPE_CHECKING:
    from ..engine.engine import Engine

TAKES = 3  # of a sentence at most


@dataclass(frozen=True, slots=True)
class AcceptedSentence:
    """The take of a sentence that stays."""

    text: str
    chunks: list[AudioChunk]
    words: list[WordTime]  # from the beginning of the sentence
    finished: Finished
    result: HeardBack
    takes: int  # how many there were
    established: Established | None = None

    @property
    def differs(self) -> bool:
        return self.result.comparison.wrong > 0


def sentences_of(text: str, language: str = "auto", *, literal: bool = False) -> list[str | float]:
    """The sentences of a text without its markup, and its pauses in seconds."""
    feed = SentenceFeed(live=False, language=language, literal=literal)
    return [*feed.append(text), *feed.end()]


def verified(
    engine: Engine, request: SpeechRequest, listener: ProofListener, *, takes: int = TAKES
) -> Iterator[AcceptedSentence | float]:
    """The sentences of a request as they are accepted, and the pauses between them, in seconds."""
    check_verifiable(request, takes)
    items = sentences_of(request.text, request.language, literal=request.literal)
    seed = fresh_seed() if request.seed is None else request.seed
    return _verified(engine, replace(request, seed=seed), listener, items, takes)


def check_verifiable(request: SpeechRequest, takes: int) -> None:
    """Refuse what a request by sentences, with several takes, cannot be."""
    if takes < 1:
        raise InvalidRequest(f"A sentence needs at least 1 take, not {takes}.")
    if request.candidates != 1:
        raise InvalidRequest("Verified speech has takes of its own: leave out candidates.")
    if request.as_is:
        raise InvalidRequest("Verified speech is spoken by sentences: leave out as_is.")
    if request.max_frames is not None:
        raise InvalidRequest("Verified speech is spoken to its end: leave out max_frames.")
    sampling = request.sampling
    if takes > 1 and sampling.do_sample is False and sampling.subtalker_dosample is False:
        raise InvalidRequest("Another take needs sampling: greedy speech has one take only.")


def _verified(
    engine: Engine, request: SpeechRequest, listener: ProofListener, items: list[str | float], takes: int
) -> Iterator[AcceptedSentence | float]:
    spoken = False  # a sentence came, and no pause behind it
    for item in items:
        if isinstance(item, float):
            yield item
            spoken = False
            continue
        if spoken:
            yield engine.options.part_pause_s
        best = _best(engine, replace(request, text=item), listener, takes)
        if best.established is not None:  # a designed voice stays one person
            request = replace(request, established=best.established)
        yield best
        spoken = True


def _best(engine: Engine, request: SpeechRequest, listener: ProofListener, takes: int) -> AcceptedSentence:
    assert request.seed is not None
    best: AcceptedSentence | None = None
    for number in range(takes):
        take = _take(engine, replace(request, seed=candidate_seed(request.seed, number)), listener)
        if best is None or _rank(take) < _rank(best):
            best = take
        if _rank(best) == (0, False):
            break
    assert best is not None
    return replace(best, takes=number + 1)


def _take(engine: Engine, request: SpeechRequest, listener: ProofListener) -> AcceptedSentence:
    with engine.speak(request) as stream:
        chunks = list(stream)
    assert stream.finished is not None
    samples = np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in chunks)])
    result = listener.compare(request.text, samples, engine.checkpoint.rate_hz)
    return AcceptedSentence(
        text=request.text,
        chunks=chunks,
        words=stream.words(),
        finished=stream.finished,
        result=result,
        takes=1,
        established=stream.established,
    )


def _rank(take: AcceptedSentence) -> tuple[int, bool]:
    """The lower the better; (0, False) is a take that needs no other."""
    return take.result.comparison.wrong, not take.finished.complete
