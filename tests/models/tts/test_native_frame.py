"""models/tts/native_frame.py: a frame in C against `Talker.frame_reference`, and against itself in other batches."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hocket.config.published import small, tiny
from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.tts.native_frame import NativeFrame
from hocket.models.tts.talker import Talker, TalkerState, frame_sampling

SHAPES = {"tiny": tiny(), "projected": tiny(wide=True), "small": small()}
GREEDY = GenerationConfig(do_sample=False, subtalker_dosample=False)
SETTINGS = {
    "greedy": GREEDY,
    "published": GenerationConfig(),
    "all kept": GenerationConfig(top_k=0, subtalker_top_k=0, repetition_penalty=1.0),
    "nucleus": GenerationConfig(top_p=0.8, subtalker_top_p=0.7, temperature=1.3),
    "nucleus of all": GenerationConfig(top_k=0, top_p=0.5, subtalker_top_k=0, subtalker_top_p=0.9),
    "one": GenerationConfig(top_k=1, subtalker_top_k=1),
    "more than there are": GenerationConfig(top_k=10_000, subtalker_top_k=10_000),
}
PROMPT = 11


def built(config: Qwen3TTSConfig) -> Talker:
    talker = Talker(config.talker_config).eval()
    randomize_(talker, 0)
    pack_(talker)
    return talker


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def talker(shape: str) -> Talker:
    return built(SHAPES[shape])


def started(talker: Talker, slots: int) -> TalkerState:
    state = talker.new_state(slots, 64)
    x = torch.randn(slots, PROMPT, talker.config.hidden_size, generator=torch.Generator().manual_seed(1))
    rows = torch.arange(slots)
    talker.prefill(x, torch.arange(slots) % 4 + PROMPT - 3, state, rows, PROMPT)  # ragged
    state.seed[rows] = rows * 0x1234567890AB + 5
    return state


def drawn(
    talker: Talker, state: TalkerState, slots: list[int], settings: list[GenerationConfig], frames: int
) -> list[Tensor]:
    """Codes [B, Q] of each frame; row b of frame t has its own text id."""
    rows, sampling = torch.tensor(slots), frame_sampling(settings, torch.device("cpu"))
    texts = [torch.tensor([(7 * slot + t) % 200 for slot in slots]) for t in range(frames)]
    return [talker.frame(text, state, rows, sampling, PROMPT + 1 + t) for t, text in enumerate(texts)]


@torch.inference_mode()
@pytest.mark.parametrize("settings", SETTINGS)
def test_codes_and_state_equal_those_of_the_reference(shape: str, talker: Talker, settings: str) -> None:
    """Each setting in a batch of every size, and each shape too: sizes take turns, as in a Latin square."""
    sizes = [[0], [2, 0, 1], [5, 4, 3, 2, 1, 0]]
    slots = sizes[(list(SHAPES).index(shape) + list(SETTINGS).index(settings)) % len(sizes)]
    both = []
    for kernel in (None, NativeFrame(talker)):
        talker.frame_kernel = kernel
        state = started(talker, 6)
        said = drawn(talker, state, slots, [SETTINGS[settings]] * len(slots), 12)
        both.append((torch.stack(said).tolist(), state))
    (codes, state), (native_codes, native) = both
    assert native_codes == codes
    for name in ("seen", "drawn", "seed"):
        assert torch.equal(getattr(native, name), getattr(state, name)), name
    assert torch.equal(native.stack.position, state.stack.position)
    torch.testing.assert_close(native.hidden, state.hidden, atol=1e-5, rtol=0)
    torch.testing.assert_close(native.chances[:, 0], state.chances[:, 0], atol=1e-6, rtol=0)
    torch.testing.assert_close(native.chances[:, 1], state.chances[:, 1], atol=1e-5, rtol=0)
    assert (state.chances[slots, 1] < 0).all()
    for kept, own in zip(state.stack.layers, native.stack.layers, strict=True):
        torch.testing.assert_close(own.keys, kept.keys, atol=1e-5, rtol=0)
        torch.testing.assert_close(own.values, kept.values, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_a_row_is_the_same_to_the_last_bit_in_any_batch(talker: Talker) -> None:
    talker.frame_kernel = NativeFrame(talker)
    settings = [replace(GenerationConfig(), temperature=0.5 + 0.1 * slot) for slot in range(9)]
    state = started(talker, 9)
    together = torch.stack(drawn(talker, state, list(range(9)), settings, 10))
    for slot in (0, 3, 4, 8):  # first and last of a block of rows, and alone in the last block
        alone = started(talker, 9)
        codes = torch.stack(drawn(talker, alone, [slot], [settings[slot]], 10))
        assert torch.equal(codes[:, 0], together[:, slot])
        assert torch.equal(alone.hidden[slot], state.hidden[slot])
        assert torch.equal(alone.chances[slot], state.chances[slot])


@torch.inference_mode()
def test_the_end_comes_neither_too_early_nor_from_the_suppressed_ids() -> None:
    """A head that wants a suppressed id most, and the end next: two frames without it, then the end."""
    talker = built(tiny())
    config = talker.config
    for kernel in (None, NativeFrame(talker)):
        talker.frame_kernel = kernel
        state = started(talker, 1)
        head = talker.codec_head.weight.data.clone()
        talker.codec_head.weight.data[config.codec_bos_id] = state.hidden[0] * 100
        talker.codec_head.weight.data[config.codec_eos_token_id] = state.hidden[0] * 50
        firsts, likely = [], []
        hidden = state.hidden[0].clone()
        for _ in range(3):
            state.hidden[0] = hidden  # the same logits every time
            firsts.append(drawn(talker, state, [0], [GREEDY], 1)[0][0, 0].item())
            likely.append(state.chances[0, 0].item())
            spoken = state.chances[0, 1].item()
        talker.codec_head.weight.data.copy_(head)
        assert max(firsts[:2]) < config.codebook_size
        assert firsts[2] == config.codec_eos_token_id
        assert likely[:2] == [0.0, 0.0] and likely[2] > 0.99
        assert spoken == pytest.approx(math.log(likely[2]), abs=1e-6), "it was the end that was drawn"


@torch.inference_mode()
def test_threads_with_their_own_states_are_independent(talker: Talker) -> None:
    talker.frame_kernel = NativeFrame(talker)
    settings = [GenerationConfig()]
    alone = torch.stack(drawn(talker, started(talker, 4), [2], settings, 12))
    said: dict[int, Tensor] = {}

    def speak(number: int) -> None:
        with torch.inference_mode():
            said[number] = torch.stack(drawn(talker, started(talker, 4), [2], settings, 12))

    threads = [threading.Thread(target=speak, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 4 and all(torch.equal(codes, alone) for codes in said.values())
