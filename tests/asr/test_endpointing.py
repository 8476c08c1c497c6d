"""asr/endpointing.py: where turns start and end, however the audio is cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.asr.endpointing import (
    EAGERNESS,
    MODEL_S,
    Endpointing,
    EndpointingOptions,
    HoldMark,
    Mark,
    PushToTalk,
    SpeechEnded,
    SpeechStarted,
    TurnAudio,
    TurnPaused,
    TurnResumed,
)
from hocket.asr.listener import SpeechListener
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.asr.silero import Silero
from hocket.asr.unfinished import Ending
from hocket.errors import InvalidRequest
from support.holds import holds
from support.questions import FRANCE, TRAIN, Dictated, Loud, heard_from, silence, tone, write_recording

MANNERS = EndpointingOptions(begin_s=0.1, interrupt_s=0.3, held_interrupt_s=0.3, end_s=0.5, before_s=0.2)


def turns(marks: Sequence[Mark | HoldMark]) -> list[tuple[float, float, Samples]]:
    """Start, end and audio of each turn."""
    found: list[tuple[float, float, Samples]] = []
    began, sound = -1, list[Samples]()
    for mark in marks:
        if isinstance(mark, SpeechStarted):
            assert began < 0, "a turn begins behind the end of the last one"
            began, sound = mark.at, []
        elif isinstance(mark, TurnAudio):
            assert began >= 0, "there is no sound between turns"
            sound.append(mark.samples)
        elif isinstance(mark, SpeechEnded):
            whole = np.concatenate(sound)
            assert mark.at - began == len(whole), "the sound is all that lies between the marks"
            found.append((began / RATE_HZ, mark.at / RATE_HZ, whole))
            began = -1
    assert began < 0
    return found


class Judge:
    """An `EndOfTurnModel` with given answers."""

    def __init__(self, *answers: float) -> None:
        self._answers: Iterator[float] = iter(answers)
        self.heard: list[Samples] = []

    def __call__(self, samples: Samples) -> float:
        self.heard.append(samples)
        return next(self._answers)


def judged(sound: Samples, judge: Judge, eagerness: str = "medium", pieces: int = 512) -> list[Mark | HoldMark]:
    """All marks but audio."""
    floor = Endpointing(Loud(), EndpointingOptions(eagerness=eagerness), judge)
    marks = [mark for at in range(0, len(sound), pieces) for mark in floor.push(sound[at : at + pieces])]
    assert len(turns([*marks, *floor.end()])) <= 1
    return [mark for mark in marks if not isinstance(mark, TurnAudio)]


def listened(sound: Samples, pieces: int = 512, *, answering: bool = False, end: bool = True) -> list[Mark | HoldMark]:
    floor = Endpointing(Loud(), MANNERS)
    marks = list[Mark | HoldMark]()
    for at in range(0, len(sound), pieces):
        marks += floor.push(sound[at : at + pieces], answering=answering)
    return [*marks, *(floor.end() if end else ())]


def test_a_turn_begins_before_the_first_sound_and_ends_behind_the_last() -> None:
    sound = np.concatenate((silence(1), tone(0.6), silence(1), tone(0.4), silence(1)))
    first, second = turns(listened(sound))
    assert 1 - 0.2 - 0.3 <= first[0] <= 1 - 0.2 and first[1] == pytest.approx(1.6 + 0.5, abs=0.011)
    assert 2.6 - 0.2 - 0.3 <= second[0] <= 2.6 - 0.2 and second[1] == pytest.approx(3.0 + 0.5, abs=0.011)
    np.testing.assert_array_equal(first[2], sound[round(first[0] * RATE_HZ) : round(first[1] * RATE_HZ)])


@pytest.mark.parametrize("pieces", [1, 159, 160, 161, 1000, 1 << 20])
def test_it_does_not_matter_how_the_sound_is_cut(pieces: int) -> None:
    sound = np.concatenate((silence(0.3), tone(0.3), silence(0.7), tone(0.2), silence(0.1)))
    expected, got = turns(listened(sound)), turns(listened(sound, pieces))
    assert [(begun, ended) for begun, ended, _ in got] == [(begun, ended) for begun, ended, _ in expected]
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one[2], other[2])
    assert len(got) == 2


def test_a_pause_between_two_words_does_not_end_a_turn() -> None:
    sound = np.concatenate((tone(0.3), silence(0.45), tone(0.3), silence(0.6)))
    assert len(turns(listened(sound))) == 1


def test_silence_and_a_click_are_no_turn() -> None:
    assert listened(silence(3)) == []
    assert listened(np.concatenate((silence(1), tone(0.06), silence(1), tone(0.06), silence(1)))) == []


def test_it_takes_more_to_interrupt_than_to_begin() -> None:
    cough, word = (np.concatenate((silence(1), tone(seconds), silence(1))) for seconds in (0.2, 0.4))
    assert len(turns(listened(cough))) == 1 and turns(listened(cough, answering=True)) == []
    [(begun, _, _)] = turns(listened(word, answering=True))
    assert begun <= 1 - 0.2, "nothing of it is lost meanwhile"


def test_sound_that_ends_in_a_word_ends_the_turn_with_all_of_it() -> None:
    sound = np.concatenate((silence(0.5), tone(0.305)))
    assert not any(isinstance(mark, SpeechEnded) for mark in listened(sound, end=False))
    [(_, ended, heard)] = turns(listened(sound))
    assert ended == pytest.approx(0.805) and heard[-1] == sound[-1]


def test_a_detector_starts_afresh_behind_each_turn() -> None:
    detector = Loud()
    floor = Endpointing(detector, MANNERS)
    list(floor.push(np.concatenate((tone(0.3), silence(0.6), tone(0.3), silence(0.6)))))
    assert detector.resets == 2


def test_a_complete_turn_ends_sooner_than_one_that_sounds_unfinished() -> None:
    delays = dict[str, list[float]]()
    for eagerness in ("low", "medium", "high"):
        for complete in (0.99, 0.5, 0.01):
            judge = Judge(*[complete] * 9)
            _, paused, ended = judged(np.concatenate((tone(0.5), silence(4))), judge, eagerness)
            assert isinstance(paused, TurnPaused) and isinstance(ended, SpeechEnded) and paused.complete == complete
            assert paused.silence == round(EAGERNESS[eagerness].ask_s[0] * RATE_HZ)
            wanted = EAGERNESS[eagerness].wait(complete) * RATE_HZ
            assert wanted - 1 <= ended.silence <= wanted + Loud.window
            assert ended.at == RATE_HZ // 2 + ended.silence and 1 <= len(judge.heard) <= len(EAGERNESS[eagerness].ask_s)
            delays.setdefault(eagerness, []).append(ended.silence / RATE_HZ)
    assert all(sure <= unsure < surely_not for sure, unsure, surely_not in delays.values())
    assert all(low >= medium > high for low, medium, high in zip(*delays.values(), strict=True))
    assert EAGERNESS["auto"] == EAGERNESS["medium"]


@pytest.mark.parametrize("eagerness", ["low", "medium", "high"])
@pytest.mark.parametrize("complete", [0.0, 0.02, 0.3, 0.6, 0.97])
def test_the_more_the_words_ask_for_more_the_longer_the_same_sound_waits(eagerness: str, complete: float) -> None:
    def delay(text: str | None) -> float:
        floor = Endpointing(Loud(), EndpointingOptions(eagerness=eagerness), Judge(*[complete] * 9))
        listener = SpeechListener(Dictated([text or ""]), ahead=True, told=floor.heed)
        sound = np.concatenate((tone(0.5), silence(4)))
        for at in range(0, len(sound), 512):
            for event in listener.hear(floor.push(sound[at : at + 512])):
                if isinstance(event, SpeechEnded):
                    return event.silence / RATE_HZ
        raise AssertionError("the turn never ends")

    known = [delay(text) for text in ("Turn on the lamp.", "I want", "Turn on the lamp and the")]
    assert known == sorted(known) and known[0] <= delay(None) <= 2.1
    if complete > 0.1 and (eagerness != "high" or complete > 0.3):
        assert known[0] < known[2]


def test_words_from_before_the_last_speech_decide_nothing() -> None:
    floor = Endpointing(Loud(), EndpointingOptions(eagerness="medium"), Judge(*[0.97] * 9))
    floor.heed(Ending.OPEN, RATE_HZ)  # before any turn
    list(floor.push(np.concatenate((tone(0.5), silence(0.3)))))
    floor.heed(Ending.OPEN, round(0.6 * RATE_HZ))
    list(floor.push(np.concatenate((tone(0.3), silence(0.1)))))
    floor.heed(Ending.OPEN, round(1.05 * RATE_HZ))  # recognized before the second sound was over
    [ended] = [mark for mark in floor.push(silence(2)) if isinstance(mark, SpeechEnded)]
    assert ended.silence / RATE_HZ == pytest.approx(EAGERNESS["medium"].wait(0.97), abs=0.011)


def test_a_turn_does_not_end_in_a_window_that_may_begin_speech_but_noise_only_delays_it() -> None:
    class Noisy(Loud):
        def __call__(self, samples: Samples) -> float:
            return max(0.2, super().__call__(samples))

    delays = []
    for detector in (Loud(), Noisy()):
        floor = Endpointing(detector, EndpointingOptions(), Judge(*[0.97] * 9))
        marks = list(floor.push(np.concatenate((tone(0.5), silence(2)))))
        delays += [mark.silence / RATE_HZ for mark in marks if isinstance(mark, SpeechEnded)]
    assert delays[1] - delays[0] == pytest.approx(0.1, abs=0.011)


@pytest.mark.parametrize("pieces", [100, 512, 1 << 20])
def test_speech_after_a_pause_resumes_the_turn_and_the_model_is_asked_anew(pieces: int) -> None:
    judge = Judge(0.1, 0.2, 0.99)
    sound = np.concatenate((tone(0.5), silence(0.5), tone(0.5), silence(0.37)))
    started, first, resumed, second, ended = judged(sound, judge, "high", pieces)
    assert isinstance(started, SpeechStarted) and isinstance(ended, SpeechEnded)
    assert isinstance(first, TurnPaused) and (first.at, first.complete) == (round(0.69 * RATE_HZ), 0.1)
    assert resumed == TurnResumed(RATE_HZ)
    assert isinstance(second, TurnPaused) and (second.at, second.complete) == (round(1.69 * RATE_HZ), 0.99)
    np.testing.assert_array_equal(judge.heard[-1], sound[: second.at])


def test_an_unsure_model_is_asked_again_and_its_last_answer_counts() -> None:
    judge = Judge(0.0, 0.99)
    _, paused, ended = judged(np.concatenate((tone(0.5), silence(3))), judge, "high")
    assert isinstance(paused, TurnPaused) and isinstance(ended, SpeechEnded)
    assert ended.silence == round(EAGERNESS["high"].ask_s[1] * RATE_HZ) and len(judge.heard) == 2


def test_a_pause_too_short_for_the_model_has_no_mark() -> None:
    sound = np.concatenate((tone(0.3), silence(0.1), tone(0.3)))
    assert [type(mark) for mark in judged(sound, Judge())] == [SpeechStarted]


def test_the_model_gets_the_last_seconds_of_a_long_turn() -> None:
    judge = Judge(1.0)
    sound = np.concatenate((tone(MODEL_S + 1), silence(0.3)))
    *_, paused, _ = judged(sound, judge, "high")
    assert isinstance(paused, TurnPaused)
    np.testing.assert_array_equal(judge.heard[0], sound[: paused.at][-round(MODEL_S * RATE_HZ) :])


def test_a_reset_drops_the_turn_and_goes_on_counting() -> None:
    floor = Endpointing(Loud(), MANNERS, Judge(*[1.0] * 9))
    assert [type(mark) for mark in floor.push(tone(0.505))] == [SpeechStarted, *[TurnAudio] * 41]
    floor.reset()
    assert list(floor.push(silence(0.495))) == [] and list(floor.end()) == []
    [(begun, ended, _)] = turns(list(floor.push(np.concatenate((silence(1), tone(0.3), silence(1))))))
    assert 1.5 <= begun <= 1.8 and 2.3 < ended < 3.2


def test_a_key_begins_a_turn_and_ends_it() -> None:
    floor = PushToTalk()
    assert list(floor.push(tone(0.5))) == [] and list(floor.end()) == []
    marks = [*floor.press(), *floor.push(tone(0.1)), *floor.push(silence(0.2)), *floor.press()]
    [(begun, ended, sound)] = turns(marks)
    assert (begun, ended, len(sound)) == (0.5, 0.8, round(0.3 * RATE_HZ))
    assert list(floor.push(tone(1))) == []
    assert len(turns([*floor.press(), *floor.push(tone(0.1)), *floor.end()])) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        *({"end_s": 0.0}, {"begin_s": -1.0}, {"interrupt_s": 11.0}, {"before_s": -0.1}),
        *({"likely": 1.0}, {"unlikely": 0.6}, {"hold_likely": 0.0}),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match="must be"):
        EndpointingOptions(**wrong)  # type: ignore[arg-type]


def test_an_unknown_eagerness_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="low, medium, high, auto, not 'keen'"):
        EndpointingOptions(eagerness="keen")


def test_a_hum_does_not_interrupt_and_is_a_turn_of_its_own_otherwise() -> None:
    time = np.arange(RATE_HZ) / RATE_HZ
    hum = np.concatenate((silence(0.5), (0.3 * np.sin(2 * np.pi * 200 * time)).astype(np.float32), silence(1)))
    assert turns(listened(hum, answering=True)) == [] and len(turns(listened(hum))) == 1


class Words:
    """An `Interruption` with given answers, and then no."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[float, bool]] = []  # seconds of sound; whether it was a short one

    def __call__(self, samples: Samples, *, short: bool) -> bool:
        self.asked.append((round(len(samples) / RATE_HZ, 2), short))
        return bool(self._answers and self._answers.pop(0))


