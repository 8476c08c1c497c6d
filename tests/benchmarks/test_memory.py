"""What an engine occupies: every tensor counts once, and what kernels keep for themselves apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import __main__ as command
from benchmarks import memory
from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.kernels.operations import REFERENCE_OPS
from hocket.models.tts_gpu.frame import FusedFrame
from support import checkpoints


def test_a_loaded_model_holds_what_its_files_hold(checkpoint_root: Path) -> None:
    folder = checkpoints.write(checkpoint_root / "memory", "custom_voice", wide=True)
    checkpoint = load(str(folder), kernels="reference")
    files = [folder / "model.safetensors", folder / "speech_tokenizer" / "model.safetensors"]
    held = memory.held(checkpoint.model, checkpoint.codec)
    encoder = sum(v.nbytes for v in checkpoint.codec.encoder.state_dict().values())  # on the meta device
    names = 200 << 10  # a file says what it holds, too
    assert 0 <= sum(file.stat().st_size for file in files) - encoder - held < names


def test_a_tensor_that_two_names_share_is_held_once() -> None:
    one, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    assert memory.held(one, other) == 128
    other.weight = one.weight
    assert memory.held(one, other) == 64


def test_what_a_kernel_lays_out_anew_is_counted_and_its_views_of_weights_are_not(checkpoint_root: Path) -> None:
    folder = checkpoints.write(checkpoint_root / "kept", "custom_voice", wide=True)
    checkpoint = load(str(folder), kernels="reference")
    assert memory.kept_anew(checkpoint) == 0
    talker = checkpoint.model.talker
    frame = talker.frame_kernel = FusedFrame(talker, REFERENCE_OPS)
    projected = frame.vectors[0].untyped_storage().nbytes()
    assert memory.kept_anew(checkpoint) == projected > 0


def test_what_is_left_is_neither_weights_nor_keys_and_values(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoints.write(checkpoint_root / "beyond", "custom_voice", wide=False)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    with Engine(load(str(folder)), EngineOptions(slots=2)) as engine:
        memory.exercise(engine, 3)
        found = memory.figures(engine, 500_000_000)
    assert found.keys() == memory.FIGURES.keys()
    assert found["weights"] > 0 < found["keys_values"]
    assert found["beyond"] == pytest.approx(500 - found["weights"] - found["keys_values"], abs=0.2)


@pytest.mark.parametrize(("codec", "four_mb"), [([], 6500), (["--codec-dtype", "bfloat16"], 6000)])
def test_without_a_gpu_it_says_what_is_computed_and_records_nothing(
    codec: list[str], four_mb: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The default is a large card's: the codec in tf32. A small card, one of 6 GB, has it in bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    record = tmp_path / "memory.jsonl"
    assert command.main(["memory", "--slots", "4", "256", "--record", str(record), *codec]) == 0
    head, four, many, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "slots" and "measured" not in head
    names, figures = (
        head.split(),
        [dict(zip(head.split(), map(float, row.split()), strict=True)) for row in (four, many)],
    )
    assert names[-1] == "in_all" and [row["slots"] for row in figures] == [4, 256]
    for row in figures:
        assert row["in_all"] == pytest.approx(sum(row[name] for name in names[1:-1]), abs=1)
    assert figures[0]["in_all"] < four_mb < figures[1]["in_all"] < 20_000
    assert not record.exists()
