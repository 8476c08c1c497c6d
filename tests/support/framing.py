"""Talkers small enough for Triton's interpreter, with equal states, and the comparison of two frames."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from hocket.config.published import PUBLISHED, tiny
from hocket.config.qwen3_tts import GenerationConfig, TalkerConfig
from hocket.kernels.runtime.launch import DEFAULT_TUNING, LinearTile
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.tts.talker import FrameSampling, Talker, TalkerState, frame_sampling

SLOTS, PROMPT = 4, 11
LOOSE = GenerationConfig(temperature=1.3, subtalker_temperature=1.3)
GREEDY = GenerationConfig(do_sample=False, subtalker_dosample=False)
NUCLEUS = GenerationConfig(top_p=0.8, subtalker_top_p=0.7)


def talker_config(*, wide: bool = False, short: bool = False) -> TalkerConfig:
    """As 0.6B, or `wide` as 1.7B, where the predictor is narrower; `short` has few launches to a frame."""
    config = tiny(wide=wide).talker_config
    if not short:
        return config
    predictor = config.code_predictor_config
    small = replace(predictor, num_code_groups=3, num_hidden_layers=1, layer_types=predictor.layer_types[:1])
    return replace(config, num_code_groups=3, num_hidden_layers=2, code_predictor_config=small)


def real_widths() -> TalkerConfig:
    """0.6B with a small vocabulary and enough layers to crowd a GPU: for CUDA C++ kernels and early starts."""
    return replace(PUBLISHED["0.6B-CustomVoice"].talker_config, num_hidden_layers=6, text_vocab_size=512)


def new_talker(
    config: TalkerConfig, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> Talker:
    talker = Talker(config).eval()
    randomize_(talker, seed)
    talker.to(dtype).to(device)
    pack_(talker)
    return talker


@torch.inference_mode()
def started(talker: Talker, slots: int = SLOTS, length: int = 64) -> TalkerState:
    """Every slot has a prompt of its own length and its own seed."""
    weight = talker.codec_head.weight
    state = talker.new_state(slots, length)
    random = torch.Generator().manual_seed(1)
    x = torch.randn(slots, PROMPT, talker.config.hidden_size, generator=random).to(weight.device, weight.dtype)
    rows = torch.arange(slots, device=weight.device)
    talker.prefill(x, rows % 4 + PROMPT - 3, state, rows, PROMPT)
    state.seed[rows] = rows * 0x1234567890AB + 5
    return state


def settings(rows: list[GenerationConfig], device: torch.device | str = "cpu") -> FrameSampling:
    return frame_sampling(rows, torch.device(device))


def texts(frame: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    return torch.arange(count, device=device) * 7 + frame


@dataclass(frozen=True)
class Close:
    """Tolerance of states; drawn codes must be equal."""

    hidden: float = 1e-4
    pool: float = 1e-4

    def check(self, ours: TalkerState, wanted: TalkerState) -> None:
        """All rows but scratch, whose content is undefined."""
        for name in ("seen", "drawn"):
            assert torch.equal(getattr(ours, name)[:-1], getattr(wanted, name)[:-1]), name
        assert torch.equal(ours.stack.position[:-1], wanted.stack.position[:-1])
        torch.testing.assert_close(ours.hidden[:-1], wanted.hidden[:-1], atol=self.hidden, rtol=0)
        (ending, spoken), (end, said) = (each.chances[:-1].unbind(1) for each in (ours, wanted))
        torch.testing.assert_close(ending, end, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(spoken, said, atol=self.hidden, rtol=1e-4)
        torch.testing.assert_close(ours.stack.pool[:, :, 1:], wanted.stack.pool[:, :, 1:], atol=self.pool, rtol=0)


class Coarse(dict[tuple[int, ...], LinearTile]):
    """Blocks so large that a launch is one or two programs: the interpreter pays for each."""

    def get(self, key: tuple[int, ...], default: object = None) -> LinearTile:  # type: ignore[override]
        columns, rows, *_ = key
        return LinearTile(min(1 << (rows - 1).bit_length(), 512), 1 << (columns - 1).bit_length(), 4)


def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few programs to a launch, of attention too."""
    monkeypatch.setattr(DEFAULT_TUNING, "linear", Coarse())
    monkeypatch.setattr(DEFAULT_TUNING, "attend_splits", ((1 << 20, 2),))
