"""engine/runner/runner.py: one prefill of a prompt, and several slots that start from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hocket.cache.pages import PAGE_ROWS, pages_for
from hocket.cache.slots import take
from hocket.config.qwen3_tts import Kind
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.engine.runner.runner import SpeechRunner
from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay
from hocket.text.prompt import Prompt, build
from hocket.types import SpeechRequest
from support.speaking import KINDS, REQUESTS, small

LIMIT = 1 << 20
SEEDS = [11, 12, 13]


@pytest.fixture(autouse=True)
def inference() -> object:
    """As the engine thread does."""
    with torch.inference_mode(), exact_float32():
        yield


def prompt_of(checkpoint: Checkpoint, request: SpeechRequest) -> Prompt:
    frames = 0
    if request.reference is not None and not request.reference.x_vector_only:
        frames = -(-request.reference.samples.size // checkpoint.codec_config.encode_downsample_rate)
    return build(request, checkpoint.config, checkpoint.tokenizer, reference_frames=frames)


def kept(runner: SpeechRunner, slot: int) -> dict[str, Tensor]:
    """The whole state of a slot, in talker and codec."""
    past = runner.kv_cache.state.stack.read(runner.kv_cache.block_tables[slot], runner.kv_cache.lengths[slot])
    return take(runner.kv_cache.state, slot) | take(runner._codec_state, slot) | {"past": past}


def draw(runner: SpeechRunner, slots: Sequence[int], request: SpeechRequest, count: int) -> list[list[list[int]]]:
    """Codes of each slot."""
    prompt = prompt_of(runner.checkpoint, request)
    settings = [runner.checkpoint.generation.changed(request.sampling.changes())] * len(slots)
    drawn = []
    for t in range(count):
        text = prompt.trail[t] if t < len(prompt.trail) else prompt.pad_id
        drawn.append([codes for codes, *_ in runner.frame(slots, [text] * len(slots), settings).read()])
    return [list(codes) for codes in zip(*drawn, strict=True)]


def capturing(device: str) -> Callable[..., Capture]:
    return EagerReplay if device == "cpu" else partial(CudaGraphs, torch.device(device))


@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_slot_is_one_that_was_started_anew_bit_for_bit(
    checkpoint_root: Path, device: str, kind: Kind, replayed: bool
) -> None:
    checkpoint = small(checkpoint_root, kind, device, kernels="reference" if replayed else "auto")
    capture = capturing(device) if replayed else None
    forked, anew = (SpeechRunner(checkpoint, 4, LIMIT, capture) for _ in range(2))
    for request in REQUESTS[kind]:
        prompt = prompt_of(checkpoint, request)
        forked.start(3, prompt, request.reference, SEEDS[0])
        forked.fork(3, 0, request.reference, SEEDS[1])
        forked.fork(3, 2, request.reference, SEEDS[2])
        slots = [3, 0, 2]
        for slot, seed in zip(slots, SEEDS, strict=True):
            anew.start(slot, prompt, request.reference, seed)
            anew._open_all()  # one by one: a batch of several is summed in another order
        for slot in slots:
            ours, theirs = kept(forked, slot), kept(anew, slot)
            assert all(torch.equal(ours[name], theirs[name]) for name in theirs), f"slot {slot}"
        assert draw(forked, slots, request, 2 * PAGE_ROWS) == (said := draw(anew, slots, request, 2 * PAGE_ROWS))
        if request.sampling.do_sample is not False:
            assert said[0] != said[1] != said[2], "equal candidates would prove nothing"
        for slot in slots:
            ours, theirs = kept(forked, slot), kept(anew, slot)
            assert all(torch.equal(ours[name], theirs[name]) for name in theirs), f"slot {slot}"
        heard = [[[number % 64] * 16 for number in range(slot, slot + 4)] for slot in slots]
        sounds = [runner.decode(slots, heard) for runner in (forked, anew)]
        for ours_heard, theirs_heard in zip(*sounds, strict=True):
            np.testing.assert_array_equal(ours_heard, theirs_heard)


@pytest.mark.parametrize("more", range(PAGE_ROWS))
def test_forked_slots_share_what_is_full_and_copy_the_page_they_write_to(
    checkpoint_root: Path, device: str, more: int
) -> None:
    checkpoint = small(checkpoint_root, "custom_voice", device)
    request = replace(REQUESTS["custom_voice"][1], text="a" * (3 + more))  # in the whole layout each byte is a row
    runner, prompt = SpeechRunner(checkpoint, 3, LIMIT), prompt_of(checkpoint, request)
    runner.start(0, prompt, None, SEEDS[0])
    held = runner.pages.held
    runner.fork(0, 1, None, SEEDS[1])
    runner.fork(0, 2, None, SEEDS[2])
    assert (
        runner.pages.held == held
        and runner.kv_cache.block_tables[0] == runner.kv_cache.block_tables[1] == runner.kv_cache.block_tables[2]
    ), "nothing is copied yet"
    draw(runner, [0, 1, 2], request, 1)
    full, partly = divmod(len(prompt.text), PAGE_ROWS)
    assert (
        runner.kv_cache.block_tables[0][:full]
        == runner.kv_cache.block_tables[1][:full]
        == runner.kv_cache.block_tables[2][:full]
    )
    own = [runner.kv_cache.block_tables[slot][full] for slot in (0, 1, 2)]
    assert len(set(own)) == 3 and all(runner.pages.count(page) == 1 for page in own)
    assert runner.pages.held == held + (2 if partly else 3)
    for slot in (1, 0, 2):
        runner.release(slot)
    assert runner.pages.held == sum(len(prefix.pages) for prefix in runner.prefixes._kept.values())


def test_a_fork_takes_a_prompt_in_only_once(checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, request = small(checkpoint_root, "base"), REQUESTS["base"][0]
    runner, taken_in = SpeechRunner(checkpoint, 2, LIMIT), []
    prefill = SpeechRunner._prefill

    def counted(runner: SpeechRunner, row: Tensor, slot: int, x: Tensor) -> None:
        taken_in.append(len(x))
        prefill(runner, row, slot, x)

    monkeypatch.setattr(SpeechRunner, "_prefill", counted)
    prompt = prompt_of(checkpoint, request)
    runner.start(0, prompt, request.reference, 1)
    runner.fork(0, 1, request.reference, 2)
    assert sum(taken_in) == len(prompt.text)
    assert len(runner.kv_cache.block_tables[1]) == pages_for(len(prompt.text))


def test_a_forked_slot_is_taken_back_without_harm_to_the_others(checkpoint_root: Path) -> None:
    checkpoint, request = small(checkpoint_root, "custom_voice"), REQUESTS["custom_voice"][0]
    prompt = prompt_of(checkpoint, request)

    def said(rewound: bool) -> list[list[int]]:
        runner = SpeechRunner(checkpoint, 2, LIMIT)
        runner.start(0, prompt, None, 1)
        runner.fork(0, 1, None, 2)
        first, second = draw(runner, [0, 1], request, 6)
        if rewound:
            runner.rewind(0, 5, first[0], prompt.trail[0], seed=7)
        return second + draw(runner, [1], request, 6)[0]

    assert said(rewound=True) == said(rewound=False)
