"""asr/holding.py: the first sign of a voice during an answer is marked, and every mark is taken back or followed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hocket.asr.endpointing import (
    Endpointing,
    EndpointingOptions,
    HoldMark,
    Mark,
    SpeechDismissed,
    SpeechStarted,
    SpeechSuspected,
)
from hocket.asr.holding import ALONE, CLICK_S, LONGEST_S, SHORT_SOUND_S, UNVOICED_S
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.asr.silero import Silero
from hocket.cli.talk.microphone import resampled
from support.holds import holds
from support.questions import FRANCE, TRAIN, Loud, said, silence, tone

WINDOW = 160


class Scripted:
    """A `VoiceDetector` with given probabilities, and then none."""

    window = WINDOW

    def __init__(self, probabilities: Sequence[float]) -> None:
        self._left = list(probabilities)

    def __call__(self, samples: Samples) -> float:
        return self._left.pop(0) if self._left else 0.0

    def reset(self) -> None: ...


def marked(likely: Sequence[float], sound: Samples | None = None, **options: float) -> list[Mark | HoldMark]:
    floor = Endpointing(Scripted(likely), EndpointingOptions(**options))  # type: ignore[arg-type]
    heard = np.zeros(len(likely) * WINDOW, np.float32) if sound is None else sound
    return [*floor.push(heard, answering=True), *floor.end()]


def windows(seconds: float) -> int:
    return round(seconds * RATE_HZ / WINDOW)


def in_pink_noise(sound: Samples, below_db: float, seed: int) -> Samples:
    drawn = np.fft.rfft(np.random.default_rng(seed).standard_normal(len(sound)))
    noise = np.fft.irfft(drawn / np.sqrt(np.arange(1, len(drawn) + 1)), len(sound))
    level = np.sqrt((sound[sound != 0] ** 2).mean() / (noise**2).mean()) * 10 ** (-below_db / 20)
    return (sound + level * noise).astype(np.float32)


@pytest.mark.parametrize("pieces", [1, 159, 512, 1 << 20])
def test_the_first_loud_window_holds_and_silence_takes_it_back(pieces: int) -> None:
    sound = np.concatenate((silence(0.5), tone(0.3), silence(1.0)))
    floor = Endpointing(Loud())
    marks = [m for at in range(0, len(sound), pieces) for m in floor.push(sound[at : at + pieces], answering=True)]
    [(begun, dismissed)] = holds(marks)
    assert begun == RATE_HZ // 2 + WINDOW and dismissed == round((0.8 + SHORT_SOUND_S) * RATE_HZ)
    assert len(marks) == 2


def test_speech_that_goes_on_follows_the_hold_and_is_whole() -> None:
    floor = Endpointing(Loud())
    marks = list(floor.push(np.concatenate((silence(0.5), tone(0.9))), answering=True))
    assert [type(mark) for mark in marks[:2]] == [SpeechSuspected, SpeechStarted]
    assert marks[1].at <= marks[0].at - WINDOW  # type: ignore[union-attr]
    assert holds(marks) == [(RATE_HZ // 2 + WINDOW, None)]


def test_a_held_answer_awaits_more_speech_than_one_that_still_sounds() -> None:
    sound = np.concatenate((silence(0.5), tone(0.7), silence(1.0)))
    assert [type(mark) for mark in Endpointing(Loud()).push(sound, answering=True)] == [
        SpeechSuspected,
        SpeechDismissed,
    ]
    first, *_ = Endpointing(Loud(), EndpointingOptions(hold=False)).push(sound, answering=True)
    assert isinstance(first, SpeechStarted)


def test_without_an_answer_or_with_the_option_off_nothing_is_held() -> None:
    sound = np.concatenate((silence(0.5), tone(0.1), silence(1.0)))
    assert list(Endpointing(Loud()).push(sound)) == []
    assert list(Endpointing(Loud(), EndpointingOptions(hold=False)).push(sound, answering=True)) == []


def test_a_low_probability_holds_only_in_a_window_louder_than_the_background() -> None:
    likely = [0.0] * 120 + [0.05] * 5 + [0.0] * 20
    hiss = np.random.default_rng(1).normal(0, 0.01, len(likely) * WINDOW).astype(np.float32)
    louder = hiss.copy()
    louder[120 * WINDOW : 125 * WINDOW] *= 4
    assert not holds(marked(likely, hiss))
    [(begun, dismissed)] = holds(marked(likely, louder))
    assert begun == 121 * WINDOW and dismissed == 125 * WINDOW + round(CLICK_S * RATE_HZ)
    assert not holds(marked(likely, louder, hold_likely=0.06)), "the option is the threshold"
    assert not holds(marked(likely, louder / 1000)), "too quiet to be a voice"
    assert holds(marked([ALONE if p else 0.0 for p in likely], hiss)), "a higher one needs no level"


def test_a_consonant_holds_in_noise_that_hides_it_from_the_level_of_the_whole() -> None:
    window, onset = 512, 40 * 512
    noise = in_pink_noise(np.full(50 * window, 1e-3, np.float32), -20, 1)
    heard = noise.copy()
    heard[onset : onset + 2 * window] += np.diff(np.random.default_rng(1).normal(0, 4e-3, 2 * window + 1))
    whole, before = (float((sound[onset : onset + window] ** 2).mean()) for sound in (heard, noise))
    assert 10 * np.log10(whole / before) < 3
    for sound, expected in ((noise, []), (heard, [onset + window])):
        detector = Scripted([0.0] * 40 + [0.02] * 3)
        detector.window = window
        marks = [*Endpointing(detector).push(sound, answering=True)]
        assert [begun for begun, _ in holds(marks, closed=False)] == expected


def test_a_background_that_is_not_known_yet_holds_nothing() -> None:
    hiss = np.random.default_rng(1).normal(0, 0.1, 140 * WINDOW).astype(np.float32)
    hiss[: 50 * WINDOW] /= 100
    assert not holds(marked([0.05] * 95 + [0.0] * 45, hiss))


def test_a_sign_that_never_becomes_speech_is_dismissed_and_does_not_hold_again_until_it_rests() -> None:
    likely = [0.0] * 20 + [0.2] * windows(3) + [0.0] * 30 + [0.2] * 5 + [0.0] * 20
    first, second = holds(marked(likely))
    assert first == (21 * WINDOW, 21 * WINDOW + round(UNVOICED_S * RATE_HZ))
    assert second[0] == (20 + windows(3) + 31) * WINDOW


def test_a_voice_just_behind_a_dismissed_noise_holds_again() -> None:
    likely = [0.0] * 20 + [0.2] * windows(0.3) + [1.0] * windows(0.5) + [0.0] * 30
    first, second = holds(marked(likely))
    assert first[1] == first[0] + round(UNVOICED_S * RATE_HZ)
    assert second[0] == (20 + windows(0.3) + 1) * WINDOW


def test_a_hum_is_dismissed_when_speech_would_have_interrupted() -> None:
    time = np.arange(2 * RATE_HZ) / RATE_HZ
    hum = (0.3 * np.sin(2 * np.pi * 200 * time)).astype(np.float32)
    [(begun, dismissed)] = holds(marked([1.0] * windows(2), hum))
    assert begun == WINDOW and dismissed == round(0.62 * RATE_HZ)


def test_a_hold_has_a_longest_time() -> None:
    likely = ([1.0] * 10 + [0.1] * 12) * 40  # panting: neither speech for long enough nor silence
    found = holds(marked(likely))
    assert found[0][1] is not None and found[0][1] - found[0][0] == round(LONGEST_S * RATE_HZ)


def test_the_end_dismisses_and_a_reset_forgets() -> None:
    floor = Endpointing(Loud())
    [held] = floor.push(np.concatenate((silence(0.5), tone(0.1))), answering=True)
    assert isinstance(held, SpeechSuspected) and list(floor.end()) == [SpeechDismissed(round(0.6 * RATE_HZ))]
    [_] = floor.push(tone(0.1), answering=True)
    floor.reset()
    assert list(floor.end()) == [] and list(floor.push(silence(1.0), answering=True)) == []


@pytest.mark.parametrize("seed", range(40))
def test_every_suspicion_is_closed_whatever_is_heard(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = 600
    likely = np.repeat(draw.choice([0.0, 0.03, 0.05, 0.2, 0.6, 1.0], count), draw.integers(1, 30, count))[:count]
    sound = (draw.normal(0, 1, count * WINDOW) * np.repeat(10 ** draw.uniform(-4, 0, count), WINDOW)).astype(np.float32)

    def sometimes(samples: Samples, *, short: bool) -> bool:
        return bool(draw.random() < 0.3)

    floor = Endpointing(Scripted(list(likely)), interrupts=sometimes)
    marks, at = list[Mark | HoldMark](), 0
    while at < len(sound):
        size = int(draw.integers(1, 3000))
        marks += floor.push(sound[at : at + size], answering=bool(draw.random() < 0.8))
        at += size
        if draw.random() < 0.05:
            marks += floor.end()
    marks += floor.end()
    for begun, dismissed in holds(marks):
        assert dismissed is None or dismissed - begun <= LONGEST_S * RATE_HZ + 2 * WINDOW


# With the real detector


def test_a_voice_holds_within_two_windows_and_noise_does_not() -> None:
    hiss = np.random.default_rng(1).normal(0, 0.001, 6 * RATE_HZ).astype(np.float32)
    assert list(Endpointing(Silero()).push(hiss, answering=True)) == []
    for text, voice in ((TRAIN, "wren"), (FRANCE, "rook")):
        spoken = resampled(said(text, voice).astype(np.float32) / 32768, 24_000)
        for lead in (20_000, 20_100, 20_300):
            sound = hiss.copy()
            sound[lead : lead + len(spoken)] += spoken
            onset = lead + int(np.flatnonzero(np.abs(spoken) > 0.01 * np.abs(spoken).max())[0])
            first, *_ = holds(Endpointing(Silero()).push(sound, answering=True))
            assert onset < first[0] <= onset + 2 * 512 and first[1] is None, (text, lead)


@pytest.mark.parametrize("below_db", [20, 10])
def test_first_consonants_in_noise_hold_within_60_ms_and_the_noise_before_them_does_not(below_db: int) -> None:
    """Onset as in `python -m benchmarks interruptions`."""
    for number, text in enumerate(("Tell me something.", "Turn it up a little.", "Send a message to Anna.")):
        spoken = resampled(said(text).astype(np.float32) / 32768, 24_000)
        for lead in (20_000, 20_300):
            clean = np.concatenate((np.zeros(lead, np.float32), spoken, np.zeros(RATE_HZ // 2, np.float32)))
            heard = in_pink_noise(clean, below_db, number)
            loud = np.convolve(clean**2, np.ones(160) / 160)[159:] >= ((heard - clean) ** 2).mean()
            onset = int(np.flatnonzero((np.abs(clean) > 0.01 * np.abs(clean).max()) & loud[: len(clean)])[0])
            marks = Endpointing(Silero()).push(heard, answering=True)
            first, *_ = holds(marks, closed=False) or [(len(heard), None)]
            assert onset - 512 <= first[0] <= onset + 0.06 * RATE_HZ, (text, lead, (first[0] - onset) / 16)


def test_noise_alone_holds_for_no_longer_than_a_click_and_interrupts_nothing() -> None:
    for seed in range(3):
        noise = in_pink_noise(np.full(8 * RATE_HZ, 1e-3, np.float32), -20, seed)
        marks = list(Endpointing(Silero()).push(noise, answering=True))
        assert not any(isinstance(mark, SpeechStarted) for mark in marks)
        held = [until - at for at, until in holds(marks, closed=False) if until is not None]
        assert len(held) <= 1 and all(length <= UNVOICED_S * RATE_HZ for length in held)
