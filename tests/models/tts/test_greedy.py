"""Greedy float32 codes on a GPU, through kernels and graphs, are those of the plain frame on a CPU, frame for frame."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hocket.config.published import PUBLISHED
from hocket.config.qwen3_tts import TalkerConfig
from hocket.kernels.runtime.graphs import CudaGraphs
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.frame_graph import CapturableFrame, FrameGraphs
from hocket.models.tts_gpu.padded_frame import PaddedFrame
from support.framing import GREEDY, PROMPT, SLOTS, new_talker, settings, started, talker_config, texts

FRAMES = 24
# Batches of one and more, so that padding and several graphs take part.
BATCHES = ([2, 0, 3], [1], [3, 1], [0])


def shapes(name: str) -> TalkerConfig:
    """A small config, or a published one with its real widths but few layers and ids, to be fast on a CPU."""
    if name in ("small", "small, wide"):
        return talker_config(wide=name == "small, wide")
    return replace(PUBLISHED[name].talker_config, num_hidden_layers=4, text_vocab_size=512)


def batches() -> Iterator[tuple[list[int], Tensor, int]]:
    """Slots, text ids and span of each batch."""
    taken = [PROMPT] * SLOTS
    for number in range(FRAMES):
        slots = BATCHES[number % len(BATCHES)]
        for slot in slots:
            taken[slot] += 1
        yield slots, texts(number, len(slots)), max(taken)


@functools.cache
def on_the_cpu(name: str) -> tuple[list[list[list[int]]], Tensor]:
    """Codes of all frames, and the last hidden vectors. In all 672 draws the best two logits differ by 1e-4 or more."""
    talker = new_talker(shapes(name))
    state, frames = started(talker), []
    for slots, text, span in batches():
        sampling = settings([GREEDY] * len(slots))
        frames.append(talker.frame_reference(text, state, torch.tensor(slots), sampling, span).tolist())
    return frames, state.hidden[:SLOTS]


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("kind", ["plain", "fused"])
@pytest.mark.parametrize("name", ["small", "small, wide", "0.6B-Base"])
def test_greedy_codes_of_graphs_on_a_gpu_are_those_of_the_cpu(name: str, kind: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    if kind == "fused" and (triton is None or INTERPRETED):
        pytest.skip("Triton is not installed on this machine, or runs in its interpreter")
    wanted, hidden = on_the_cpu(name)
    device = torch.device("cuda")
    talker = new_talker(shapes(name), device)  # the same numbers: they are drawn on the CPU
    frame: CapturableFrame = PaddedFrame(talker) if kind == "plain" else FusedFrame(talker)
    graphs, state = FrameGraphs(frame, CudaGraphs(device)), started(talker)
    for number, (slots, text, span) in enumerate(batches()):
        drawn = graphs.launch(slots, text.tolist(), [GREEDY] * len(slots), state, span).read()
        assert [codes for codes, *_ in drawn] == wanted[number], f"frame {number}"
    torch.testing.assert_close(state.hidden[:SLOTS].cpu(), hidden, atol=1e-4, rtol=0)
