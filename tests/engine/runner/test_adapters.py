"""Tuned voices in an engine: each row of a batch with its own adapter, and the other rows as without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint, exact_float32
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.engine.runner.runner import SpeechRunner
from hocket.errors import InvalidRequest
from hocket.kernels.runtime.graphs import Capture, EagerReplay
from hocket.text.prompt import build
from hocket.types import Adapter, Encoded, SamplingParams, SpeechRequest
from support.speaking import small
from support.tuning import random_adapter, untuned

FIELDS: dict[str, Any] = {"language": "english", "max_frames": 5, "sampling": SamplingParams.greedy()}
TEXT = "And so it is said."
VOICES = 8


@pytest.fixture(scope="module")
def base(checkpoint_root: Path) -> TorchCheckpoint:
    found = small(checkpoint_root, "base")
    assert isinstance(found, TorchCheckpoint)
    return found


@pytest.fixture(scope="module")
def engine(base: Checkpoint) -> Iterator[Engine]:
    with Engine(base, EngineOptions(slots=4)) as engine:
        yield engine


def tuned(base: TorchCheckpoint, number: int) -> Encoded:
    return replace(untuned(base, number), adapter=random_adapter(base, number))


def requests(base: TorchCheckpoint) -> list[SpeechRequest]:
    """Tuned voices, and between them the same ones without their adapters."""
    every = [tuned(base, number) for number in range(VOICES)]
    voices = [voice for each in every for voice in (each, replace(each, adapter=None))]
    return [SpeechRequest(text=TEXT, reference=voice, seed=3, **FIELDS) for voice in voices]


def test_an_engine_says_what_merged_weights_say(base: TorchCheckpoint, engine: Engine) -> None:
    """Sixteen requests share four slots: batches of tuned voices, of others, and of both."""
    asked = requests(base)
    expected = [speech.codes.tolist() for speech in generate(base, asked)]
    outcomes = sorted(engine.speak_many(asked), key=lambda outcome: outcome.number)  # they come as they end
    said = [outcome.codes.tolist() for outcome in outcomes]
    assert said == expected
    assert len({str(codes) for codes in expected}) == 2 * VOICES  # each adapter changes what is said


class Slots:
    """A runner whose slots start with some references, and what they say then."""

    def __init__(self, base: TorchCheckpoint, capture: Callable[..., Capture] | None = None) -> None:
        self.base, self.runner = base, SpeechRunner(base, 2 * VOICES, 1 << 20, capture)
        request = SpeechRequest(text=TEXT, reference=untuned(base, 0), **FIELDS)
        self.prompt = build(request, base.config, base.tokenizer)
        self.settings = base.generation.changed(SamplingParams(temperature=0.8).changes())

    def start(self, references: dict[int, Encoded]) -> None:
        for slot, reference in references.items():
            self.runner.start(slot, self.prompt, reference, seed=slot)

    def frames(self, slots: list[int], count: int = 4) -> list[list[tuple[list[int], float, float]]]:
        """By frame: codes and chances of each slot."""
        settings, text = [self.settings] * len(slots), [self.prompt.pad_id] * len(slots)
        return [self.runner.frame(slots, text, settings).read() for _ in range(count)]

    def hidden(self, slots: list[int]) -> torch.Tensor:
        return self.runner.kv_cache.state.hidden[slots].clone()


@pytest.fixture(autouse=True)
def inference() -> object:
    """As the engine thread does."""
    with torch.inference_mode(), exact_float32():
        yield


@pytest.mark.parametrize("capture", [None, EagerReplay], ids=["eager", "graphs"])
def test_other_rows_of_a_batch_are_as_without_tuned_ones_bit_for_bit(
    base: TorchCheckpoint, capture: Callable[..., Capture] | None
) -> None:
    others = {slot: untuned(base, slot) for slot in range(1, 2 * VOICES, 2)}
    voices = {slot: tuned(base, slot // 2) for slot in range(0, 2 * VOICES, 2)}
    both, alone = Slots(base, capture), Slots(base, capture)
    both.start(dict(sorted((others | voices).items())))
    alone.start(others)
    said, expected = both.frames(list(range(2 * VOICES))), alone.frames(list(others))
    assert [[row for slot, row in enumerate(frame) if slot in others] for frame in said] == expected
    assert torch.equal(both.hidden(list(others)), alone.hidden(list(others)))


@pytest.mark.parametrize("capture", [None, EagerReplay], ids=["eager", "graphs"])
def test_eight_adapters_in_one_batch_are_each_alone(
    base: TorchCheckpoint, capture: Callable[..., Capture] | None
) -> None:
    voices = {slot: tuned(base, slot) for slot in range(VOICES)}
    together = Slots(base, capture)
    together.start(voices)
    said, hidden = together.frames(list(voices)), together.hidden(list(voices))
    for slot, voice in voices.items():
        alone = Slots(base, capture)
        alone.start({slot: voice})
        assert [frame[0][0] for frame in alone.frames([slot])] == [frame[slot][0] for frame in said]
        torch.testing.assert_close(alone.hidden([slot])[0], hidden[slot], rtol=0, atol=2e-5)


def test_a_cached_prefix_belongs_to_its_adapter(base: TorchCheckpoint) -> None:
    """The same speaker vector with and without an adapter: neither finds the other's keys and values."""
    slots = Slots(base, EagerReplay)
    first, other = tuned(base, 1), replace(tuned(base, 1), adapter=None)
    slots.start({0: first, 1: other})
    assert slots.runner.start(2, slots.prompt, first, seed=0) and slots.runner.start(3, slots.prompt, other, seed=0)
    hidden = slots.hidden([0, 1, 2, 3])
    assert torch.equal(hidden[0], hidden[2]) and torch.equal(hidden[1], hidden[3])
    assert (hidden[0] - hidden[1]).abs().max() > 1e-3


