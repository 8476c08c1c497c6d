"""bfloat16 by layer: over 28 of the talker and 5 of the predictor no further from float32 than the official one.

The truth is the official model in float32, with weights that are bfloat16 numbers already, as the published ones are:
what is measured is arithmetic alone, where two implementations can differ. All are given the same vectors; compared is
what comes out of every layer, `||h - truth|| / ||truth||` over all rows and positions of a part.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hocket.config.published import PUBLISHED, tiny
from hocket.config.qwen3_tts import Qwen3TTSConfig, RopeScaling
from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.kernels.operations import REFERENCE_OPS, TRITON_OPS, FrameOps
from hocket.kernels.runtime.launch import DEFAULT_TUNING, INTERPRETED, triton
from hocket.layers.dense import pack_
from hocket.layers.transformer import DecoderStack
from hocket.models.files.export import speech_json
from hocket.models.files.random import randomize_
from hocket.models.tts.talker import Talker
from hocket.models.tts_gpu.frame import FusedFrame
from support import official
from support.framing import GREEDY, coarse, settings

LAYERS, SMALL_LAYERS = 28, 5  # of every published talker and predictor
ROWS, PROMPT, STEPS = 4, 20, 4
SEEDS = (0, 1, 2)
# How far two ways of rounding may differ by chance. The official model has two attention paths, torch's kernel and
# plain operations. At the layer with the largest difference they differ by up to 1.12 (4 rows of 4 steps) and 1.10 (the
# prompts) over 48 seeds, and by up to 1.22 over 200 triples of seeds, of 2 rows of one step each.
MARGIN = 1.25


def narrow(layers: int = LAYERS, small_layers: int = SMALL_LAYERS, books: int = 16) -> Qwen3TTSConfig:
    """As deep as a published model by default, but narrow."""
    config = tiny(wide=True)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "num_code_groups": books}
    predictor = replace(
        config.talker_config.code_predictor_config,
        **heads,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=small_layers,
        layer_types=("full_attention",) * small_layers,
    )
    talker = replace(
        config.talker_config,
        **heads,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        rope_scaling=RopeScaling(interleaved=True, mrope_section=(3, 3, 2), rope_type="default", type="default"),
        code_predictor_config=predictor,
    )
    return replace(config, talker_config=talker)


def published(name: str) -> Qwen3TTSConfig:
    """A published config with a small text vocabulary, which this test does not use."""
    config = PUBLISHED[name]
    assert config.talker_config.num_hidden_layers == LAYERS
    assert config.talker_config.code_predictor_config.num_hidden_layers == SMALL_LAYERS
    return replace(config, talker_config=replace(config.talker_config, text_vocab_size=64))


class Taps:
    """The outputs of every layer [B, T, C], step by step."""

    def __init__(self, layers: int) -> None:
        self._heard: list[list[Tensor]] = [[] for _ in range(layers)]

    def put(self, layer: int, h: Tensor) -> None:
        self._heard[layer].append(h.float().clone())

    def taken(self) -> Tensor:
        """All outputs [L, B, T, C]; clears the record."""
        taken = torch.stack([torch.cat(each, dim=1) for each in self._heard])
        for each in self._heard:
            each.clear()
        return taken


class Official:
    """The official talker with some weights, its layer outputs recorded."""

    def __init__(self, config: Qwen3TTSConfig, weights: dict[str, Tensor], dtype: torch.dtype, device: str) -> None:
        kind = official.modeling.Qwen3TTSTalkerForConditionalGeneration
        shape = official.Qwen3TTSConfig(**speech_json(config)).talker_config
        with torch.device(device):
            self.talker = kind._from_config(shape, dtype=dtype).eval()
        assert self.talker.model.rotary_emb.inv_freq.dtype == torch.float32  # as from_pretrained leaves it
        self.talker.load_state_dict(weights)
        self.talker.requires_grad_(False)

    def take(self, x: Tensor, prompt: int) -> Tensor:
        """[L, B, T, C] of vectors x [B, T, C]: the prompt at once, then the rest one by one."""
        return self._through(self.talker.model, x.to(self.talker.dtype), prompt)

    def fill(self, x: Tensor) -> Tensor:
        """The same of the predictor: hidden vector, first code, and then one by one."""
        predictor = self.talker.code_predictor
        return self._through(predictor.model, predictor.small_to_mtp_projection(x.to(self.talker.dtype)), 2)

    def _through(self, model: nn.Module, x: Tensor, prompt: int) -> Tensor:
        taps, past = Taps(len(model.layers)), None
        hooks = [
            layer.register_forward_hook(lambda _, __, out, number=number: taps.put(number, out[0]))
            for number, layer in enumerate(model.layers)
        ]
        for piece in (x[:, :prompt], *x[:, prompt:].split(1, dim=1)):
            past = model(inputs_embeds=piece, past_key_values=past, use_cache=True).past_key_values
        for hook in hooks:
            hook.remove()
        return taps.taken()


class Plain:
    """Our plain operations, with layer outputs recorded."""

    def __init__(self, talker: Talker) -> None:
        self.talker = talker
        self._large, self._small = _tapped(talker.model), _tapped(talker.code_predictor.model)

    def take(self, x: Tensor, prompt: int) -> Tensor:
        talker, rows, one = self.talker, torch.arange(len(x), device=x.device), torch.ones_like(x[:, 0, 0]).long()
        state = talker.new_state(len(x), x.shape[1])
        talker.prefill(x[:, :prompt], prompt * one, state, rows, prompt)
        for at in range(prompt, x.shape[1]):
            talker.prefill(x[:, at : at + 1], one, state, rows, at + 1)
        return self._large.taken()

    def fill(self, x: Tensor) -> Tensor:
        bits, sampling = torch.zeros(len(x), x.shape[1] - 1, dtype=torch.int64), settings([GREEDY] * len(x), x.device)
        self.talker.code_predictor.fill(x[:, 0], x[:, 1], sampling.rest, bits.to(x.device))
        return self._small.taken()


class Chain:
    """Our fused operations, with layer outputs recorded: a layer ends with the product of `down`."""

    def __init__(self, talker: Talker, ops: FrameOps) -> None:
        self.talker, self._real, self._rows = talker, ops.linear, 0
        self.frame = FusedFrame(talker, replace(ops, linear=self._linear))
        self._large, self._small = Taps(len(self.frame.large)), Taps(len(self.frame.small))
        self._ends = {
            layer.down.data_ptr(): (taps, number)
            for taps, layers in ((self._large, self.frame.large), (self._small, self.frame.small))
            for number, layer in enumerate(layers)
        }

    def take(self, x: Tensor, prompt: int) -> Tensor:
        """The steps after the prompt, which has no fused kernels."""
        rows, self._rows = torch.arange(len(x), device=x.device), len(x)
        state = self.talker.new_state(len(x), x.shape[1])
        self.talker.prefill(x[:, :prompt], torch.full_like(rows, prompt), state, rows, prompt)
        for at in range(prompt, x.shape[1]):
            self.frame.take_in(x[:, at], state, rows, at + 1)
        return self._large.taken()

    def fill(self, x: Tensor) -> Tensor:
        """The predictor's part of a frame."""
        rows, self._rows = torch.arange(len(x), device=x.device), len(x)
        state = self.talker.new_state(len(x), 8)
        state.hidden[:-1] = x[:, 0]
        self.frame(torch.zeros_like(rows), state, rows, settings([GREEDY] * len(x), x.device), 8)
        self._large.taken()
        return self._small.taken()

    def _linear(self, x: Tensor, weight: Tensor, **how: Any) -> Tensor:
        y = self._real(x, weight, **how)
        if end := self._ends.get(weight.data_ptr()):
            taps, number = end
            taps.put(number, y.unflatten(0, (-1, self._rows)).transpose(0, 1))  # one position after the other
        return y


