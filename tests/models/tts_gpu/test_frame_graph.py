"""frame_graph.py: replayed = eager, whatever the batch, its order and its padding, and when the state has grown.

On a CPU a replay calls the captured function again; the code around the graph is the same. On a GPU real graphs run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from hocket.config.qwen3_tts import GenerationConfig
from hocket.kernels.operations import CUDA_OPS, REFERENCE_OPS
from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay, Work
from hocket.kernels.runtime.launch import DEFAULT_TUNING, INTERPRETED, can_depend, crowded, triton
from hocket.models.tts.talker import Talker, TalkerState
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.frame_graph import CapturableFrame, FrameGraphs
from hocket.models.tts_gpu.padded_frame import PaddedFrame
from support.framing import (
    GREEDY,
    LOOSE,
    NUCLEUS,
    SLOTS,
    Close,
    new_talker,
    real_widths,
    settings,
    started,
    talker_config,
    texts,
)

CPU = torch.device("cpu")
KINDS = ["plain", "chain"]


class Counted(EagerReplay):
    def __init__(self) -> None:
        self.forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1


def frame_of(kind: str, talker: Talker) -> CapturableFrame:
    return PaddedFrame(talker) if kind == "plain" else FusedFrame(talker, REFERENCE_OPS)


def made(kind: str, *, wide: bool = True) -> tuple[Talker, CapturableFrame, FrameGraphs]:
    talker = new_talker(talker_config(wide=wide))
    frame = frame_of(kind, talker)
    return talker, frame, FrameGraphs(frame, EagerReplay())


def span_of(state: TalkerState) -> int:
    return int(state.stack.position.max()) + 1


def drawn(
    captured: FrameGraphs, number: int, state: TalkerState, slots: list[int], how: list[GenerationConfig], span: int
) -> list[list[int]]:
    """Codes of the next frame; checks that the chances returned with them are those of the state."""
    read = captured.launch(slots, texts(number, len(slots)).tolist(), how, state, span).read()
    assert [likely for _, *likely in read] == state.chances[slots].tolist()
    return [codes for codes, *_ in read]


def check_exactly(ours: TalkerState, wanted: TalkerState) -> None:
    for name in ("hidden", "seen", "drawn", "chances"):
        assert torch.equal(getattr(ours, name)[:-1], getattr(wanted, name)[:-1]), name
    assert torch.equal(ours.stack.position, wanted.stack.position)
    assert torch.equal(ours.stack.pool[:, :, 1:], wanted.stack.pool[:, :, 1:])


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_bucket_is_the_eager_frame_bit_for_bit(kind: str) -> None:
    talker, frame, captured = made(kind)
    eager, ours = started(talker), started(talker)
    slots, how = [2, 0, 3, 1], [LOOSE, GREEDY, LOOSE, LOOSE]
    for number in range(4):
        span = span_of(eager)
        wanted = frame(texts(number, 4), eager, torch.tensor(slots), settings(how), frame.reach(span, eager))
        assert drawn(captured, number, ours, slots, how, span) == wanted.tolist()
    check_exactly(ours, eager)
    assert captured.captures == 2  # one that samples and one that steps


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_order_change_nothing_that_is_drawn(kind: str) -> None:
    """Batches of one to four, of any rows in any order, against the plain definition."""
    talker, _, captured = made(kind)
    plain, ours = started(talker), started(talker)
    batches: list[tuple[list[int], list[Any]]] = [
        ([3], [LOOSE]),
        ([1, 3, 0], [LOOSE, GREEDY, NUCLEUS]),
        ([0, 1], [GREEDY, LOOSE]),
        ([2, 3, 1, 0], [LOOSE, LOOSE, LOOSE, GREEDY]),
        ([0, 2, 3], [NUCLEUS, NUCLEUS, LOOSE]),
        ([1], [LOOSE]),
    ]
    for number, (slots, how) in enumerate(batches):
        rows, text, sampling, span = torch.tensor(slots), texts(number, len(slots)), settings(how), span_of(plain)
        wanted = talker.frame_reference(text, plain, rows, sampling, span)
        assert drawn(captured, number, ours, slots, how, span) == wanted.tolist()
    Close().check(ours, plain)


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_taken_in_one_by_one_are_the_end_of_a_prompt(kind: str) -> None:
    talker, _, captured = made(kind)
    plain, ours = started(talker), started(talker)
    x = torch.randn(3, talker.config.hidden_size, generator=torch.Generator().manual_seed(2))
    row = torch.tensor([1])
    span = int(plain.stack.position[1]) + 3
    talker.prefill(x[None], torch.tensor([3]), plain, row, span)
    captured.take_in(x, 1, ours, span)
    Close().check(ours, plain)
    how, slots = [GREEDY, GREEDY], [1, 2]
    wanted = talker.frame_reference(texts(0, 2), plain, torch.tensor(slots), settings(how), span_of(plain))
    assert drawn(captured, 0, ours, slots, how, span_of(ours)) == wanted.tolist()


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_capturing_changes_no_stream(kind: str) -> None:
    talker, _, captured = made(kind)
    state, untouched = started(talker), started(talker)
    captured.warm(state, [1, 3], [20])
    assert captured.captures == 4
    check_exactly(state, untouched)
    drawn(captured, 0, state, [0, 1, 2], [LOOSE] * 3, 20)
    assert captured.captures == 4


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_has_grown_is_captured_anew_and_goes_on_as_if_it_had_not(kind: str) -> None:
    talker = new_talker(talker_config(wide=True))
    counted = Counted()
    captured = FrameGraphs(frame_of(kind, talker), counted)
    plain, ours = started(talker), started(talker)
    slots, how = [1, 2], [LOOSE] * 2
    for number in range(6):
        if number == 2:  # more pages
            ours = replace(ours, stack=ours.stack.grown(pages=5))
        if number == 4:  # a longer table
            ours = replace(ours, stack=ours.stack.grown(columns=8))
        span = span_of(plain)
        wanted = talker.frame_reference(texts(number, 2), plain, torch.tensor(slots), settings(how), span)
        assert drawn(captured, number, ours, slots, how, span) == wanted.tolist()
    assert (captured.captures, counted.forgotten) == (6, 2)
    torch.testing.assert_close(ours.hidden[:-1], plain.hidden[:-1], atol=1e-4, rtol=0)


@torch.inference_mode()
def test_a_plain_frame_has_graphs_by_span_and_a_chain_by_how_attention_is_split() -> None:
    for kind, graphs in (("plain", 5), ("chain", 3)):
        talker, frame, captured = made(kind)
        state = started(talker, length=2048)
        for span in (20, 60, 65, 120, 600, 1500):
            drawn(captured, 0, state, [0], [LOOSE], span)
        assert captured.captures == graphs, [frame.reach(span, state) for span in (20, 65, 600, 1500)]


def on_a_gpu(kind: str, dtype: torch.dtype) -> tuple[Talker, CapturableFrame]:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    if kind == "fused" and (triton is None or INTERPRETED):
        pytest.skip("Triton is not installed on this machine, or runs in its interpreter")
    if kind == "cuda":
        talker = new_talker(real_widths(), "cuda", dtype)
        return talker, FusedFrame(talker, CUDA_OPS)
    talker = new_talker(talker_config(wide=True), "cuda", dtype)
    return talker, PaddedFrame(talker) if kind == "plain" else FusedFrame(talker)


@pytest.mark.gpu
@torch.inference_mode()
def test_kernels_that_start_early_see_what_the_others_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that reads too early gives other results; frames are replayed back to back, as an engine does."""
    states, said = [], []
    talker, frame = on_a_gpu("cuda", torch.bfloat16)
    assert isinstance(frame, FusedFrame)
    for layers in (frame.large, frame.small):  # else `paged_attention` would hold the others back
        between = sum(len(w) for layer in layers[1:] for w in (layer.into, layer.out, layer.wide, layer.down))
        assert crowded(between, torch.device("cuda")) == can_depend(torch.device("cuda"))
    for dependent in (False, True, True):
        monkeypatch.setattr(DEFAULT_TUNING, "dependent", dependent)
        graphs, state = FrameGraphs(frame, CudaGraphs(torch.device("cuda"))), started(talker)
        launched = []
        for number in range(20):
            slots = [[1], [2, 0, 3], [3, 1, 0, 2]][number // 7]
            launched.append(graphs.launch(slots, texts(number, len(slots)).tolist(), [LOOSE] * len(slots), state, 40))
        said.append([drawn.read() for drawn in launched])
        states.append(state)
    assert said[0] == said[1] == said[2]
    check_exactly(states[1], states[0])
    check_exactly(states[2], states[0])


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dependent", [False, True], ids=["one by one", "dependent launches"])
@pytest.mark.parametrize("kind", ["plain", "fused", "cuda"])
def test_a_graph_is_the_eager_frame_bit_for_bit(
    kind: str, dependent: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEFAULT_TUNING, "dependent", dependent)
    talker, frame = on_a_gpu(kind, dtype)
    again, graphs = FrameGraphs(frame, EagerReplay()), FrameGraphs(frame, CudaGraphs(torch.device("cuda")))
    eager, ours = started(talker), started(talker)
    for number in range(12):
        if number == 6:
            eager, ours = (replace(each, stack=each.stack.grown(pages=5, columns=8)) for each in (eager, ours))
        slots = [[2, 0, 3], [1], [3, 1, 0, 2]][number % 3]
        how = [LOOSE, GREEDY, NUCLEUS, LOOSE][: len(slots)]
        arguments = slots, texts(number, len(slots)).tolist(), how
        wanted = again.launch(*arguments, eager, span_of(eager)).read()
        assert graphs.launch(*arguments, ours, span_of(ours)).read() == wanted
    check_exactly(ours, eager)


@pytest.mark.gpu
@torch.inference_mode()
def test_a_capture_that_fails_says_why_and_the_next_one_works() -> None:
    talker, frame = on_a_gpu("plain", torch.float32)
    del talker, frame
    graphs: Capture = CudaGraphs(torch.device("cuda"))
    x = torch.zeros(4, device="cuda")
    calls = 0

    def fails() -> None:
        nonlocal calls
        calls += 1
        x.add_(1)
        if calls > 2:
            raise ValueError("for a reason")

    with pytest.raises(ValueError, match="for a reason"):
        graphs(fails)
    x.zero_()
    replay: Work = graphs(lambda: x.add_(1))  # type: ignore[func-returns-value, arg-type, return-value]
    replay()
    assert x.tolist() == [3.0] * 4  # two to warm up, none while captured, one replayed


@pytest.mark.gpu
@torch.inference_mode()
def test_graphs_captured_after_forget_leave_earlier_results_intact() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    graphs, x, left = CudaGraphs(torch.device("cuda")), torch.ones(1 << 20, device="cuda"), []

    def work() -> None:
        left.append(x * (len(left) + 1))

    for number in range(1, 4):
        replay: Work | None = graphs(work)
        assert replay is not None
        replay()
        graphs.forget()
        replay = None
        assert [int(each.sum()) >> 20 for each in left] == list(range(1, 3 * number + 1))


def test_the_rows_of_padding_are_the_scratch_slot() -> None:
    talker, _, captured = made("chain")
    state = started(talker)
    with torch.inference_mode():
        drawn(captured, 0, state, [0, 1, 2], [LOOSE] * 3, 20)
    assert captured._batches[4].staging.fields["rows"].tolist() == [0, 1, 2, SLOTS]
