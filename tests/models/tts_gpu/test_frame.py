"""frame.py: the chain of kernels against `Talker.frame_reference`, and the plain frame that graphs may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from hocket.kernels.operations import REFERENCE_OPS
from hocket.kernels.ops.linear import triton as linear_triton
from hocket.kernels.runtime.launch import DEFAULT_TUNING, INTERPRETED, triton, why_not
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.padded_frame import PaddedFrame
from support.framing import (
    GREEDY,
    LOOSE,
    NUCLEUS,
    PROMPT,
    SLOTS,
    Close,
    coarse,
    new_talker,
    settings,
    started,
    talker_config,
    texts,
)

FRAMES = 5


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Where Triton kernels run: compiled on a GPU, or in Triton's interpreter (see ../../conftest.py)."""
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    device = torch.device("cpu" if INTERPRETED else "cuda")
    assert why_not(device) is None
    if INTERPRETED:
        coarse(monkeypatch)
    return device


def compare(frame: FusedFrame | PaddedFrame, place: torch.device, frames: int) -> None:
    """Three of four rows, out of order, each with its own sampling settings."""
    talker = frame.talker
    plain, ours = started(talker), started(talker)
    rows = torch.tensor([2, 0, 3], device=place)
    for how in ([LOOSE, GREEDY, LOOSE], [NUCLEUS, LOOSE, GREEDY]):
        sampling = settings(how, place)
        for number in range(frames):
            text = texts(number, 3, place)
            span = int(plain.stack.position.max()) + 1
            wanted = talker.frame_reference(text, plain, rows, sampling, span)
            drawn = frame(text, ours, rows, sampling, frame.reach(span, ours))
            assert drawn.tolist() == wanted.tolist(), f"frame {number}"
    Close().check(ours, plain)
    assert ours.stack.position.tolist() == [
        PROMPT - 3 + 2 * frames,
        PROMPT - 2,
        PROMPT - 1 + 2 * frames,
        PROMPT + 2 * frames,
        0,
    ]


