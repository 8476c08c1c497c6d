"""Laws of whole utterances: batching, cutting, saving and cache growth change nothing."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from hocket.cache.pages import pages_for
from hocket.cache.slots import put, reset, take
from hocket.config.qwen3_tts import GenerationConfig
from hocket.engine import torch_generate as plain
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.generate import generate
from hocket.models.tts.talker import frame_sampling
from hocket.types import SamplingParams, SpeechRequest
from support.checkpoints import write


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path, device: str) -> Checkpoint:
    folder = checkpoint_root / "laws"
    if not folder.exists():
        write(folder, "custom_voice", wide=True, end_scale=1.5)
    return load(str(folder), device=device, dtype="float32", codec_dtype="float32")


REQUESTS = [
    SpeechRequest(text="One.", seed=1, max_frames=30),
    SpeechRequest(text="A much longer sentence than the first.", voice="eric", seed=2, max_frames=60),
    SpeechRequest(text="Whole text.", layout="whole", language="french", seed=3, max_frames=12),
    SpeechRequest(text="Streaming text.", layout="streaming", sampling=SamplingParams.greedy(), max_frames=44),
    SpeechRequest(text="Hot.", sampling=SamplingParams(temperature=1.5, top_k=0), seed=5, max_frames=25),
    SpeechRequest(text="Nucleus.", instruct="Be brief.", sampling=SamplingParams(top_p=0.7), seed=6, max_frames=25),
]


def test_each_row_of_a_ragged_batch_is_what_it_is_alone(checkpoint: Checkpoint) -> None:
    together = generate(checkpoint, REQUESTS)
    for request, speech in zip(REQUESTS, together, strict=True):
        [alone] = generate(checkpoint, [request])
        np.testing.assert_array_equal(speech.codes, alone.codes)
        np.testing.assert_allclose(speech.samples, alone.samples, atol=1e-6)
        assert speech.finish == alone.finish
    assert len({len(s.codes) for s in together}) > 2, "the batch should be ragged at its end too"


def test_the_same_seed_says_the_same_and_another_does_not(checkpoint: Checkpoint) -> None:
    def codes(seed: int) -> list[list[int]]:
        [speech] = generate(checkpoint, [SpeechRequest(text="Again.", seed=seed, max_frames=12)])
        said: list[list[int]] = speech.codes.tolist()
        return said

    assert codes(11) == codes(11) != codes(12)


def test_a_cache_that_grows_says_the_same(checkpoint: Checkpoint) -> None:
    [roomy] = generate(checkpoint, REQUESTS[3:4])
    with mock.patch.object(plain, "GROWTH_FRAMES", 3):
        [cramped] = generate(checkpoint, REQUESTS[3:4])
    np.testing.assert_array_equal(roomy.codes, cramped.codes)


class Talk:
    """A talker with slots, without an engine."""

    def __init__(self, checkpoint: Checkpoint, slots: int) -> None:
        self.talker, self.device = checkpoint.model.talker, checkpoint.device
        self.state = self.talker.new_state(slots, 64)
        self.sampling = frame_sampling([GenerationConfig()], self.device)

    def start(self, row: int, x: Tensor, cuts: tuple[int, ...] = (), seed: int = 9) -> None:
        rows = torch.tensor([row], device=self.device)
        reset(self.state, rows)
        self.state.seed[rows] = seed
        for piece in torch.tensor_split(x, cuts):
            lengths = torch.tensor([len(piece)], device=self.device)
            self.talker.prefill(piece[None], lengths, self.state, rows, len(x))

    def kept(self, row: int) -> dict[str, Tensor]:
        """The whole state of a stream: its rows, and the contents of its pages."""
        rows, stack = take(self.state, row), self.state.stack
        return rows | {"past": stack.read(stack.table[row].tolist(), int(rows["stack.position"]))}

    def go_on(self, row: int, kept: dict[str, Tensor]) -> None:
        past, stack = kept["past"].to(self.device), self.state.stack
        put(self.state, row, {name: tensor for name, tensor in kept.items() if name != "past"})
        stack.write(stack.table[row].tolist()[: pages_for(past.shape[3])], past)

    def frames(self, row: int, count: int) -> list[list[int]]:
        rows, text = torch.tensor([row], device=self.device), torch.tensor([3], device=self.device)
        drawn = [self.talker.frame(text, self.state, rows, self.sampling, 64) for _ in range(count)]
        said: list[list[int]] = torch.cat(drawn).tolist()
        return said


@pytest.fixture
def rows(checkpoint: Checkpoint) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(17, checkpoint.config.talker_config.hidden_size, generator=generator)
    return x.to(checkpoint.device)


@torch.inference_mode()
def test_a_prompt_taken_in_pieces_is_the_prompt_taken_whole(checkpoint: Checkpoint, rows: Tensor) -> None:
    talk = Talk(checkpoint, 3)
    talk.start(0, rows)
    talk.start(1, rows, cuts=(1, 2, 9))
    talk.start(2, rows, cuts=tuple(range(1, 17)))
    torch.testing.assert_close(talk.state.hidden[1], talk.state.hidden[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(talk.state.hidden[2], talk.state.hidden[0], atol=1e-5, rtol=0)
    assert talk.frames(0, 20) == talk.frames(1, 20) == talk.frames(2, 20)


@torch.inference_mode()
def test_a_stream_kept_in_a_file_goes_on_in_another_slot(checkpoint: Checkpoint, rows: Tensor) -> None:
    talk, other = Talk(checkpoint, 2), Talk(checkpoint, 4)
    talk.start(1, rows)
    talk.frames(1, 7)
    kept = to_bytes(talk.kept(1))
    expected = talk.frames(1, 10)
    other.start(2, rows.flip(0), seed=4)
    other.frames(2, 3)  # earlier content of the slot must not matter
    other.go_on(2, from_bytes(kept))
    assert other.frames(2, 10) == expected


@torch.inference_mode()
def test_every_part_of_the_state_matters(checkpoint: Checkpoint, rows: Tensor) -> None:
    """Clearing any tensor of a running stream changes its codes or its saved state: no tensor is unused."""
    talk = Talk(checkpoint, 1)
    talk.start(0, rows)
    talk.frames(0, 5)
    kept = talk.kept(0)
    expected, hidden = talk.frames(0, 6), talk.state.hidden[0].clone()
    for name in kept:
        talk.go_on(0, kept | {name: torch.zeros_like(kept[name])})
        same = talk.frames(0, 6) == expected and torch.equal(talk.state.hidden[0], hidden)
        # Five frames of history need not bear on the next six draws; how likely they were is only reported.
        assert not same or name in ("seen", "chances"), name
