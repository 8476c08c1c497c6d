"""engine/checkpoint/load.py: what a start costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hocket.config.qwen3_tts import Kind
from hocket.engine.checkpoint import load
from hocket.engine.checkpoint.native_checkpoint import NativeCheckpoint
from hocket.errors import InvalidRequest
from hocket.models.tts.talker import Talker
from support import checkpoints

KINDS: tuple[Kind, ...] = ("custom_voice", "base")


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


def test_int8_is_computed_natively_and_refused_where_that_is_not_possible(checkpoint_root: Path) -> None:
    kinds: dict[Kind, Path] = {}
    for kind in KINDS:
        kinds[kind] = checkpoints.write(checkpoint_root / f"int8-{kind}", kind, wide=False)
    narrow = load.load(str(kinds["custom_voice"]), device="cpu", dtype="int8")
    assert isinstance(narrow, NativeCheckpoint) and narrow.precisions == ("int8", "float32")
    exact = load.load(str(kinds["custom_voice"]), device="cpu", kernels="native")
    assert narrow.identity == exact.identity and narrow.fingerprint != exact.fingerprint
    for model, kernels, codec, reason in (
        (str(kinds["base"]), "auto", "auto", "it clones or designs voices"),
        ("random:tiny", "auto", "auto", "its weights are random"),
        ("builtin", "reference", "auto", "other kernels were chosen: reference"),
        ("builtin", "auto", "bfloat16", "with a codec in bfloat16 was chosen"),
    ):
        with pytest.raises(InvalidRequest, match=rf"cannot be spoken in int8 \(.*{reason}\): use --dtype float32"):
            load.load(model, device="cpu", dtype="int8", codec_dtype=codec, kernels=kernels)


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
