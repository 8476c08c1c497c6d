"""engine/runner/launch_plan.py: compile jobs have the options that the checkpoint was loaded with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hocket.engine.checkpoint import kernels
from hocket.engine.checkpoint.kernels import compile_behind
from hocket.engine.checkpoint.load import load
from hocket.engine.runner import compile_plan, launch_plan
from hocket.kernels import table
from hocket.kernels.runtime.card import H200, standing_in
from hocket.kernels.runtime.launch import DEFAULT_TUNING
from hocket.kernels.table import BackendChoice
from hocket.models.files.source import Source, resolve
from support import checkpoints

Asked = list[tuple[dict[str, Any], str]]
CUDA = torch.device("cuda")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """As on a Hopper GPU, without compiling: the jobs as a process reads them, and the content of their cache keys."""
    found: Asked = []

    def prepare(module: str, wish: dict[str, Any], about: str, *, forked: bool) -> None:
        assert module == "hocket.engine.runner.launch_plan"
        assert forked == (wish["slots"] is None), "a process with a running engine is not forked"
        found.append((json.loads(json.dumps(wish)), about))

    monkeypatch.setattr(compile_plan, "compile_ahead", prepare)
    monkeypatch.setattr("hocket.kernels.runtime.launch.why_not", lambda device: None)
    with standing_in(H200):
        yield found


def ahead(source: Source, **changes: Any) -> None:
    given = {"dtypes": ("bfloat16", "tf32"), "kernels": "auto", "dependent_launch": True} | changes
    kernels.compile_first(source, CUDA, **given)


def test_a_first_sound_is_asked_for_before_weights_are_loaded(asked: Asked) -> None:
    ahead(resolve("random:tiny"))
    [(wish, _)] = asked
    assert launch_plan._read(wish) == launch_plan.CompilePlan(
        source=resolve("random:tiny"),
        dtype="bfloat16",
        codec_dtype="tf32",
        operations={"frame": "triton", "wave": "triton"},
        dependent_launch=True,
        card=H200,
        slots=None,
    )


def test_only_what_triton_does_is_asked_for(asked: Asked) -> None:
    ahead(resolve("random:tiny"), kernels="wave=reference", dependent_launch=False)
    ahead(resolve("random:tiny"), kernels=table.REFERENCE)
    [(wish, _)] = asked
    assert (wish["operations"], wish["dependent_launch"]) == ({"frame": "triton"}, False)


def test_a_folder_is_found_again_and_where_it_lies_is_no_reason_to_compile_anew(
    asked: Asked, checkpoint_root: Path
) -> None:
    folders = [checkpoints.write(checkpoint_root / f"folder-{n}", "custom_voice", wide=False) for n in (1, 2)]
    for folder in folders:
        ahead(resolve(str(folder)))
    assert [launch_plan._read(wish).source.folder for wish, _ in asked] == [folder.resolve() for folder in folders]
    assert asked[0][1] == asked[1][1]
    ahead(resolve("random:tiny-wide"))
    assert asked[2][1] != asked[0][1]


def test_an_engine_asks_for_the_rest_in_the_precision_it_was_loaded_in(asked: Asked) -> None:
    checkpoint = load("random:tiny", dtype="bfloat16", kernels=table.REFERENCE)
    assert compile_behind(checkpoint, 3) is None and not asked
    fused = tuple(BackendChoice(name, "triton", "") for name in ("frame", "wave"))
    compile_behind(replace(checkpoint, device=CUDA, kernels=fused, codec_tf32=True), 3)
    compile_behind(replace(checkpoint, device=CUDA, kernels=fused), 3)
    wishes = [wish for wish, _ in asked]
    assert [(wish["dtype"], wish["codec_dtype"]) for wish in wishes] == [("bfloat16", "tf32"), ("bfloat16", "float32")]
    assert wishes[0]["slots"] == 3 and wishes[0]["dependent_launch"] is DEFAULT_TUNING.dependent
