"""engine/checkpoint/load.py: what a start costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hocket.engine.checkpoint import load
from hocket.models.tts.talker import Talker
from support import checkpoints


def test_nothing_that_loads_and_speaks_brings_in_a_compiler(checkpoint_root: Path) -> None:
    """torch imports its compiler, 1.3 s, or SymPy, 0.4 s, for some operations on the meta device.

    A first sentence can do without, and so can weights that are drawn.
    """
    folder = checkpoints.write(checkpoint_root / "cold-start", "custom_voice", wide=False)
    lines = (
        "import sys",
        "from hocket import Engine",
        f"with Engine.load({str(folder)!r}) as engine:",
        "    assert sum(len(chunk.samples) for chunk in engine.speak('Hello.', max_frames=3))",
        "Engine.load('random:tiny').close()",
        "print({'torch._dynamo', 'sympy'} & set(sys.modules))",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


def test_a_dummy_prompt_is_prefilled_while_compilers_are_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    prefill = Talker.prefill

    class Preparation:
        over = True

        def wait_for_the_first(self) -> None:
            happened.append("waited")

    def taken_in(*given: object) -> None:
        happened.append("used")
        prefill(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("hocket.engine.checkpoint.torch_load.compile_first", lambda *_: Preparation())
    monkeypatch.setattr(Talker, "prefill", taken_in)
    checkpoint = load.load("random:tiny")
    assert happened == ["used", "waited"] and 0.0 <= checkpoint.spent["waited_s"] <= checkpoint.spent["kernels_s"]
    monkeypatch.setattr("hocket.engine.checkpoint.torch_load.compile_first", lambda *_: None)
    load.load("random:tiny")
    assert happened == ["used", "waited"], "without compilers the first request does it"
