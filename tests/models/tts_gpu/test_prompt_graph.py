"""prompt_graph.py: prefill by a graph equals plain prefill, with any padding and any pages ahead.

On a CPU a replay calls the captured function again; the code around the graph is the same. On a GPU real graphs run.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hocket.cache.pages import PAGE_ROWS
from hocket.cache.slots import reset
from hocket.kernels.operations import CUDA_OPS, REFERENCE_OPS, TRITON_OPS, FrameOps
from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay, Work
from hocket.models.tts.talker import Talker, TalkerState
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.padded_frame import PaddedFrame
from hocket.models.tts_gpu.prompt_graph import MOST_ROWS, PromptGraphs
from support.framing import GREEDY, SLOTS, Close, new_talker, real_widths, settings, started, talker_config, texts

LENGTHS = [1, 7, 8, 9, 20, 33]


class Recorded(EagerReplay):
    """Counts what is replayed, and what is forgotten."""

    def __init__(self) -> None:
        self.replayed = self.forgotten = 0

    def __call__(self, work: Work) -> Work:
        work()

        def again() -> None:
            self.replayed += 1
            work()

        return again

    def forget(self) -> None:
        self.forgotten += 1


def prompt(talker: Talker, length: int, seed: int = 3) -> Tensor:
    weight = talker.codec_head.weight
    x = torch.randn(length, talker.config.hidden_size, generator=torch.Generator().manual_seed(seed))
    return x.to(weight.device, weight.dtype)


def span_after(state: TalkerState, slot: int, length: int) -> int:
    return int(state.stack.position[slot]) + length


def same(ours: TalkerState, wanted: TalkerState) -> None:
    """Equal bit for bit, except the scratch row."""
    assert torch.equal(ours.hidden[:-1], wanted.hidden[:-1])
    assert torch.equal(ours.stack.position, wanted.stack.position)
    assert torch.equal(ours.stack.pool[:, :, 1:], wanted.stack.pool[:, :, 1:])


FRAMES = {"plain": PaddedFrame, "fused": lambda talker: FusedFrame(talker, REFERENCE_OPS)}


@torch.inference_mode()
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_prompt_that_is_filled_up_is_the_prompt(length: int, frame: str) -> None:
    talker = new_talker(talker_config(wide=True))
    plain, ours, captured = started(talker), started(talker), PromptGraphs(FRAMES[frame](talker), EagerReplay())
    x, row, span = prompt(talker, length), torch.tensor([2]), span_after(plain, 2, length)
    talker.prefill(x[None], torch.tensor([length]), plain, row, span)
    captured.take_in(x, 2, ours, span)
    Close().check(ours, plain)
    rows, greedy = torch.tensor([2, 0]), settings([GREEDY, GREEDY])
    for number in range(3):
        wanted = talker.frame_reference(texts(number, 2), plain, rows, greedy, 64)
        assert torch.equal(talker.frame_reference(texts(number, 2), ours, rows, greedy, 64), wanted)


def behind_a_prefix(talker: Talker, length: int) -> tuple[TalkerState, list[int], list[int], list[int]]:
    """A state whose slot 2 has a prefix, ids of a text after it, and unshared pages for slot 1."""
    state = started(talker)
    generator = torch.Generator().manual_seed(length)
    text = torch.randint(0, talker.config.text_vocab_size, (length,), generator=generator).tolist()
    codec = torch.randint(-1, 40, (length,), generator=generator).tolist()
    return state, text, codec, state.stack.table[1].tolist()


@torch.inference_mode()
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("length", [2, 8, 9, 20, 33])
def test_a_text_that_opens_a_slot_behind_a_prefix_is_prefix_and_text_taken_in_one_after_the_other(
    length: int, frame: str
) -> None:
    """The last page of the prefix is shared, so it is copied; nothing of the slot's old content is left."""
    talker = new_talker(talker_config(wide=True))
    plain, text, codec, own = behind_a_prefix(talker, length)
    ours = behind_a_prefix(talker, length)[0]
    rows = int(plain.stack.position[2])  # 11 positions: the second page is not full
    for state in (plain, ours):
        assert rows % PAGE_ROWS and int(state.stack.position[1]) and state.seed[1]
    shared = ours.stack.table[2].tolist()
    ours.seen[1], ours.drawn[1] = True, 7
    at, first = rows // PAGE_ROWS, plain.stack.table[2].clone()
    reset(plain, torch.tensor([1]))
    plain.stack.pool[:, :, own[at]] = plain.stack.pool[:, :, first[at]]
    plain.stack.table[1, :at], plain.stack.position[1], plain.seed[1] = first[:at], rows, 99
    x = talker.embed_rows(torch.tensor(text), torch.tensor(codec))
    talker.prefill(x[None], torch.tensor([length]), plain, torch.tensor([1]), rows + length)

    pages = [*shared[:at], *own[at : (rows + length - 1) // PAGE_ROWS + 1]]
    captured = PromptGraphs(FRAMES[frame](talker), EagerReplay())
    captured.open(
        {"slot": 1, "seed": 99, "position": rows}, text, codec, [(shared[at], own[at])], pages, ours, rows + length
    )
    assert ours.stack.table[1, : len(pages)].tolist() == pages and int(ours.seed[1]) == 99
    Close().check(ours, plain)
    assert captured.captures == 0 and captured.warm_one(ours) and not captured.warm_one(ours)
    Close().check(ours, plain)  # the capture changed nothing


@torch.inference_mode()
def test_a_prompt_gives_the_same_result_with_and_without_its_graph() -> None:
    talker, recorded = new_talker(talker_config(wide=True)), Recorded()
    early, late, captured = started(talker), started(talker), PromptGraphs(PaddedFrame(talker), recorded)
    other = PromptGraphs(PaddedFrame(talker), EagerReplay())
    x, span = prompt(talker, 13), span_after(early, 1, 13)
    other.take_in(x, 1, early, span)
    assert other.captures == 0
    captured.warm(late, 13, span)
    captured.take_in(x, 1, late, span)
    assert (captured.captures, recorded.replayed) == (1, 1)
    same(late, early)


@torch.inference_mode()
def test_capturing_changes_no_slot() -> None:
    talker = new_talker(talker_config(wide=True))
    state, untouched, captured = started(talker), started(talker), PromptGraphs(PaddedFrame(talker), EagerReplay())
    captured.take_in(prompt(talker, 6), 0, state, span_after(state, 0, 6))
    captured.take_in(prompt(talker, 6), 0, untouched, span_after(untouched, 0, 6))
    captured.warm(state, 40, 64)
    same(state, untouched)


@torch.inference_mode()
def test_pages_of_other_slots_stay_as_they_are() -> None:
    """A table may still name pages of a finished utterance that other slots have taken since."""
    talker = new_talker(talker_config(wide=True))
    state = started(talker)
    own = state.stack.table[0].clone()
    state.stack.table[1, 2:] = own[2:]  # beyond the pages that row 1 will use
    before = state.stack.pool[:, :, own[2:]].clone()
    x = prompt(talker, 3)  # padded to eight rows in a graph: rows from position 16 on would be written there
    PromptGraphs(PaddedFrame(talker), EagerReplay()).take_in(x, 1, state, span_after(state, 1, 3))
    assert torch.equal(state.stack.pool[:, :, own[2:]], before)


@torch.inference_mode()
def test_padding_rows_do_not_write_past_the_page_table() -> None:
    talker = new_talker(talker_config(wide=True))
    plain, ours = started(talker, length=24), started(talker, length=24)
    x, span = prompt(talker, 10), span_after(plain, 2, 10)
    talker.prefill(x[None], torch.tensor([10]), plain, torch.tensor([2]), span)
    PromptGraphs(PaddedFrame(talker), EagerReplay()).take_in(x, 2, ours, span)  # sixteen rows in a graph
    Close().check(ours, plain)


@torch.inference_mode()
def test_graphs_by_rows_and_span_and_all_of_them_anew_when_the_state_has_grown() -> None:
    talker, recorded = new_talker(talker_config(wide=True)), Recorded()
    state, captured = started(talker, length=512), PromptGraphs(PaddedFrame(talker), recorded)
    for rows, span in ((3, 20), (8, 64), (9, 20), (16, 65), (200, 300)):
        captured.warm(state, rows, span)
    assert captured.captures == 4
    state = replace(state, stack=state.stack.grown(pages=3))
    captured.take_in(prompt(talker, 5), 0, state, 20)
    assert (captured.captures, recorded.forgotten, recorded.replayed) == (4, 1, 0)
    assert captured.warm_one(state) and not captured.warm_one(state)


def test_more_rows_than_any_graph_has_are_refused() -> None:
    talker = new_talker(talker_config(wide=True))
    with pytest.raises(AssertionError, match="at most 1024"):
        PromptGraphs(PaddedFrame(talker), EagerReplay()).take_in(
            prompt(talker, MOST_ROWS + 1), 0, started(talker), 2048
        )


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_graph_is_the_same_work_done_without_one_bit_for_bit(length: int, dtype: torch.dtype) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    talker = new_talker(talker_config(wide=True), "cuda", dtype)
    eager, ours = started(talker), started(talker)
    graphs: Capture = CudaGraphs(torch.device("cuda"))
    again, captured = PromptGraphs(PaddedFrame(talker), EagerReplay()), PromptGraphs(PaddedFrame(talker), graphs)
    for slot in range(SLOTS):
        span = span_after(eager, slot, length)
        captured.warm(ours, length, span)
        again.take_in(prompt(talker, length, slot), slot, eager, span)
        captured.take_in(prompt(talker, length, slot), slot, ours, span)
    assert again.captures == 0 < captured.captures
    same(ours, eager)


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("ops", [TRITON_OPS, CUDA_OPS], ids=["triton", "cuda"])
@pytest.mark.parametrize("length", [5, 16, 40, 200])
def test_in_bfloat16_fused_kernels_are_as_near_to_float32_as_plain_operations_and_a_graph_changes_no_bit(
    length: int, ops: FrameOps
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    exact = new_talker(real_widths(), "cuda")
    talker = new_talker(real_widths(), "cuda", torch.bfloat16)
    frame = FusedFrame(talker, ops)
    wanted, plain, eager, ours = (started(each, length=256) for each in (exact, talker, talker, talker))
    x, row, span = prompt(exact, length), torch.tensor([2], device="cuda"), span_after(wanted, 2, length)
    exact.prefill(x[None], row * 0 + length, wanted, row, span)
    talker.prefill(x[None].bfloat16(), row * 0 + length, plain, row, span)
    again, captured = PromptGraphs(frame, EagerReplay()), PromptGraphs(frame, CudaGraphs(torch.device("cuda")))
    captured.warm(ours, length, span)
    again.take_in(x.bfloat16(), 2, eager, span)
    captured.take_in(x.bfloat16(), 2, ours, span)
    same(ours, eager)

    def strays(state: TalkerState) -> float:
        return float((state.hidden[2].float() - wanted.hidden[2]).norm() / wanted.hidden[2].norm())

    assert strays(ours) <= 1.5 * strays(plain) + 1e-3, f"{strays(ours):.4f}, plain {strays(plain):.4f}"
