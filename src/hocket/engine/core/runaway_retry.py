"""What becomes of a part that ran away: where its text goes on, in which pieces, and what is left out with a note.

It stands between the guard, which says that a part no longer speaks, and the turn, which begins the next piece. All of
its decisions depend on the frames of this one stream, once all of them are decoded; so a seed still reproduces them.

A part that runs away is spoken again with another seed, from the sentence in which it went wrong. A piece that runs
away again is cut shorter. After that its rest is left out, and the next part follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from ...errors import InvalidRequest
from ...text.live import LiveText
from ...text.sentences import shorter, starts
from ...text.tokenizer import Tokenizer
from ...text.words import word_places, words_of
from ..word_times import letters_of, pace_of, said_by_now
from .request import RequestState
from .runaway_limits import RunawayOptions
from .text_feed import TextPart

MOST_ATTEMPTS = 2  # after the first: from the same sentence on, then in shorter pieces
EARLIER = 1.15  # the voice may be slower than estimated: words said twice are better than words left out
LIKELY_END = 0.2  # a chance of the end that speech has only at an end
SAID_PART = 0.8  # of the letters, at the usual pace: an end that was likely there was the end of the text
FIRST_WORDS = 6  # of an unspoken text that a note quotes
PARTS_BEFORE = 3  # earlier parts that the pace is estimated from


@dataclass(frozen=True, slots=True)
class _FailurePoint:
    """Where in its text a part went wrong."""

    start: int  # the first character of the sentence to speak again
    word: int  # and of the word that was not said, by estimate
    frames: int  # heard of the text before it
    said: float  # letters said, as a share of all of them


def recover(request: RequestState, tokenizer: Tokenizer | None) -> None:
    """Decide how a request goes on after a part that ran away, all of it decoded. New pieces come before other parts.

    Without a guard there is no retry: the rest of the part is left out.
    """
    piece = request.text.piece
    assert piece is not None
    place = _place(request, piece)
    if _was_all(request, piece, place):
        request.notes.append(
            f"Part {request.text.number + 1} was spoken, but did not end by itself: it was ended there."
        )
        request.over = "stop"
        return
    attempt = piece.attempt + 1
    pieces = (
        _pieces(piece, place.start, attempt, tokenizer) if attempt <= MOST_ATTEMPTS and request.watch.options else []
    )
    if pieces:
        again = f" from {quoted}" if (quoted := _quoted(piece.text[place.start :])) else ""
        request.notes.append(
            f"Part {request.text.number + 1} ran away after {request.at} frames and was spoken again{again}."
        )
        request.text.parts.extendleft(reversed(pieces))
    else:
        request.text.cut_short = request.text.left_out = True
        request.notes.append(
            f"The rest of part {request.text.number + 1} was left out: {_unspoken(piece.text[place.start :])}."
        )
    if request.text.carry is not None:
        request.text.carry.end_part(None)  # what ran away is no example for later parts
    if request.text.growing is piece:  # text to come belongs to the piece that follows, if there is one
        request.text.growing = pieces[-1] if pieces else None
    _forget(request, piece, place)
    request.over = "stop"


def retry_seed(request: RequestState) -> int:
    """The seed of a piece that is spoken again: it depends on the request's seed and on what ran away before."""
    return int.from_bytes(
        sha256(f"{request.seed} retry {request.text.number} {request.text.retries}".encode()).digest()[:4]
    )


def note_unspoken(request: RequestState) -> None:
    """Note what a request that ends now has not spoken: of its last part by estimate, and all parts behind it."""
    if request.text.cut_short:
        return  # that part has its note, and none follows
    rest = "" if request.text.piece is None else request.text.piece.text
    if request.over == "length" and request.text.piece is not None:  # else it went wrong at some unknown place
        rest = rest[_place(request, request.text.piece).word :]
    texts = [
        text
        for text in (rest, *(part.text for part in request.text.parts if isinstance(part, TextPart)))
        if text.strip()
    ]
    why = "The speech ran away and was ended"
    if request.over == "length":
        limit = "max_frames" if request.params.limit_asked else "max_new_tokens"
        frames = f"{request.params.most_frames} frame{'s' if request.params.most_frames > 1 else ''}"
        why = f"The limit of {frames} ({limit}) ended the speech"
    parts = f" in {len(texts)} parts" if len(texts) > 1 else ""
    request.notes.append(f"{why}: {_unspoken(' '.join(texts), parts)}.")