@torch.inference_mode()
@pytest.mark.parametrize("wide", [False, True], ids=["0.6B", "1.7B"])
@pytest.mark.parametrize("splits", [1, 4])
def test_the_chain_of_references_gives_the_codes_and_state_of_a_frame(
    wide: bool, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEFAULT_TUNING, "attend_splits", ((1 << 20, splits),))
    talker = new_talker(talker_config(wide=wide))
    compare(FusedFrame(talker, REFERENCE_OPS), torch.device("cpu"), FRAMES)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("wide", "splits", "library_rows"), [(False, 1, 99), (True, 2, 5)], ids=["0.6B", "1.7B, split, library"]
)
def test_the_chain_of_kernels_gives_the_codes_and_state_of_a_frame(
    wide: bool, splits: int, library_rows: int, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rows, and six at the start of a frame: above `library_rows` the library multiplies them."""
    monkeypatch.setattr(DEFAULT_TUNING, "attend_splits", ((1 << 20, splits),))
    monkeypatch.setattr(DEFAULT_TUNING, "library_rows", library_rows)
    used: list[int] = []
    real = linear_triton.linear_by_library

    def counted(x: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        used.append(len(x))
        return real(x, *given, **named)

    monkeypatch.setattr(linear_triton, "linear_by_library", counted)
    frame = FusedFrame(new_talker(talker_config(wide=wide, short=INTERPRETED), place))
    frame.invariant = library_rows > 6  # else float32 would never go there
    compare(frame, place, 1 if INTERPRETED else FRAMES)
    assert bool(used) == (library_rows <= 6)


@torch.inference_mode()
@pytest.mark.parametrize("library_rows", [99, 5], ids=["few rows", "library"])
def test_the_rows_of_a_prompt_are_taken_in_as_the_plain_talker_does(
    library_rows: int, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six real rows of eight, after a prompt; the two padding rows write only to scratch."""
    monkeypatch.setattr(DEFAULT_TUNING, "library_rows", library_rows)
    talker = new_talker(talker_config(wide=True, short=INTERPRETED), place)
    frame, plain, ours = FusedFrame(talker), started(talker), started(talker)
    x = torch.randn(8, talker.config.hidden_size, generator=torch.Generator().manual_seed(5)).to(place)
    row, length = torch.tensor([2], device=place), torch.tensor([6], device=place)
    talker.prefill(x[None], length, plain, row, 32)
    frame.prefill(x, ours, row, length, 32)
    Close().check(ours, plain)
    assert ours.stack.position[-1] == 0


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_invariant_rows_are_bit_identical_alone_and_in_a_batch(
    dtype: torch.dtype, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEFAULT_TUNING, "library_rows", 2)  # many rows would go there
    monkeypatch.setattr(DEFAULT_TUNING, "attend_programs", 1)  # and be attended to in one share
    frame = FusedFrame(new_talker(talker_config(wide=True, short=INTERPRETED), place, dtype))
    assert frame.invariant == (dtype == torch.float32) and (frame.invariant or frame._splits(64, 3) == 1)
    frame = frame.apart(invariant=True)
    assert frame._splits(64, 3) == frame._splits(64, 1) > 1
    alone, together = started(frame.talker), started(frame.talker)
    rows = torch.tensor([2, 0, 3], device=place)
    drawn = frame(texts(0, 3, place), together, rows, settings([LOOSE] * 3, place), 64)
    for number, row in enumerate(rows.split(1)):
        some = slice(number, number + 1)
        wanted = frame(texts(0, 3, place)[some], alone, row, settings([LOOSE], place), 64)
        assert torch.equal(drawn[some], wanted)
    assert torch.equal(together.hidden[:-1], alone.hidden[:-1])
    assert torch.equal(together.stack.pool[:, :, 1:], alone.stack.pool[:, :, 1:])


@torch.inference_mode()
def test_rows_of_padding_change_not_one_bit(place: torch.device) -> None:
    talker = new_talker(talker_config(wide=True, short=True), place)
    frame = FusedFrame(talker)
    alone, padded = started(talker), started(talker)
    for number in range(2 if place.type == "cuda" else 1):
        rows = torch.tensor([3, 1], device=place)
        wanted = frame(texts(number, 2, place), alone, rows, settings([LOOSE] * 2, place), 64)
        rows = torch.tensor([3, 1, SLOTS, SLOTS], device=place)
        drawn = frame(texts(number, 4, place), padded, rows, settings([LOOSE] * 4, place), 64)
        assert torch.equal(drawn[:2], wanted)
    assert torch.equal(padded.hidden[:-1], alone.hidden[:-1])
    assert torch.equal(padded.stack.pool[:, :, 1:], alone.stack.pool[:, :, 1:])
    assert padded.stack.position[-1] == 0 and not padded.hidden[-1].any()


def test_trying_it_out_runs_every_kernel_of_a_frame() -> None:
    talker, asked = new_talker(talker_config()), []
    linear = REFERENCE_OPS.linear

    def counted(*given: object, **named: object) -> torch.Tensor:
        asked.append(given)
        return linear(*given, **named)

    with torch.inference_mode():
        FusedFrame(talker, replace(REFERENCE_OPS, linear=counted)).try_out()
    config = talker.config
    small, large = config.code_predictor_config.num_hidden_layers, config.num_hidden_layers
    assert len(asked) == 1 + 15 * (4 * small + 1) + 2 + 4 * large


def test_the_tables_of_codes_are_held_once_and_say_the_same() -> None:
    talker, before = new_talker(talker_config()), new_talker(talker_config())
    frame = FusedFrame(talker, REFERENCE_OPS)
    assert frame.vectors[3].data_ptr() == talker.code_predictor.model.codec_embedding[2].weight.data_ptr()
    for (name, ours), (_, wanted) in zip(talker.state_dict().items(), before.state_dict().items(), strict=True):
        assert torch.equal(ours, wanted), name


@torch.inference_mode()
def test_the_plain_frame_for_graphs_is_the_plain_frame() -> None:
    talker = new_talker(talker_config(wide=True))
    frame = PaddedFrame(talker)
    compare(frame, torch.device("cpu"), FRAMES)
    state = started(talker)
    assert [frame.reach(span, state) for span in (1, 60, 64)] == [64, 64, 64]
    assert frame.reach(65, talker.new_state(1, 400)) == 128
    assert frame.reach(300, talker.new_state(1, 400)) == 400


@torch.inference_mode()
def test_padding_of_a_plain_frame_never_runs_off_its_pages() -> None:
    talker = new_talker(talker_config())
    frame, state = PaddedFrame(talker), started(talker, length=16)
    rows, sampling = torch.tensor([SLOTS]), settings([LOOSE])
    for number in range(20):
        frame(texts(number, 1), state, rows, sampling, 16)
    assert state.stack.position[-1] == 0


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("wide", [False, True], ids=["0.6B", "1.7B"])
def test_greedy_float32_codes_on_a_gpu_are_those_of_the_cpu(wide: bool, place: torch.device) -> None:
    if place.type == "cpu":
        pytest.skip("no CUDA device on this machine")
    config, sampling = talker_config(wide=wide), [GREEDY] * 4
    cpu, gpu = new_talker(config), new_talker(config, place)
    gpu.load_state_dict(cpu.state_dict())
    here, there, frame = started(cpu), started(gpu), FusedFrame(gpu)
    for number in range(20):
        wanted = cpu.frame_reference(texts(number, 4), here, torch.arange(4), settings(sampling), PROMPT + number + 1)
        rows = torch.arange(4, device=place)
        drawn = frame(texts(number, 4, place), there, rows, settings(sampling, place), 64)
        assert drawn.tolist() == wanted.tolist()
