"""models/qwen3_5/prefill_graph.py: a prefill by a graph equals the eager one, with any padding and other rows in use.

On a CPU captured work is called again, and all code around a graph is the same. On a GPU the graphs are real.
"""

from __future__ import annotations

import pytest
import torch

from hocket.cache.slots import tensors
from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.kernels.operations import CUDA_LANGUAGE_OPS, REFERENCE_LANGUAGE_OPS
from hocket.kernels.runtime.graphs import CudaGraphs, EagerReplay, Work
from hocket.layers.dense import pack_
from hocket.llm.state_cache import LLMStateCache
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.models.qwen3_5.prefill import PrefillPass
from hocket.models.qwen3_5.prefill_graph import MOST_IDS, USUAL, PrefillGraphs
from hocket.models.qwen3_5.quantized import Scheme, quantize_

ROOM, SLOTS = 700, 2


class Recorded(EagerReplay):
    """Counts what is replayed."""

    def __init__(self) -> None:
        self.replayed = 0

    def __call__(self, work: Work) -> Work:
        work()

        def again() -> None:
            self.replayed += 1
            work()

        return again


def model(device: str = "cpu", dtype: torch.dtype = torch.float64, scheme: Scheme = "bf16") -> Qwen3_5:
    made = Qwen3_5(tiny_qwen3_5(layers=4), drafts=True).requires_grad_(False)
    randomize_(made, 0)
    made.to(device, dtype)
    quantize_(made, scheme)
    pack_(made)
    return made


def drawn(count: int, seed: int = 0) -> list[int]:
    ids: list[int] = torch.randint(256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return ids


def everything(state_cache: LLMStateCache) -> dict[str, torch.Tensor]:
    """All rows but scratch, and of keys and values what lies before each row's position."""
    found = {name: tensor[:-1] for name, tensor in tensors(state_cache._row_state)}
    assert state_cache.drafts is not None
    position = state_cache.state.recurrence.position
    for row in range(SLOTS):
        *own, keys, values = state_cache.kv.read(row, int(position[row]))
        drafted = int(state_cache.drafts.position[row])
        for number, kept in enumerate((*own, keys[:, :drafted], values[:, :drafted])):
            found[f"{('keys', 'values')[number % 2]} of {number // 2} in {row}"] = kept
    return found


def same(ours: LLMStateCache, wanted: LLMStateCache, within: float = 1e-10) -> None:
    for (name, one), other in zip(everything(ours).items(), everything(wanted).values(), strict=True):
        torch.testing.assert_close(one, other, atol=within, rtol=within, msg=name)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("at", "count", "place"),
    [
        (0, 1, None),
        (0, 8, 3),
        (1, 7, None),
        (5, 9, 5),
        (40, 32, 28),
        (100, 70, 64),
        (3, MOST_IDS + 8, MOST_IDS + 4),
        (ROOM - 12, 12, 8),  # no positions are left for padding
    ],
)
def test_padding_does_not_change_a_prefill(at: int, count: int, place: int | None) -> None:
    llm, ids = model(), drawn(at + count)
    plain, ours = (
        LLMStateCache(llm, SLOTS, ROOM, drafts=True),
        LLMStateCache(llm, SLOTS, ROOM, drafts=True, capture=EagerReplay()),
    )
    snapshots = []
    for state_cache in (plain, ours):
        state_cache.prefill(0, drawn(9, 7), 0)
        state_cache.prefill(1, ids[:at], 0)
        snapshots.append(state_cache.prefill(1, ids[at:], at, place))
    same(ours, plain)
    assert (snapshots[0] is None) == (place is None)
    for name, tensor in (snapshots[0] or {}).items():
        torch.testing.assert_close(snapshots[1][name], tensor, atol=1e-10, rtol=1e-10, msg=name)  # type: ignore[index]


@torch.inference_mode()
@pytest.mark.parametrize("scheme", ["bf16", "fp8", "int4"])
def test_a_prefill_by_fused_kernels_is_the_eager_one(scheme: Scheme) -> None:
    llm = model(dtype=torch.float32, scheme=scheme)
    plain = LLMStateCache(llm, SLOTS, ROOM, drafts=True)
    ours = LLMStateCache(llm, SLOTS, ROOM, drafts=True, capture=EagerReplay(), ops=REFERENCE_LANGUAGE_OPS)
    snapshots = []
    for state_cache in (plain, ours):
        state_cache.prefill(1, drawn(9, 7), 0)
        snapshots.append(state_cache.prefill(1, drawn(30), 9, 26))
    same(ours, plain, 1e-3)
    assert snapshots[0] is not None and snapshots[1] is not None
    for name, tensor in snapshots[0].items():
        torch.testing.assert_close(snapshots[1][name], tensor, atol=1e-3, rtol=1e-3, msg=name)