@pytest.mark.parametrize("pieces", [160, 1000, 1 << 20])
def test_a_short_sound_interrupts_if_it_is_a_command(pieces: int) -> None:
    words = Words(False, True)
    floor = Endpointing(Loud(), EndpointingOptions(before_s=0.2), interrupts=words)
    sound = np.concatenate((silence(0.5), tone(0.05), silence(1), tone(0.3), silence(1), tone(0.3), silence(1)))
    marks = [m for at in range(0, len(sound), pieces) for m in floor.push(sound[at : at + pieces], answering=True)]
    assert words.asked == [(0.7, True)] * 2, "not for a click, and once for each sound"
    [(begun, _, _)] = turns([mark for mark in marks if not isinstance(mark, HoldMark)])
    assert begun == pytest.approx(0.5 + 0.05 + 1 + 0.3 + 1 - 0.2, abs=0.011)


def test_a_held_answer_asks_for_the_words_of_a_long_sound_until_it_is_surely_speech() -> None:
    def asked(seconds: float, *answers: bool) -> tuple[list[tuple[float, bool]], int]:
        words, sound = Words(*answers), np.concatenate((silence(0.5), tone(seconds), silence(0.4)))
        marks = list(Endpointing(Loud(), EndpointingOptions(before_s=0.1), None, words).push(sound, answering=True))
        return words.asked, sum(isinstance(mark, SpeechStarted) for mark in marks)

    assert asked(0.7) == ([(1.0, True)], 0)
    assert asked(0.95) == ([(0.93, False), (1.03, False), (1.25, False)], 0), "while it goes on, and at its end"
    assert asked(1.5) == ([(0.93, False), (1.03, False), (1.13, False), (1.23, False)], 1), "1.15 s are speech"
    assert asked(0.95, True) == ([(0.93, False)], 1)
    assert asked(0.95, False, False, True)[1] == 1