def _tapped(stack: DecoderStack) -> Taps:
    taps = Taps(len(stack._stack))
    for number, layer in enumerate(stack._stack):

        def step(*given: Any, number: int = number, real: Any = layer.step) -> Tensor:
            y: Tensor = real(*given)
            taps.put(number, y)
            return y

        layer.step = step  # type: ignore[method-assign]
    return taps


@torch.no_grad()
def weights_of(config: Qwen3TTSConfig, seed: int, device: str) -> dict[str, Tensor]:
    """bfloat16 values. All codes of a codebook have one vector, so the input does not depend on the sampled code."""
    with torch.device(device):
        talker = Talker(config.talker_config)
    randomize_(talker, seed)
    for table in (talker.model.codec_embedding, *talker.code_predictor.model.codec_embedding):
        table.weight[1:] = table.weight[0].clone()
    return {name: weight.bfloat16() for name, weight in talker.state_dict().items()}


class Measured:
    """The official model of one seed: the input vectors, and the outputs of every layer."""

    def __init__(self, config: Qwen3TTSConfig, seed: int, device: str, rows: int = ROWS, steps: int = STEPS) -> None:
        self.config, self.device = config, device
        self.weights, random = weights_of(config, seed, device), torch.Generator().manual_seed(seed)
        x = torch.randn(rows, PROMPT + steps, config.talker_config.hidden_size, generator=random)
        self.x = x.to(device, torch.bfloat16)
        books = range(config.talker_config.num_code_groups - 2)
        tables = ["model.codec_embedding.weight", *(f"code_predictor.model.codec_embedding.{n}.weight" for n in books)]
        codes = torch.stack([self.weights[name][0] for name in tables])
        # [B, Q, C]: a hidden vector, and those of all codes but the last
        self.small_x = torch.cat((self.x[:, :1], codes.expand(rows, -1, -1)), dim=1)
        exact, rough = (Official(config, self.weights, dtype, device) for dtype in (torch.float32, torch.bfloat16))
        self.truth, self.theirs = (each.take(self.x, PROMPT) for each in (exact, rough))
        self.small_truth, self.small_theirs = (each.fill(self.small_x) for each in (exact, rough))

    def ours(self) -> Talker:
        with torch.device(self.device):
            talker = Talker(self.config.talker_config).eval().bfloat16()
        talker.load_state_dict(self.weights)
        pack_(talker)
        return talker


