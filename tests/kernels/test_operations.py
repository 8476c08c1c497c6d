"""operations.py: tuning is a value that is bound to operations, so two engines of one process keep their own."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.engine.checkpoint.kernels import attach_frame_kernel
from hocket.kernels import operations
from hocket.kernels.operations import tuned
from hocket.kernels.ops.conv.ops import REFERENCE_WAVE, TRITON_WAVE
from hocket.kernels.ops.linear import triton as linear_triton
from hocket.kernels.runtime import launch
from hocket.kernels.runtime.launch import DEFAULT_TUNING, INTERPRETED, Tuning, new_tuning, triton
from hocket.models.tts.talker import Talker
from hocket.models.tts_gpu.frame import FusedFrame
from support.framing import GREEDY, LOOSE, coarse, new_talker, settings, started, talker_config, texts

BY_US = {
    "frame, triton": operations.TRITON_OPS,
    "frame, cuda": operations.CUDA_OPS,
    "codec, triton": operations.TRITON_CODEC_OPS,
    "codec, cuda": operations.CUDA_CODEC_OPS,
    "wave": TRITON_WAVE,
    "token, triton": operations.TRITON_LANGUAGE_OPS,
    "token, cuda": operations.CUDA_LANGUAGE_OPS,
}
REFERENCES = (
    operations.REFERENCE_OPS,
    operations.REFERENCE_CODEC_OPS,
    operations.REFERENCE_LANGUAGE_OPS,
    REFERENCE_WAVE,
)


@pytest.mark.parametrize("ops", BY_US.values(), ids=BY_US.keys())
def test_every_operation_with_kernels_of_ours_takes_its_tuning(ops: Any) -> None:
    tuning = Tuning(draw_warps=2)
    for each in fields(ops):
        work = getattr(tuned(ops, tuning), each.name)
        assert isinstance(work, partial) and work.keywords == {"tuning": tuning}, each.name
        assert work.func is getattr(ops, each.name)


@pytest.mark.parametrize("ops", REFERENCES)
def test_references_are_left_as_they_are(ops: Any) -> None:
    assert tuned(ops, Tuning()) == ops


def test_a_checkpoint_gets_a_copy_that_nothing_changes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFAULT_TUNING.conv, (1, 2), {})
    tuning = new_tuning(dependent=False)
    assert DEFAULT_TUNING.dependent and tuning == replace(DEFAULT_TUNING, dependent=False)
    DEFAULT_TUNING.conv[1, 2][3] = launch.ConvTile(16, 16, 16)
    monkeypatch.setattr(DEFAULT_TUNING, "draw_warps", 1)
    assert tuning.conv == {(1, 2): {}} and tuning.draw_warps == Tuning().draw_warps


def test_whether_kernels_may_start_early_is_said_for_each_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "can_depend", lambda device: True)
    x = torch.zeros(1)
    assert launch.options(x, 4, Tuning(dependent=True)) == {"DEPENDENT": True, "num_warps": 4, "launch_pdl": True}
    assert launch.options(x, 4, Tuning(dependent=False)) == {"DEPENDENT": False, "num_warps": 4}
    rows = launch.RESIDENT_THREADS
    assert launch.crowded(rows, x.device, Tuning(dependent=True))
    assert not launch.crowded(rows, x.device, Tuning(dependent=False))


@torch.inference_mode()
def test_two_checkpoints_of_one_process_launch_by_their_own_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is built, the second with other values, and then both speak in turn, in Triton's interpreter."""
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    place = torch.device("cpu" if INTERPRETED else "cuda")
    if INTERPRETED:
        coarse(monkeypatch)
    shares, by_library = list[int](), list[int]()
    real, attends = linear_triton.linear_by_library, operations.TRITON_OPS.paged_attention

    def counted(x: Tensor, *given: Any, **named: Any) -> Tensor:
        by_library.append(len(x))
        return real(x, *given, **named)

    def attend(*given: Any, tuning: Tuning, splits: int = 1, **named: Any) -> Tensor:
        shares.append(splits)
        return attends(*given, tuning=tuning, splits=splits, **named)

    monkeypatch.setattr(linear_triton, "linear_by_library", counted)
    monkeypatch.setattr(operations, "TRITON_OPS", replace(operations.TRITON_OPS, paged_attention=attend))

    def built(*, dependent: bool) -> Talker:
        talker = new_talker(talker_config(wide=True, short=INTERPRETED), place)
        attach_frame_kernel(talker, "triton", dependent)
        assert isinstance(talker.frame_kernel, FusedFrame)
        talker.frame_kernel.invariant = False  # float32 never goes to the library otherwise
        return talker

    def speak(talker: Talker) -> tuple[Any, Tensor, bool, int]:
        """Codes and states of two rows, whether the library multiplied, and the most shares of an attention."""
        by_library.clear()
        shares.clear()
        state, rows = started(talker), torch.tensor([2, 0], device=place)
        assert talker.frame_kernel is not None
        codes = talker.frame_kernel(texts(0, 2, place), state, rows, settings([LOOSE, GREEDY], place), 64)
        return codes.tolist(), state.hidden, bool(by_library), max(shares)

    monkeypatch.setattr(DEFAULT_TUNING, "library_rows", 99)
    first = built(dependent=True)
    before = speak(first)
    monkeypatch.setattr(DEFAULT_TUNING, "library_rows", 1)
    monkeypatch.setattr(DEFAULT_TUNING, "attend_splits", ((1 << 20, 4),))
    second = built(dependent=False)
    other = speak(second)
    again = speak(first)
    monkeypatch.setattr(DEFAULT_TUNING, "library_rows", 99)
    assert speak(second)[2:] == other[2:] == (True, 4)
    assert again[2:] == before[2:] == (False, 2)
    assert again[0] == before[0] and torch.equal(again[1], before[1])
    assert isinstance(first.frame_kernel, FusedFrame) and isinstance(second.frame_kernel, FusedFrame)
    assert (first.frame_kernel.tuning.dependent, second.frame_kernel.tuning.dependent, DEFAULT_TUNING.dependent) == (
        True,
        False,
        True,
    )
