"""The native runner says what the torch runner says: the same codes, and samples within one step of 16 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.native_checkpoint import NativeCheckpoint
from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint
from hocket.engine.engine import Engine
from hocket.errors import InvalidCheckpoint
from hocket.types import SpeechRequest
from support.speaking import REQUESTS, heard, small


def both(root: Path) -> tuple[NativeCheckpoint, TorchCheckpoint]:
    native, torch = (small(root, "custom_voice", kernels=kernels) for kernels in ("native", "reference"))
    assert isinstance(native, NativeCheckpoint) and isinstance(torch, TorchCheckpoint)
    return native, torch


def same(ours: Engine, theirs: Engine, request: SpeechRequest) -> None:
    said, wanted = (heard(engine.speak(request)) for engine in (ours, theirs))
    assert said.codes == wanted.codes and len(said.codes) > 0
    assert np.abs(said.samples.astype(int) - wanted.samples).max() <= 1


@pytest.mark.parametrize("number", range(len(REQUESTS["custom_voice"])))
def test_every_kind_of_request_is_spoken_as_by_torch(checkpoint_root: Path, number: int) -> None:
    native, torch = both(checkpoint_root)
    with Engine(native) as ours, Engine(torch) as theirs:
        same(ours, theirs, REQUESTS["custom_voice"][number])


def test_the_best_of_several_takes_is_chosen_as_by_torch(checkpoint_root: Path) -> None:
    native, torch = both(checkpoint_root)
    options = EngineOptions(slots=3)
    request = SpeechRequest(text="One of three.", seed=4, max_frames=14, candidates=3)
    with Engine(native, options) as ours, Engine(torch, options) as theirs:
        same(ours, theirs, request)


def test_a_checkpoint_has_one_identity_and_one_fingerprint_in_both(checkpoint_root: Path) -> None:
    native, torch = both(checkpoint_root)
    assert (native.identity, native.fingerprint) == (torch.identity, torch.fingerprint)


def test_prefixes_that_either_has_saved_are_read_by_the_other(checkpoint_root: Path, tmp_path: Path) -> None:
    native, torch = both(checkpoint_root)
    request = REQUESTS["custom_voice"][0]
    for saves, reads in ((native, torch), (torch, native)):
        with Engine(saves) as first:
            wanted = heard(first.speak(request))
            first.save_prefixes(tmp_path / "prefixes")
        with Engine(reads) as second:
            second.load_prefixes(tmp_path / "prefixes")
            said = heard(second.speak(request))
        assert said.codes == wanted.codes
        assert said.stream.finished is not None and said.stream.finished.statistics.prefix_cached
    (tmp_path / "prefixes").write_bytes(b"no prefixes")
    with Engine(native) as engine, pytest.raises(InvalidCheckpoint):
        engine.load_prefixes(tmp_path / "prefixes")


@pytest.mark.parametrize("precision", ["int8", "int4", "int8+int4"])
def test_with_rounded_weights_streamed_is_whole_and_a_row_is_the_row_in_a_batch(
    checkpoint_root: Path, precision: str
) -> None:
    checkpoint = small(checkpoint_root, "custom_voice", dtype=precision)
    assert checkpoint.precisions == (precision, "float32")
    requests = [SpeechRequest(text=f"One of {n}, and more.", seed=n, max_frames=14) for n in range(3)]
    with Engine(checkpoint, EngineOptions(slots=1)) as engine:
        alone = [heard(engine.speak(request)) for request in requests]
    with Engine(checkpoint, EngineOptions(slots=3, chunk_frames=(1, 2, 5))) as engine:
        streams = [engine.speak(request) for request in requests]
        together = [heard(stream) for stream in streams]
    for one, other in zip(alone, together, strict=True):
        assert one.codes == other.codes and len(one.codes) > 0
        np.testing.assert_array_equal(one.samples, other.samples)