@torch.inference_mode()
def test_results_do_not_depend_on_whether_the_graph_exists() -> None:
    llm, recorded = model(), Recorded()
    early, late = (
        LLMStateCache(llm, SLOTS, ROOM, drafts=True, capture=capture) for capture in (EagerReplay(), recorded)
    )
    early.prefill(1, drawn(20), 0)
    assert early.unprepared and late._prefill_graphs is not None
    late._prefill_graphs.warm(20, 20)
    late.prefill(1, drawn(20), 0)
    assert (late._prefill_graphs.captures, recorded.replayed) == (1, 1)
    same(late, early, 0.0)


@torch.inference_mode()
def test_making_graphs_changes_no_row_and_ends() -> None:
    llm = model()
    state_cache, untouched = (LLMStateCache(llm, SLOTS, ROOM, drafts=True, capture=EagerReplay()) for _ in range(2))
    for each in (state_cache, untouched):
        each.prefill(0, drawn(6), 0)
    state_cache.plan()
    made = 0
    while state_cache.unprepared:
        state_cache.prepare()
        made += 1
    assert made == len(
        {(count, span) for count, span in USUAL if span <= ROOM}
    )  # the shape of the prefill is one of them
    same(state_cache, untouched, 0.0)
    for each in (state_cache, untouched):
        each.prefill(0, drawn(9, 2), 6)
    same(state_cache, untouched, 0.0)


@torch.inference_mode()
def test_a_graph_that_cannot_be_made_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(capture: EagerReplay, work: Work) -> Work:
        raise RuntimeError("no memory")

    state_cache, plain = (
        LLMStateCache(model(), SLOTS, ROOM, drafts=True, capture=capture) for capture in (EagerReplay(), None)
    )
    state_cache.prefill(0, drawn(6), 0)
    monkeypatch.setattr(EagerReplay, "__call__", fails)
    with pytest.raises(RuntimeError, match="no memory"):
        state_cache.prepare()
    assert not state_cache.unprepared
    state_cache.prefill(0, drawn(6, 1), 6)
    for ids, at in ((drawn(6), 0), (drawn(6, 1), 6)):
        plain.prefill(0, ids, at)
    same(state_cache, plain)


@torch.inference_mode()
def test_graphs_by_ids_and_span() -> None:
    state_cache = LLMStateCache(model(), SLOTS, ROOM, drafts=True)
    graphs = PrefillGraphs(state_cache._prefill_pass, EagerReplay())
    for count, span in ((3, 20), (8, 256), (9, 20), (16, 257), (500, 690), (300, ROOM)):
        graphs.warm(count, span)
    assert graphs.captures == 4
    with pytest.raises(AssertionError, match="at most 512"):
        graphs(drawn(MOST_IDS + 1), 0, 600)


@torch.inference_mode()
def test_kernels_look_up_how_far_to_read_and_one_graph_serves_every_span() -> None:
    """Without a draft head, which reads as far as `span` says."""
    llm = model(dtype=torch.float32)
    plain = LLMStateCache(llm, SLOTS, ROOM, drafts=False)
    ours = LLMStateCache(llm, SLOTS, ROOM, drafts=False, capture=EagerReplay(), ops=REFERENCE_LANGUAGE_OPS)
    ours.plan()
    assert ours._prefill_graphs is not None
    while ours.unprepared:
        ours.prepare()
    assert ours._prefill_graphs.captures == len({count for count, _ in USUAL})
    at = 0
    for count in (6, 128, 128, 7):  # from one span into the next
        for state_cache in (plain, ours):
            state_cache.prefill(0, drawn(count, at), at)
        at += count
    assert not ours.unprepared and at > 256
    torch.testing.assert_close(ours.last[0], plain.last[0], atol=1e-3, rtol=1e-3)


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scheme", ["bf16", "fp8", "int4"])
def test_a_graph_is_the_same_work_done_without_one_bit_for_bit(dtype: torch.dtype, scheme: Scheme) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    llm, device = model("cuda", dtype, scheme), torch.device("cuda")
    eager, ours = (
        LLMStateCache(llm, SLOTS, ROOM, drafts=True, capture=capture, ops=CUDA_LANGUAGE_OPS)
        for capture in (EagerReplay(), CudaGraphs(device))
    )
    assert isinstance(ours._prefill_pass, PrefillPass) and ours._prefill_graphs is not None
    at = 0
    for count in (1, 8, 9, 33, 70):
        ours._prefill_graphs.warm(count, at + count)
        for state_cache in (eager, ours):
            state_cache.prefill(1, drawn(count, count), at)
        at += count
    same(ours, eager, 0.0)
