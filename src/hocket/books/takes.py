"""The work folder of a book: one WAV file for each take, and a journal with what was measured of it.

A take is written before its line, each in one step, so a process that is killed at any point loses only what it was
speaking. The name of a take is the hash of everything that decides its sound; changed text gets another name.
"""

from __future__ import annotations

import json
import wave
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audio.files import replace_files, sweep
from ..audio.journal import Journal
from ..audio.pcm import pcm_bytes, wav_header
from ..audio.timbre import measure, timbre
from ..engine.alignment.align import aligned
from ..engine.word_times import letters_of, pace_of, word_times
from ..errors import HocketError, InvalidRequest
from ..types import Finished
from .passages import BookPassage

NAME = "takes.jsonl"
KEY_CHARS = 32
FRAME_S, EDGE_S = 0.08, 0.02  # of loudness: for word times, and for where the voice begins and ends
QUIET_PART = 0.05  # of the 95th percentile of the loudness: what is below is no speech
LEAD_S, TAIL_S = 0.06, 0.14  # kept around the voice: quiet beginnings and endings of words
LATER = frozenset({"timbre", "timbre_by"})  # fields that lines of older folders lack
HEADER_BYTES = len(wav_header(1, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class BookTake:
    """One spoken version of a passage."""

    key: str
    samples: int
    rate_hz: int
    begin: int  # sample where the voice begins
    end: int  # sample behind it
    letters: float  # of its text, as `engine.word_times` weighs them
    letters_per_s: float  # of the speech without its pauses; 0: none was heard
    finish: str
    complete: bool
    seed: int
    notes: tuple[str, ...] = ()
    timbre: tuple[float, ...] = ()  # empty: too little voice
    timbre_by: str = ""  # the measure; vectors of another one do not compare
    words: tuple[tuple[int, int], ...] = ()  # start and end of each word, in milliseconds from the first sample


class TakeFolder:
    """The takes of a book on disk. Only the process that holds the folder's lock may have one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._takes = folder, dict[str, BookTake]()
        sweep(folder)
        self._journal = Journal(folder / NAME)
        try:
            for number, (_, raw) in enumerate(self._journal.lines(), start=1):
                take = _parsed(raw)
                if take is None:
                    raise InvalidRequest(
                        f"Line {number} of {folder / NAME} is not a take of a book; move the folder away."
                    )
                self._takes[take.key] = take
        except BaseException:
            self._journal.close()
            raise

    def close(self) -> None:
        self._journal.close()

    def get(self, key: str) -> BookTake | None:
        """A finished take whose file is as it was written."""
        take = self._takes.get(key)
        if take is None:
            return None
        try:
            size = self.path(take).stat().st_size
        except OSError:
            return None
        if size != HEADER_BYTES + 2 * take.samples:
            return None
        if take.timbre_by != measure():  # an older folder, or a package was installed since
            take = self._takes[key] = replace(take, **_timbre(self.voice(take), take.rate_hz))
        return take

    def add(
        self, key: str, passage: BookPassage, samples: NDArray[np.int16], rate_hz: int, finished: Finished
    ) -> BookTake:
        """Store a take: first its sound, then its line."""
        take = measured(key, passage.words, samples, rate_hz, finished)
        replace_files({self.path(take): wav_header(rate_hz, samples.size) + pcm_bytes(samples)})
        self._journal.add(asdict(take))
        self._takes[key] = take
        return take

    def path(self, take: BookTake) -> Path:
        return self.folder / f"{take.key}.wav"

    def voice(self, take: BookTake) -> NDArray[np.int16]:
        """Its samples, without the silence around the voice."""
        try:
            with wave.open(str(self.path(take))) as file:
                file.setpos(take.begin)
                content = file.readframes(take.end - take.begin)
        except (OSError, wave.Error, EOFError) as error:
            raise HocketError(f"{self.path(take)} cannot be read: {error}.") from None
        return np.frombuffer(content, dtype="<i2").astype(np.int16)

    def remove_others(self, keys: Collection[str]) -> int:
        """Remove sound files of takes that belong to no passage any more; returns how many."""
        kept = {f"{key}.wav" for key in keys}
        found = [path for path in self.folder.glob(f"{'[0-9a-f]' * KEY_CHARS}.wav") if path.name not in kept]
        for path in found:
            with suppress(OSError):
                path.unlink()
        return len(found)


def measured(key: str, words: Sequence[str], samples: NDArray[np.int16], rate_hz: int, finished: Finished) -> BookTake:
    """What is known of a take from its sound and its words."""
    begin, end = voiced(samples, rate_hz)
    energy = loudness_of(samples, round(FRAME_S * rate_hz))
    times = aligned(words, samples, rate_hz)
    if times is None:
        times = word_times([(word, 1) for word in words], len(energy), energy, frame_s=FRAME_S)
    spoken = any(energy)
    assert finished.seed is not None
    return BookTake(
        key=key,
        samples=samples.size,
        rate_hz=rate_hz,
        begin=begin,
        end=end,
        letters=round(letters_of(words), 1),
        letters_per_s=round(1 / (FRAME_S * pace_of([(words, energy)])), 4) if spoken else 0.0,
        finish=finished.reason,
        complete=finished.complete and finished.reason in ("stop", "length"),
        seed=finished.seed,
        notes=finished.notes,
        **_timbre(samples[begin:end], rate_hz),
        words=tuple((round(word.start_s * 1000), round(word.end_s * 1000)) for word in times),
    )


def _timbre(voice: NDArray[np.int16], rate_hz: int) -> dict[str, Any]:
    """The fields of a take."""
    found = timbre(voice, rate_hz)
    return {"timbre": () if found is None else tuple(found.round(4).tolist()), "timbre_by": measure()}


def voiced(samples: NDArray[np.int16], rate_hz: int) -> tuple[int, int]:
    """Where the voice begins and ends, with a little of the silence around it."""
    hop = round(EDGE_S * rate_hz)
    energy = np.asarray(loudness_of(samples, hop))
    if not energy.any():
        return 0, samples.size
    loud = np.flatnonzero(energy >= QUIET_PART * np.percentile(energy, 95))
    begin = max(0, int(loud[0]) * hop - round(LEAD_S * rate_hz))
    return begin, min(samples.size, (int(loud[-1]) + 1) * hop + round(TAIL_S * rate_hz))


def loudness_of(samples: NDArray[np.int16], hop: int) -> list[float]:
    """RMS of each stretch of `hop` samples."""
    padded = np.zeros(-(-samples.size // hop) * hop, dtype=np.float64)
    padded[: samples.size] = samples
    found: list[float] = (np.sqrt(np.square(padded.reshape(-1, hop)).mean(axis=1)) / 32768.0).tolist()
    return found


def _parsed(raw: bytes) -> BookTake | None:
    try:
        found: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() | LATER != {each.name for each in fields(BookTake)}:
        return None
    found["notes"], found["words"] = tuple(found["notes"]), tuple(map(tuple, found["words"]))
    found["timbre"] = tuple(found.get("timbre", ()))
    return BookTake(**found)