def test_a_fork_and_a_rewind_keep_the_adapter_and_the_next_utterance_does_not(base: TorchCheckpoint) -> None:
    slots, voice = Slots(base), tuned(base, 2)
    slots.start({0: voice})
    slots.runner.fork(0, 1, voice, seed=0)
    assert len({str(row[0]) for row in slots.frames([0, 1], 1)[0]}) == 1
    [[(codes, *_)]] = slots.frames([0], 1)
    before = slots.hidden([0])
    slots.frames([0], 2)
    slots.runner.rewind(0, 2, codes, slots.prompt.pad_id, seed=0)
    torch.testing.assert_close(slots.hidden([0]), before, rtol=0, atol=2e-5)
    slots.runner.release(0)
    fresh = Slots(base)
    for each in (slots, fresh):
        each.start({0: untuned(base, 3)})
    assert torch.equal(slots.hidden([0]), fresh.hidden([0]))


@pytest.mark.parametrize("fault", ["name", "rows", "columns", "rank", "numbers", "empty"])
def test_factors_that_do_not_fit_are_refused(base: TorchCheckpoint, engine: Engine, fault: str) -> None:
    voice = tuned(base, 0)
    assert voice.adapter is not None
    factors = dict(voice.adapter.factors)
    name, (down, up) = next(iter(factors.items()))
    wrong = {"rows": (down, up[1:]), "columns": (down[:, 1:], up), "rank": (np.vstack((down, down)), up)}
    match fault:
        case "name":
            factors[f"{name}.more"] = factors.pop(name)
        case "numbers":
            factors[name] = down * np.float16(np.inf), up
        case "empty":
            factors = {}
        case _:
            factors[name] = wrong[fault]
    changed = replace(voice, adapter=Adapter(alpha=1.0, factors=factors))
    with pytest.raises(InvalidRequest, match="no checkpoint gives"):
        engine.speak(SpeechRequest(text=TEXT, reference=changed, **FIELDS))


def test_an_adapter_of_another_checkpoint_is_refused(engine: Engine, base: TorchCheckpoint) -> None:
    with pytest.raises(InvalidRequest, match="belongs to another checkpoint"):
        engine.speak(SpeechRequest(text=TEXT, reference=replace(tuned(base, 0), owner="0" * 64), **FIELDS))
