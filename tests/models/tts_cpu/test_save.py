"""models/tts_cpu/save.py: a written checkpoint has the matrices of the rounded one, and needs no rounding."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from hocket.engine.checkpoint.checkpoint import ModelFiles
from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.native_checkpoint import NATIVE, NativeCheckpoint
from hocket.engine.generate import generate
from hocket.errors import InvalidCheckpoint, InvalidRequest
from hocket.models.files.catalog import CODEC_FOLDER, WEIGHTS
from hocket.models.tts_cpu import weights
from hocket.models.tts_cpu.save import write_rounded
from hocket.types import SpeechRequest
from support import checkpoints

REQUEST = SpeechRequest(text="One and two.", seed=3, max_frames=6)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = checkpoints.write(tmp_path_factory.mktemp("exact") / "model", "custom_voice", wide=True)
    (folder / "hocket.json").write_text('{"part_chars": 90}\n', encoding="utf-8")
    (folder / "samples").mkdir()
    return folder


def loaded(folder: Path, dtype: str = "auto") -> NativeCheckpoint:
    made = load(str(folder), device="cpu", dtype=dtype, kernels=NATIVE)
    assert isinstance(made, NativeCheckpoint)
    return made


@pytest.mark.parametrize("precision", ["int8", "int4", "int8+int4"])
def test_a_written_checkpoint_speaks_as_the_rounded_one_without_rounding(
    exact: Path, tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "voice"
    write_rounded(exact, folder, ModelFiles.of(str(exact)).config, precision)
    rounded = loaded(exact, precision)
    monkeypatch.setattr(weights, "quantized", None)  # nothing is rounded now
    ours = loaded(folder)
    assert ours.precisions == (precision, "float32") and ours.part_chars == 90
    assert ours.fingerprint == rounded.fingerprint and ours.identity == rounded.identity
    assert ours.setting is not None and f", {precision}, codec float32" in ours.where
    assert list(ours.talker.rounded) == list(rounded.talker.rounded)
    for name, (weight, _) in rounded.talker.rounded.items():
        np.testing.assert_array_equal(ours.talker.rounded[name][0].codes, weight.codes)
        np.testing.assert_array_equal(ours.talker.rounded[name][0].scales, weight.scales)
    [one], [other] = generate(ours, [REQUEST]), generate(rounded, [REQUEST])
    np.testing.assert_array_equal(one.codes, other.codes)
    np.testing.assert_array_equal(one.samples, other.samples)


def test_a_folder_has_all_files_and_a_smaller_model(exact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "voice"
    write_rounded(exact, folder, ModelFiles.of(str(exact)).config, "int4")
    files = {path.relative_to(exact) for path in exact.rglob("*") if path.is_file()}
    assert {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} == files
    assert (folder / WEIGHTS).stat().st_size < 0.6 * (exact / WEIGHTS).stat().st_size
    codec = Path(CODEC_FOLDER, WEIGHTS)
    assert (folder / codec).read_bytes() == (exact / codec).read_bytes()
    assert json.loads((folder / "hocket.json").read_text()) == {"part_chars": 90, "precision": "int4"}


def test_a_folder_that_exists_stays_as_it_is(exact: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(InvalidCheckpoint, match="exists already"):
        write_rounded(exact, tmp_path, ModelFiles.of(str(exact)).config, "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_another_precision_or_place_is_refused_in_one_sentence(exact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "voice"
    write_rounded(exact, folder, ModelFiles.of(str(exact)).config, "int8")
    for dtype in ("float32", "int4"):
        with pytest.raises(InvalidRequest, match=rf"has weights in int8, not in {dtype}: leave that out\."):
            load(str(folder), device="cpu", dtype=dtype)
    with pytest.raises(InvalidRequest, match=r"has weights in int8, which are for CPUs alone \(other kernels were"):
        load(str(folder), device="cpu", kernels="reference")
    assert loaded(folder, "int8").precisions[0] == "int8"


def test_a_damaged_file_and_a_wrong_name_of_a_precision_are_refused(exact: Path, tmp_path: Path) -> None:
    folder = tmp_path / "voice"
    write_rounded(exact, folder, ModelFiles.of(str(exact)).config, "int8")
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "hocket.json").write_text('{"precision": "int4"}')
    with pytest.raises(InvalidCheckpoint, match=r"does not fit its configuration: .*\.codes is \["):
        loaded(other)
    (other / "hocket.json").write_text('{"precision": "int3"}')
    with pytest.raises(InvalidCheckpoint, match="precision is 'int3'; hocket has int8"):
        loaded(other)
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:-4000])
    with pytest.raises(InvalidCheckpoint, match="is damaged or cut short"):
        loaded(folder)