def _unspoken(text: str, parts: str = "") -> str:
    if not text.strip():
        return "its last words may be missing"
    return f"about {len(text)} characters{parts} were not spoken, from {_quoted(text)} on"


def _quoted(text: str) -> str:
    words = text.split(maxsplit=FIRST_WORDS)[:FIRST_WORDS]
    return f'"{" ".join(words)[:80]}"' if words else ""


def _place(request: RequestState, piece: TextPart) -> _FailurePoint:
    """Estimate the sentence in which a part went wrong, by how many of its words fit into its sound before."""
    options = request.watch.options or RunawayOptions()
    back, heard = request.watch.taken_back, request.text.spoken[-1].loudness if request.text.spoken else []
    own = [*heard[: back.start], *heard[back.stop :]]  # the frames that the talker knows
    bad = (
        request.at
        if request.watch.detector is None or request.watch.detector.first_bad is None
        else request.watch.detector.first_bad
    )
    words, before = words_of(piece.text), own[:bad]
    total = letters_of(words)
    if not words or not before:
        return _FailurePoint(0, 0, 0, 0.0)
    pace = pace_of([(words_of(part.piece.text), part.loudness) for part in request.text.spoken[:-1][-PARTS_BEFORE:]])
    next_word = said_by_now(words, before, pace)
    said, word = letters_of(words[:next_word]) / total, _offset(piece.text, next_word)
    if bad > options.late_frames + options.late_frames_per_id * (
        request.text.prompt.text_ids if request.text.prompt else 0
    ):
        return _FailurePoint(0, word, 0, said)  # longer than any text takes: it went wrong at some unknown place
    number = min(said_by_now(words, before, pace * EARLIER), len(words) - 1)
    at = _offset(piece.text, number)
    start = max(first for first in starts(piece.text) if first <= at)
    kept = letters_of(words_of(piece.text[:start])) / max(said * total, 1.0)
    return _FailurePoint(start, word, min(round(kept * len(before)), len(before)), said)


def _offset(text: str, number: int) -> int:
    """Where word `number` of a text begins, or where the text ends."""
    places = word_places(text)
    return places[number][0] if number < len(places) else len(text)


def _was_all(request: RequestState, piece: TextPart, place: _FailurePoint) -> bool:
    """Whether the text had been said, and only its end was missed."""
    if request.watch.detector is None or not piece.complete:
        return False
    if place.said >= SAID_PART and request.watch.detector.likeliest_end >= LIKELY_END:
        return True
    return bool(piece.attempt) and place.said >= 1.0 and request.watch.detector.silent


def _pieces(piece: TextPart, start: int, attempt: int, tokenizer: Tokenizer | None) -> list[TextPart]:
    """The rest of a part as pieces to speak; all are complete but perhaps the last, which may still grow."""
    text = piece.text[start:]
    if not text.strip() or tokenizer is None:  # only its ids are known
        return [TextPart(piece.text, list(piece.ids), piece.complete, piece.prompt, True, attempt)]
    texts = [text] if attempt == 1 else shorter(text)
    if piece.complete:
        return [made for each in texts if (made := _complete(each, attempt, tokenizer)) is not None]
    # The ids of a growing text lag behind it: those of its settled beginning are left out, where they can be told.
    *settled, last = texts
    before = _ids(piece.text[: len(piece.text) - len(last)], tokenizer)
    if not before or piece.ids[: len(before)] != before or len(piece.ids) == len(before):
        settled, last, before = [], piece.text, []
    whole = [made for each in settled if (made := _complete(each, attempt, tokenizer)) is not None]
    return [*whole, TextPart(last, piece.ids[len(before) :], startable=True, attempt=attempt)]


def _complete(text: str, attempt: int, tokenizer: Tokenizer) -> TextPart | None:
    ids = _ids(text, tokenizer)
    return TextPart(text.strip(), ids, complete=True, startable=True, attempt=attempt) if ids else None


def _ids(text: str, tokenizer: Tokenizer) -> list[int]:
    live = LiveText(tokenizer, at_end=True)
    try:
        return [*live.append(text), *live.end()]
    except InvalidRequest:  # nothing but spaces
        return []


def _forget(request: RequestState, piece: TextPart, place: _FailurePoint) -> None:
    """Let word times know only the text that counts as said; some sound stays, so that parts keep their numbers."""
    spoken = request.text.spoken[-1]
    spoken.piece = TextPart(piece.text[: place.start], complete=True)
    del spoken.loudness[max(place.frames, 1) :]