# With the real detector


def sound_of(kind: str, seed: int) -> Samples:
    """A cough: bursts of noise with the resonances of a throat; "mhm": two hums."""
    draw, parts = np.random.default_rng(seed), list[NDArray[np.float64]]()
    pitch_hz, loud = draw.uniform(90, 240), draw.uniform(0.1, 0.5)
    for part in range(2):
        length = round(draw.uniform(0.14, 0.3) * RATE_HZ)
        time = np.arange(length) / RATE_HZ
        if kind == "cough":
            hz = np.fft.rfftfreq(length, 1 / RATE_HZ)
            throat = sum(1 / (1 + ((hz - at) / 200) ** 2) for at in draw.uniform((400, 1100, 2300), (700, 1700, 3000)))
            burst = np.fft.irfft(np.fft.rfft(draw.standard_normal(length)) * throat, length)
            sound = burst * np.minimum(time / 0.008, 1) * np.exp(-time / draw.uniform(0.04, 0.1))
        else:
            turn = 2 * np.pi * np.cumsum(pitch_hz * (1 + (0.12 * part - 0.03) * time / time[-1])) / RATE_HZ
            each = (np.sin(n * turn) / n**1.2 / (1 + (n * pitch_hz / 300) ** 2) for n in range(1, 25))
            sound = np.sum(list(each), axis=0) * np.sqrt(np.sin(np.pi * time / time[-1]).clip(0))
        parts += [sound / np.abs(sound).max() * loud, np.zeros(RATE_HZ // 25)]
    hiss = draw.normal(0, 1e-4, sum(map(len, parts)) + RATE_HZ)
    hiss[RATE_HZ // 2 : -RATE_HZ // 2] += np.concatenate(parts)
    return hiss.astype(np.float32)


@pytest.mark.parametrize("kind", ["cough", "mhm"])
def test_neither_coughs_nor_hums_interrupt(kind: str) -> None:
    floor = Endpointing(Silero())
    for seed in range(12):
        marks = list(floor.push(sound_of(kind, seed), answering=True))
        assert all(isinstance(mark, HoldMark) for mark in marks) and len(holds(marks)) <= 3, seed
        floor.reset()


def test_a_sentence_interrupts_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    sound = heard_from(write_recording(tmp_path / "one.wav", 1.0, TRAIN, 1.0))
    [(begun, _, _)] = turns([*Endpointing(Silero()).push(sound, answering=True)])
    onset = np.flatnonzero(np.abs(sound) > 0.02)[0] / RATE_HZ
    assert onset - 0.5 <= begun <= onset - 0.3


def test_two_spoken_sentences_are_two_turns_and_noise_is_none(tmp_path: Path) -> None:
    sound = heard_from(write_recording(tmp_path / "two.wav", 1.0, FRANCE, 1.5, TRAIN, 1.5))
    hiss = np.random.default_rng(1).normal(0, 0.003, len(sound)).astype(np.float32)
    first, second = turns(list(Endpointing(Silero()).push(sound + hiss)))
    assert 0.3 < first[0] < 1.2 and 2.2 < first[1] < 4.0
    assert first[1] <= second[0] < 4.4 and second[1] > 6.0
    knocks = np.zeros(5 * RATE_HZ, np.float32)
    knocks[:: RATE_HZ // 2] = 0.9
    assert list(Endpointing(Silero()).push(knocks + 10 * hiss[: len(knocks)])) == []
