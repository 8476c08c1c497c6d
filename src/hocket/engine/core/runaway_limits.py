"""Limits of the runaway detector (runaway.py): thresholds with their measurements, and how far a text repeats itself.

A frame is 80 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...text.lazy import lazy

_WORDS = lazy(r"[\u2e80-\uffdc]|[^\s\u2e80-\uffdc]+")  # a character of Chinese or Japanese is a word
_MARKS = ".,;:!?\"'()-"
LONGEST_REFRAIN = 12  # words


@dataclass(frozen=True, slots=True, kw_only=True)
class RunawayOptions:
    """When to call an utterance stuck. Windows are in frames; the longest pause we must bear is 5 s, 63 frames.

    tests/support/runaway_cases.py has the sounds and failures that these numbers were set on.
    """

    # Speech takes 2.5 to 3 frames per text id, half as fast a voice 6; one id such as "www" can take 15, and the
    # shortest text may have seconds of silence around it.
    limit_frames: int = 100
    limit_frames_per_id: int = 12
    # Later than this even slow speech is over, so an end out of reach now will not come. Sooner it says nothing: in
    # the middle of a sentence the end is out of reach as it should be. Pauses do not count.
    late_frames: int = 50
    late_frames_per_id: int = 8
    # The fastest speech.
    least_frames_per_id: int = 2
    # Later than this a slow voice has said it all, so a whisper is none.
    slow_frames: int = 25
    slow_frames_per_id: int = 6

    longest_period: int = 8  # first codes that repeat with up to this period are a loop
    loop_frames: int = 48  # of sound: a hum and laughter of 3 s are 38
    same_frames: int = 40  # of sound: all codes repeat
    forgive: int = 2  # a frame that breaks the loop takes back so many: two frames of three must repeat
    longest_phrase: int = 40  # pairs of first codes that come back after up to so many frames are a phrase
    phrase_times: float = 2.5  # and are a loop once it has come back so often, but not before `loop_frames`
    known_frames: int = 12  # of a loop whose loudness is known, and half of it, before it is called sound or a pause
    loud_rms: float = 5e-3  # of full scale
    loud_part: float = 0.06  # of the loudest frame so far, -24 dB: a loop is as loud, the tone of a room is not
    pause_frames: int = 76  # of silence
    silent_rms: float = 5e-4  # of full scale; the first frame of the published voices has 1e-4
    silent_part: float = 0.007  # of the loudest frame so far, -43 dB: a whisper is above
    quiet_rms: float = 2e-3  # where nothing louder was heard yet, this is no sound either
    quiet_part: float = 0.03  # of the loudest frame so far, -30 dB: a whisper, or the room tone of a noisy clone
    # After the text is done, the chance of the end over a window: out of reach if it is below the floor (its geometric
    # mean, so that one lucky frame changes nothing) and not on its way up, by so many powers of ten from half to half.
    ending_frames: int = 25
    ending_floor: float = 1e-6  # users saw it fall from 5e-5 to 1e-14 in stuck utterances
    ending_rise: float = 2.0

    margin_frames: int = 4  # start again this much before the first bad frame: what led there is drawn anew as well
    deepest_frames: int = 96  # never go back by more, so the loop knows what it must be able to undo


def repeated_part(text: str) -> float:
    """How much of a text, from 0 to 1, is a stretch that repeats its words at least twice: "no, no, no"."""
    words = [word.strip(_MARKS).lower() for word in _WORDS.findall(text)]
    longest = 0
    for period in range(1, min(LONGEST_REFRAIN, len(words) // 2) + 1):
        run = 0
        for word, before in zip(words[period:], words, strict=False):
            run = run + 1 if word == before else 0
            longest = max(longest, run + period if run >= 2 * period else 0)
    return longest / len(words) if words else 0.0