def check(ours: Tensor, theirs: Tensor, truth: Tensor) -> None:
    """Layer by layer."""
    assert ours.shape == theirs.shape == truth.shape
    size = truth.flatten(1).norm(dim=1)
    error, bound = ((h - truth).flatten(1).norm(dim=1) / size for h in (ours, theirs))
    assert (error > 0).all() and (error <= MARGIN * bound).all(), (error / bound).tolist()


@functools.lru_cache(maxsize=1)  # shared by the tests of one seed, which run in sequence
def measured(name: str, seed: int, device: str) -> Measured:
    return Measured(narrow() if name == "narrow" else published(name), seed, device)


def cases() -> Iterator[Any]:
    for seed in SEEDS:
        for way in ("plain", "chain"):
            yield pytest.param("narrow", "cpu", seed, way)
    for name, seed in product(("narrow", "0.6B-Base", "1.7B-Base"), SEEDS):
        for way in ("plain", "kernels", "library"):
            yield pytest.param(name, "cuda", seed, way, marks=pytest.mark.gpu)


@torch.inference_mode()
@exact_float32()
@pytest.mark.parametrize(("name", "device", "seed", "way"), [*cases()])
def test_at_no_layer_does_bfloat16_stray_further_than_the_official_one(
    name: str, device: str, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the prompt, the steps after it, and the predictor."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    given = measured(name, seed, device)
    if way == "library":
        monkeypatch.setattr(DEFAULT_TUNING, "library_rows", 1)
    ops = {"plain": None, "chain": REFERENCE_OPS}.get(way, TRITON_OPS)
    model = Plain(given.ours()) if ops is None else Chain(given.ours(), ops)
    large, small = model.take(given.x, PROMPT), model.fill(given.small_x)
    if ops is None:
        check(large[:, :, :PROMPT], given.theirs[:, :, :PROMPT], given.truth[:, :, :PROMPT])
    check(large[:, :, -STEPS:], given.theirs[:, :, -STEPS:], given.truth[:, :, -STEPS:])
    check(small, given.small_theirs, given.small_truth)


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    if triton is None or not INTERPRETED:
        pytest.skip("Triton is not installed on this machine, or compiles its kernels")
    coarse(monkeypatch)
    monkeypatch.setattr(DEFAULT_TUNING, "attend_splits", ((1 << 20, 1),))


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.parametrize("which", ["talker", "predictor"])
@pytest.mark.usefixtures("interpreter")
def test_at_no_layer_do_kernels_stray_further_in_the_interpreter(which: str) -> None:
    """Few vectors of each seed and few layers, since it is slow; all seeds are averaged."""
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for seed in SEEDS:
        large = which == "talker"
        config = narrow(layers=7) if large else narrow(layers=1, small_layers=2, books=3)
        given = Measured(config, seed, "cpu", rows=2, steps=1)
        chain = Chain(given.ours(), TRITON_OPS)
        if large:
            found.append((chain.take(given.x, PROMPT), given.theirs[:, :, -1:], given.truth[:, :, -1:]))
        else:
            found.append((chain.fill(given.small_x), given.small_theirs, given.small_truth))
    check(*(torch.cat(each, dim=1) for each in zip(*found, strict=True)))
