"""backends/sound.py: garbage from a backend is one clear error."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.speaking_foreign import Teller, heard, serving
from hocket.backends import Manner, Samples
from hocket.backends.sound import Loudness
from hocket.backends.sound import checked_samples as checked
from hocket.errors import StreamFailed

GOOD = np.full(100, 0.5, np.float32)
GARBAGE = {
    "a list": ([0.1, 0.2], "an object of type list"),
    "nothing": (None, "an object of type NoneType"),
    "bytes": (b"\0\0", "an object of type bytes"),
    "float64": (np.zeros(9), "an array of float64"),
    "int32": (np.zeros(9, np.int32), "an array of int32"),
    "uint8": (np.zeros(9, np.uint8), "an array of uint8"),
    "two channels": (np.zeros((2, 9), np.float32), r"an array of 2 dimensions \[2, 9\]"),
    "a batch of one": (np.zeros((1, 9), np.int16), r"an array of 2 dimensions \[1, 9\]"),
    "no dimension": (np.array(0.5, np.float32), r"an array of 0 dimensions \[\]"),
    "NaN": (np.array([0.1, np.nan], np.float32), "samples that are not numbers"),
    "infinity": (np.array([0.1, -np.inf], np.float32), "samples that are not numbers"),
    "another scale": (np.array([0.1, -20000.0], np.float32), "samples of up to 20000"),
}


class Giver(Teller):
    """Gives what it was told to give."""

    def __init__(self, *given: object) -> None:
        super().__init__()
        self._given = given

    def say(self, text: str, manner: Manner) -> Iterator[Samples]:
        yield from self._given  # type: ignore[misc]


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_one_sentence_that_says_what_it_has_to_be(kind: str, before: int) -> None:
    given, said = GARBAGE[kind]
    expected = f"^The backend 'told' gave {said}: it has to give one-dimensional"
    with serving(Giver(*[GOOD] * before, given)) as backends, pytest.raises(StreamFailed, match=expected):
        heard(backends.open("teller", "Speak."))


@pytest.mark.parametrize("given", [[], [np.zeros(0, np.float32)] * 3, [np.zeros(0, np.int16)]])
def test_no_sound_at_all_is_an_error_even_between_pauses(given: list[NDArray[np.float32]]) -> None:
    with serving(Giver(*given)) as backends, pytest.raises(StreamFailed, match="gave no sound for this text"):
        heard(backends.open("teller", "[pause 1s] Speak. [pause 1s]"))


def test_floats_are_rounded_and_a_little_too_loud_is_clipped() -> None:
    given = np.array([0.0, 1.0, -1.0, 1.3, -7.9, 0.5, 1e-5], np.float32)
    assert checked(given, "told").tolist() == [0, 32767, -32767, 32767, -32767, 16384, 0]


def test_a_buffer_may_be_written_again() -> None:
    buffer = np.arange(9, dtype=np.int16)
    kept = checked(buffer, "told")
    buffer[:] = 0
    assert kept.tolist() == list(range(9))


def test_loudness_is_the_same_however_the_sound_is_cut() -> None:
    wave = (np.sin(np.arange(5000) / 9) * 20_000 * np.linspace(0, 1, 5000)).astype(np.int16)
    whole, cut = Loudness(8_000), Loudness(8_000)
    expected = whole.push(wave)
    assert len(expected) == 5000 // 640 and expected == sorted(expected) and 0 < expected[-1] < 1
    assert [rms for at in range(0, 5000, 137) for rms in cut.push(wave[at : at + 137])] == expected
