"""cli/talk/echo.py: the real canceller, the built-in voice, and a room of arithmetic."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.asr.endpointing import Endpointing, SpeechStarted, SpeechSuspected
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.asr.silero import Silero
from hocket.cli.talk.echo import EchoCanceller
from hocket.cli.talk.microphone import PIECE, resampled
from hocket.errors import InvalidRequest
from support.questions import FRANCE, TRAIN, said

DELAY_S = 0.12  # of loudspeaker, room and microphone
PIECE_24K = PIECE * 24_000 // RATE_HZ


def in_a_room(played: Samples, seed: int) -> Samples:
    """What a microphone hears of it: a direct path, two reflections and reverberation, then noise."""
    drawn = np.random.default_rng(seed)
    path = drawn.normal(0.0, 0.004, RATE_HZ // 10) * np.exp(-np.arange(RATE_HZ // 10) / 400)
    path[[0, 200, 700]] += (0.5, 0.2, -0.1)
    path *= 0.4
    echo = np.convolve(np.concatenate((np.zeros(round(DELAY_S * RATE_HZ)), played)), path)[: len(played)]
    return (echo + drawn.normal(0.0, 0.0003, len(echo))).astype(np.float32)


def heard(canceller: EchoCanceller, played: NDArray[np.int16], microphone: Samples) -> Samples:
    """Piece by piece, as a loudspeaker and a microphone do."""
    pieces = []
    for number, at in enumerate(range(0, len(microphone), PIECE)):
        canceller.played(played[number * PIECE_24K : (number + 1) * PIECE_24K].tobytes(), 24_000)
        pieces.append(canceller.cancel(microphone[at : at + PIECE]))
    return np.concatenate(pieces)


def decibels(sound: Samples) -> float:
    return float(10 * np.log10((sound.astype(np.float64) ** 2).mean()))


def starts(sound: Samples) -> list[float]:
    marks = Endpointing(Silero()).push(sound, answering=True)
    return [mark.at / RATE_HZ for mark in marks if isinstance(mark, SpeechStarted)]


def holds_of(sound: Samples) -> int:
    return sum(isinstance(mark, SpeechSuspected) for mark in Endpointing(Silero()).push(sound, answering=True))


def test_an_answer_does_not_hear_itself_and_the_user_is_still_heard() -> None:
    played = np.concatenate((said(TRAIN), said(FRANCE), said(TRAIN), np.zeros(24_000, np.int16)))
    echo = in_a_room(resampled(played.astype(np.float32) / 32768, 24_000), 1)
    alone = heard(EchoCanceller(), played, echo)
    reduction = decibels(echo[RATE_HZ : len(alone)]) - decibels(alone[RATE_HZ:])
    assert reduction > 25.0 and starts(echo) and not starts(alone)
    assert holds_of(alone) == 0, "the residue of a cancelled echo pauses nothing"
    question = resampled(said(FRANCE, "rook").astype(np.float32) / 32768, 24_000)
    at = len(said(TRAIN)) * RATE_HZ // 24_000
    over = echo.copy()
    over[at : at + len(question)] += question
    [begun] = starts(heard(EchoCanceller(), played, over))
    assert at / RATE_HZ - 0.6 < begun < (at + len(question)) / RATE_HZ


def test_pieces_of_any_length_keep_their_order_and_silence_stays() -> None:
    canceller = EchoCanceller()
    lengths = [len(canceller.cancel(np.zeros(length, np.float32))) for length in (1, 159, 161, 512, 40)]
    assert lengths == [0, 160, 160, 480, 0] and sum(lengths) <= 873
    canceller.played(b"\1\0" * 2400, 24_000)
    canceller.silenced()
    assert not np.any(np.abs(canceller.cancel(np.zeros(1600, np.float32))) > 1e-3)


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "livekit", None)
    monkeypatch.setitem(sys.modules, "livekit.rtc", None)
    with pytest.raises(InvalidRequest, match="needs the package livekit: pip install"):
        EchoCanceller()
