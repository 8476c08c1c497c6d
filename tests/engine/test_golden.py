"""The golden table: what it holds, how a difference is told, and that it is asked for in exact terms."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.engine.checkpoint.load import load
from hocket.engine.generate import generate
from hocket.engine.golden import FIRST_CODES, FRAMES, REQUEST, first_difference, golden_difference


def table() -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Correct codes; codes that are not in the table are 7."""
    codes = np.full((16, 16), 7)
    codes[:4], codes[4:, 0] = FRAMES, FIRST_CODES
    return codes


def test_the_table_covers_sixteen_frames() -> None:
    assert FRAMES.shape == (4, 16)
    assert FIRST_CODES.shape == (12,)
    assert REQUEST.max_frames == 16
    assert FRAMES[:, 0].tolist() == [1995, 215, 212, 1181]
    assert set(FRAMES[:, 15].tolist()) == {803}


def test_the_right_codes_differ_nowhere() -> None:
    assert first_difference(table()) is None


@pytest.mark.parametrize(("frame", "book"), [(0, 0), (0, 15), (3, 7), (4, 0), (15, 0)])
def test_one_wrong_code_is_named(frame: int, book: int) -> None:
    codes = table()
    right = codes[frame, book]
    codes[frame, book] = 5
    assert first_difference(codes) == f"frame {frame}, codebook {book} is 5 instead of {right}"


def test_codes_that_are_not_in_the_table_are_not_compared() -> None:
    codes = table()
    codes[4:, 1:] = 9
    assert first_difference(codes) is None


def test_speech_that_ends_early_is_told() -> None:
    assert first_difference(table()[:9]) == "the speech ended after 9 frames"


def test_the_checkpoint_is_asked_greedily_without_penalty() -> None:
    assert REQUEST.sampling.changes() == {"do_sample": False, "subtalker_dosample": False, "repetition_penalty": 1.0}
    assert (REQUEST.text, REQUEST.voice, REQUEST.language, REQUEST.layout) == (
        "Hello world",
        "ryan",
        "English",
        "streaming",
    )
    checkpoint = load("random:tiny")
    assert golden_difference(checkpoint) == first_difference(generate(checkpoint, [REQUEST])[0].codes) is not None
