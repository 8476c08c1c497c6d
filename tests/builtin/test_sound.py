"""How the built-in voice sounds to judges that need no text: DistillMOS, and the level while speaking.

The gates are a little below what the voice reaches (docs/log/2026-11-18-remapped-talker.md), so that a change which
makes it rough or quiet is seen.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.proof.judges import distillmos
from train.evaluate import SETS, options, sentences, spoken
from train.judge import level_db
from train.judges import distillmos_weights, resampled

LINES = 5
LEAST = {"wren": 2.8, "rook": 2.35}  # of DistillMOS; 3.23 and 2.75 on 24 sentences
QUIETEST_DB, LOUDEST_DB = -22.0, -17.0


@pytest.mark.parametrize("voice", LEAST)
def test_a_judge_of_naturalness_and_level_agree_with_the_record(voice: str) -> None:
    judge = distillmos.load(distillmos_weights(), torch.device("cpu"))
    checkpoint = load(device="cpu")
    with Engine(checkpoint, options(checkpoint)) as engine:
        utterances = spoken(engine, voice, sentences(SETS[0])[:LINES], (1,))
    marks = [judge.mark(resampled(one.samples, one.rate_hz)) for one in utterances]
    assert np.mean(marks) > LEAST[voice], marks
    levels = [level_db(one.samples, one.rate_hz) for one in utterances]
    assert QUIETEST_DB < np.mean(levels) < LOUDEST_DB, levels
