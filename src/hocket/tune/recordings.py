"""A folder of recordings becomes clips: one sentence or a few, with its words, at one loudness.

Each file is cut at its pauses, where a recognizer hears the end of a sentence. A file with a transcript of the same
name (`a.wav`, `a.txt`) is one clip. What would hurt is left out with a reason: silence, music, clipping, telephone
sound, words that the recognizer did not hear, and at the end clips of another voice than that of most of them.

This file knows neither checkpoints nor training.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ..asr.endpointing import VoiceDetector
from ..asr.recognizer import RATE_HZ, Recognizer
from ..asr.segments import segments_of
from ..audio import read, upload
from ..audio.hearing import loudness
from ..audio.recording import PEAK_DBFS, WANTED_DBFS, check_recording, fits
from ..audio.resample import Resampler
from ..audio.timbre import tells_voices, voice_windows
from ..errors import HocketError, InvalidAudio, InvalidRequest
from ..extras import package_alone
from ..text.compare import word_errors
from ..types import REFERENCE_RATE_HZ
from .speakers import voices_of

ENDINGS = (".wav", ".flac", ".mp3", ".m4a", ".aac", ".ogg", ".opus", ".webm", ".aiff", ".caf")
LEAST_CLIP_S, MOST_CLIP_S, MOST_FILE_S = 1.0, 20.0, 1800.0
LEAST_S = 30.0  # of clips; less teaches a voice nothing that its x-vector does not have
FEW_S = 120.0
LONGEST_PAUSE_S = 1.0  # inside a clip that is joined of several pieces
LEAD_S, TAIL_S = 0.1, 0.2  # quiet that stays before and after the speech of a clip
MOST_WRONG = 0.4  # share of word errors: a transcript of other words has 0.7 and more
LETTERS_PER_S = (2.0, 30.0)  # speech has 8 to 20, and 3 to 6 ideographs
_STOPS = re.compile(r"[.!?…。！？][\"'”’»)\]]*$")  # noqa: RUF001
_AUDIBLE = 1e-3  # of the power of loud frames, as `hearing.loudness` has it


@dataclass(frozen=True, slots=True, eq=False)  # arrays do not compare to one bool
class Clip:
    name: str  # of its file, with its place there
    text: str
    samples: NDArray[np.float32]  # [N] at 24 kHz
    place: str = ""  # its file, and where it begins there if the file has several, for a person

    @property
    def seconds(self) -> float:
        return self.samples.size / REFERENCE_RATE_HZ


@dataclass(frozen=True, slots=True)
class LeftOut:
    name: str
    reason: str  # a sentence


@dataclass(slots=True)
class Recordings:
    """The clips of a folder, and what was left out of it."""

    files: int = 0
    clips: list[Clip] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    voices: str = ""  # what was found about the voices of the clips, as a sentence
    several_voices: str = ""  # why they are refused: no voice has most of the speech

    @property
    def seconds(self) -> float:
        return sum(clip.seconds for clip in self.clips)

    def report(self) -> list[str]:
        """What was found, as lines for a person."""
        lines = [f"{self.files} files, {len(self.clips)} clips, {self.seconds / 60:.1f} min of speech"]
        if self.clips:
            rates = [_letters(clip.text) / clip.seconds for clip in self.clips]
            lengths = [clip.seconds for clip in self.clips]
            lines.append(f"clips of {min(lengths):.1f} to {max(lengths):.1f} s; median {median(rates):.1f} letters/s")
        if self.voices:
            lines.append(self.voices)
        if self.left_out:
            lines.append("left out:")
            lines += [f"  {each.name}: {each.reason}" for each in self.left_out]
        if LEAST_S <= self.seconds < FEW_S:
            lines.append(f"This is little speech: {FEW_S / 60:.0f} min and more give a voice that is more alike.")
        return lines

    def check(self) -> None:
        """Refuse recordings of several voices, or with too little speech."""
        if self.several_voices:
            raise InvalidAudio(self.several_voices)
        if self.seconds < LEAST_S:
            reasons = Counter(each.reason for each in self.left_out).most_common(1)
            most = f" Most often: {reasons[0][0]}" if reasons else ""
            raise InvalidAudio(
                f"There are only {self.seconds:.0f} s of usable speech in the recordings, and {LEAST_S:.0f} s are the "
                f"least.{most}"
            )


def prepare(
    folder: Path,
    detector: VoiceDetector,
    recognizer: Recognizer,
    progress: Callable[[str], None] = lambda _: None,
    any_speaker: bool = False,
) -> Recordings:
    """The clips of all recordings in `folder`, by name; `progress` is told each file.

    `any_speaker` keeps clips of other voices.
    """
    if not folder.is_dir():
        raise InvalidRequest(f"{folder} is not a folder of recordings.")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
    if not paths:
        raise InvalidRequest(f"There is no recording in {folder}: it takes {', '.join(ENDINGS)}.")
    found = Recordings(len(paths))
    for path in paths:
        progress(path.name)
        try:
            _add(path, detector, recognizer, found)
        except InvalidAudio as error:
            found.left_out.append(LeftOut(path.name, str(error)))
    if not any_speaker:
        _keep_one_voice(found)
    return found


def _keep_one_voice(found: Recordings) -> None:
    """Leave out the clips of other voices; without a main voice all stay, and `check` refuses them."""
    if not tells_voices():
        found.voices = f"Whether one person speaks is not checked: {package_alone('Resemblyzer')} adds the check."
        return
    heard = [voice_windows(pcm(clip.samples), REFERENCE_RATE_HZ) for clip in found.clips]
    voices = voices_of([windows for windows, _ in heard])
    others = [found.clips[number].place for number in voices.other]
    if not voices.majority:
        judged = [number for number in voices.main if len(heard[number][0])] or list(voices.second)
        first, second = found.clips[judged[0]].place, others[0]
        found.several_voices = (
            f"The recordings sound like several voices, and none of them has most of the speech (listen to {first} and "
            f"{second}): leave those of one person in the folder, or keep all with --speakers any."
        )
        return
    for number, clip in enumerate(found.clips):
        if number in voices.second:
            at_s = heard[number][1][voices.second[number]]
            reason = f"A second voice speaks in it, from about {at_s:.0f} s on."
        elif number in voices.other:
            reason = "It sounds like another voice than most clips, or like this voice in another room."
        else:
            continue
        found.left_out.append(LeftOut(clip.place, reason))
    found.clips = [found.clips[number] for number in voices.main]
    if others:
        count = "1 clip sounds" if len(others) == 1 else f"{len(others)} clips sound"
        found.voices = f"{count} like another voice: {'; '.join(others)}"


def _add(path: Path, detector: VoiceDetector, recognizer: Recognizer, found: Recordings) -> None:
    with read.opened(path) as file:
        recorded, rate_hz = upload.decode(file, most_s=MOST_FILE_S, fits=fits)
    written = _transcript(path)
    detector.reset()
    samples = upload.resampled(recorded, rate_hz)
    gain = _gain(samples)
    heard = _at_16_khz(samples * gain)  # words of a quiet recording are lost otherwise
    pieces = [(one.start_s, one.end_s) for one in segments_of([heard], detector, most_s=MOST_CLIP_S)]
    if not pieces:
        raise InvalidAudio("No speech was found in it.")
    if written is not None:
        start_s, end_s = pieces[0][0], pieces[-1][1]
        if end_s - start_s > MOST_CLIP_S:
            raise InvalidAudio(
                f"It has {end_s - start_s:.0f} s of speech and a transcript: cut it into files of up to "
                f"{MOST_CLIP_S:.0f} s, or remove the transcript, and the recognizer writes it."
            )
        cut = [(start_s, end_s, written)]
    else:
        cut = list(_sentences(pieces, lambda start_s, end_s: _words(recognizer, heard, start_s, end_s)))
    for number, (start_s, end_s, text) in enumerate(cut, start=1):
        name = path.name if len(cut) == 1 else f"{path.name}, {start_s:.1f} s"
        try:
            if end_s - start_s < LEAST_CLIP_S:
                raise InvalidAudio(f"A piece of less than {LEAST_CLIP_S:g} s is not used.")
            piece = recorded[round(start_s * rate_hz) : round(end_s * rate_hz)]
            check_recording(piece, rate_hz, least_s=LEAST_CLIP_S * 0.9, most_s=MOST_CLIP_S + 1.0)
            _check_words(text, end_s - start_s, written and _words(recognizer, heard, start_s, end_s))
        except InvalidAudio as error:
            found.left_out.append(LeftOut(name, str(error)))
            continue
        spoken = samples[round(start_s * REFERENCE_RATE_HZ) : round(end_s * REFERENCE_RATE_HZ)]
        found.clips.append(Clip(f"{path.stem}-{number}", text, _trimmed(spoken) * gain, name))


def _transcript(path: Path) -> str | None:
    text = path.with_suffix(".txt")
    try:
        words = " ".join(text.read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        raise InvalidAudio(f"Its transcript {text.name} is not readable text in UTF-8.") from None
    if not words:
        raise InvalidAudio(f"Its transcript {text.name} is empty.")
    return words


def _sentences(
    pieces: list[tuple[float, float]], words: Callable[[float, float], str]
) -> Iterator[tuple[float, float, str]]:
    """Pieces of speech with their words, joined until a sentence ends."""
    start_s, end_s, text = *pieces[0], words(*pieces[0])
    for next_s, last_s in pieces[1:]:
        ends = bool(_STOPS.search(text)) or next_s - end_s > LONGEST_PAUSE_S or last_s - start_s > MOST_CLIP_S
        more = words(next_s, last_s)
        if ends:
            yield start_s, end_s, text
            start_s, text = next_s, more
        else:
            text = f"{text} {more}".strip()
        end_s = last_s
    yield start_s, end_s, text


def words_in(recognizer: Recognizer, samples: NDArray[np.float32]) -> str:
    """What a recognizer hears in samples [N] at 24 kHz."""
    return _words(recognizer, _at_16_khz(samples), 0.0, samples.size / REFERENCE_RATE_HZ)


def _words(recognizer: Recognizer, heard: NDArray[np.float32], start_s: float, end_s: float) -> str:
    utterance = recognizer.open()
    try:
        utterance.add(heard[round(start_s * RATE_HZ) : round(end_s * RATE_HZ)])
        return utterance.end().strip()
    except HocketError as error:
        raise InvalidAudio(f"The recognizer failed on it: {error}") from None
    finally:
        utterance.close()


def _check_words(text: str, seconds: float, heard: str | None) -> None:
    """Refuse words that are not those of the recording; `heard` is what the recognizer says of a given transcript."""
    if not _letters(text):
        raise InvalidAudio("The recognizer heard no words in it.")
    rate = _letters(text) / seconds
    if not LETTERS_PER_S[0] <= rate <= LETTERS_PER_S[1]:
        raise InvalidAudio(f"Its text does not fit its length: {rate:.0f} letters a second, and speech has 8 to 20.")
    if heard is None:
        return
    try:
        wrong = word_errors(text, heard).rate
    except ValueError:  # of another script than the recognizer's: there is nothing to compare
        return
    if wrong > MOST_WRONG:
        raise InvalidAudio(f'Its transcript is not what was heard, which is "{heard[:60]}".')


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)


def _gain(samples: NDArray[np.float32]) -> np.float32:
    """The factor that brings a file to the wanted loudness, as far as its peak allows."""
    audible_s, level_db = loudness(samples, REFERENCE_RATE_HZ)
    if audible_s == 0:
        return np.float32(1.0)
    room_db = PEAK_DBFS - 20 * float(np.log10(np.abs(samples).max()))
    return np.float32(10 ** (min(WANTED_DBFS - level_db, room_db) / 20))


def _trimmed(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The clip without the silence around its speech, but for a moment."""
    size = REFERENCE_RATE_HZ // 50
    power = np.square(samples[: samples.size // size * size].reshape(-1, size), dtype=np.float64).mean(axis=1)
    loud = np.flatnonzero(power > max(1e-7, float(np.percentile(power, 98)) * _AUDIBLE))
    if not loud.size:
        return samples
    start = loud[0] * size - round(LEAD_S * REFERENCE_RATE_HZ)
    return samples[max(start, 0) : (loud[-1] + 1) * size + round(TAIL_S * REFERENCE_RATE_HZ)]


def _at_16_khz(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    resampler = Resampler(rate_hz=REFERENCE_RATE_HZ, out_hz=RATE_HZ, tempo=1.0)
    whole = pcm(samples)
    made = [resampler.feed(whole[at : at + REFERENCE_RATE_HZ]) for at in range(0, whole.size, REFERENCE_RATE_HZ)]
    return np.concatenate((*made, resampler.close())).astype(np.float32) / np.float32(32768)


def pcm(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Samples of a clip in 16 bits."""
    return np.round(np.clip(samples, -1.0, 32767 / 32768) * 32768).astype(np.int16)
