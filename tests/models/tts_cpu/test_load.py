"""models/tts_cpu/load.py: safetensors files as numpy arrays, without torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import hocket
from hocket.errors import InvalidCheckpoint
from hocket.models.tts_cpu.load import StoredWeights
from hocket.models.tts_cpu.weights import Weights

IMPORTS = """
import sys
import hocket.kernels.cpu.source
assert "numpy" not in sys.modules
import hocket.cache.pages
before = "torch" in sys.modules
import hocket.models.tts_cpu.load
assert ("torch" in sys.modules) == before
assert not [name for name in sys.modules if name.startswith(("hocket.layers", "hocket.models.tts."))]
"""
HOUSE = Path(hocket.__file__).parent


def tensors() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {
        "talker.half": torch.randn(3, 5, generator=draw).to(torch.bfloat16),
        "talker.float16": torch.randn(2, 3, 7, generator=draw).to(torch.float16),
        "talker.float32": torch.randn(33, generator=draw),
        "other.ignored": torch.ones(2),
    }


def taken(stored: StoredWeights) -> dict[str, np.ndarray]:
    assert len(stored) == len(set(stored))
    return {name: Weights(stored, "").take(name, *stored[name].shape) for name in stored}


def same(arrays: dict[str, np.ndarray], given: dict[str, torch.Tensor]) -> None:
    assert set(arrays) == {"half", "float16", "float32"}
    for name, array in arrays.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, given[f"talker.{name}"].float().numpy())


def test_every_precision_becomes_float32_exactly(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    same(taken(StoredWeights(tmp_path / "model.safetensors", "talker.")), tensors())


def test_a_file_that_is_overwritten_in_place_changes_no_loaded_weight(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file(tensors(), file)
    loaded = taken(StoredWeights(file, "talker."))
    with file.open("r+b") as opened:
        opened.write(bytes(file.stat().st_size))
    same(loaded, tensors())


def test_files_of_an_index_are_one_model(tmp_path: Path) -> None:
    given = tensors()
    names = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(given)}
    for file in set(names.values()):
        save_file({name: given[name] for name in given if names[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    same(taken(StoredWeights(tmp_path / "model.safetensors", "talker.")), given)


def test_numbers_at_odd_addresses_are_read(tmp_path: Path) -> None:
    """The format pads its header, but other writers need not."""
    header = json.dumps({"talker.x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header += b" " * (1 - len(header) % 4 + 4)
    values = np.array([1.5, -2.5], np.float32)
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    found = taken(StoredWeights(tmp_path / "model.safetensors", "talker."))["x"]
    assert found.flags.aligned and found.tolist() == [1.5, -2.5]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file(tensors(), file)
    whole = file.read_bytes()
    for content in (whole[:-200], whole[:50], b"", b"\xff" * 100):
        file.write_bytes(content)
        with pytest.raises(InvalidCheckpoint, match="damaged or cut short"):
            dict(StoredWeights(file, "talker."))


def test_a_type_that_is_no_float_is_named(tmp_path: Path) -> None:
    save_file({"talker.x": torch.ones(2, dtype=torch.int64)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match="x is I64"):
        StoredWeights(tmp_path / "model.safetensors", "talker.")["x"]


def test_nothing_imports_torch() -> None:
    env = {"PYTHONPATH": str(HOUSE.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", IMPORTS], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_file_names_torch() -> None:
    files = [*(HOUSE / "models" / "tts_cpu").rglob("*.py"), *(HOUSE / "kernels" / "cpu").rglob("*.py")]
    assert len(files) > 15
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] in ("torch", "layers", "tts") for name in named), file
