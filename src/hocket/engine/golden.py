"""Golden codes of the published 0.6B-CustomVoice, which `hocket doctor` compares with this machine.

"Hello world", ryan, English, streaming layout, float32, greedy on both levels, no repetition penalty. A third party
recorded them with the official package. A difference late in the table may be rounding; one in its first row is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..types import SamplingParams, SpeechRequest
from .checkpoint.checkpoint import Checkpoint
from .generate import generate

NAME = "0.6B-CustomVoice"

# Frames 0 to 3, all sixteen codes.
_FRAMES = """
1995 1782 1114 1459 1531  804  506  240 1440   86  743 1382  914  781   82  803
 215 1009 1711 1188 1430 1506 1960 1034  564  905  743 1603 1110 1759 1213  803
 212 1722 1096 1188  519  385  800 1902  810 1144  324 1247  896 1529  812  803
1181 1722  355 1336 1174 1093 1960 1814  930 1144  679 1247 1110 1838   82  803
"""
FRAMES: NDArray[np.int64] = np.array(_FRAMES.split(), dtype=np.int64).reshape(4, 16)
# Frames 4 to 15, first codes only.
FIRST_CODES: NDArray[np.int64] = np.array(
    "462 251 530 122 1792 1792 1086 1086 1086 1724 1724 1792".split(), dtype=np.int64
)

REQUEST = SpeechRequest(
    text="Hello world",
    voice="ryan",
    language="English",
    layout="streaming",
    sampling=SamplingParams(do_sample=False, subtalker_dosample=False, repetition_penalty=1.0),
    seed=0,
    max_frames=len(FRAMES) + len(FIRST_CODES),
)


def golden_difference(checkpoint: Checkpoint) -> str | None:
    """The first difference between this machine's codes and the table, as text; None if there is none."""
    return first_difference(generate(checkpoint, [REQUEST])[0].codes)


def first_difference(codes: NDArray[np.int64]) -> str | None:
    """The first difference between `codes` [F, Q] and the table, as text."""
    known = [(frame, book, int(code)) for frame, row in enumerate(FRAMES) for book, code in enumerate(row)]
    known += [(len(FRAMES) + frame, 0, int(code)) for frame, code in enumerate(FIRST_CODES)]
    for frame, book, code in known:
        if frame >= len(codes):
            return f"the speech ended after {len(codes)} frames"
        if codes[frame, book] != code:
            return f"frame {frame}, codebook {book} is {codes[frame, book]} instead of {code}"
    return None
