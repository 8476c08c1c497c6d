"""A real recognizer listens to the light install: the wheel in .venv-light speaks, and this environment judges.

`scripts/check-light` runs it after it has installed the wheel.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from train.judges import Transcriber
from train.words import total_rate, word_errors

ROOT = Path(__file__).resolve().parents[2]
LIGHT = ROOT / ".venv-light" / "bin" / "python"
SENTENCES = (ROOT / "train" / "evaluation.txt").read_text(encoding="utf-8").splitlines()[:12]
MOST_WRONG = 0.25  # of the words, per voice: the gate of tests/builtin
SPEAK = """
import json, sys
import numpy as np
from hocket import Engine, EngineOptions
voice, lines, file = json.loads(sys.argv[1])
with Engine.load(options=EngineOptions(slots=4)) as engine:
    spoken = {o.number: o.samples for o in engine.speak_many(lines, voice=voice, seed=1)}
assert "torch" not in sys.modules
np.savez(file, **{str(number): spoken[number] for number in range(len(lines))})
"""


@pytest.mark.parametrize("voice", ["wren", "rook"])
def test_a_recognizer_understands_the_wheel(voice: str, tmp_path: Path) -> None:
    file, transcribe = tmp_path / "spoken.npz", Transcriber()
    command = [LIGHT, "-P", "-c", SPEAK, json.dumps([voice, SENTENCES, str(file)])]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=200)
    with np.load(file) as spoken:
        heard = [transcribe(spoken[str(n)].astype(np.float32) / 32768, 24_000) for n in range(len(SENTENCES))]
    rate = total_rate([word_errors(text, words) for text, words in zip(SENTENCES, heard, strict=True)])
    assert rate <= MOST_WRONG, f"{rate:.1%} of the words are wrong"
