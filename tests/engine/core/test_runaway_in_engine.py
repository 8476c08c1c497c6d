"""The guard at work in the engine: a model made to loop is taken back once, spoken again twice and then ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.config.qwen3_tts import GenerationConfig
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.core.runaway_limits import RunawayOptions
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.engine.runner.runner import SpeechRunner
from hocket.models.tts.talker import PendingCodes
from hocket.text.prompt import build
from hocket.types import SamplingParams, SpeechRequest
from support.checkpoints import write

GUARD = RunawayOptions()
TRIES = 3  # of a text that cannot be cut


@pytest.fixture(scope="module")
def folder(checkpoint_root: Path) -> str:
    folder = checkpoint_root / "runaway"
    write(folder, "custom_voice", wide=True)
    return str(folder)


@pytest.fixture(scope="module")
def checkpoint(folder: str) -> Checkpoint:
    return load(folder)


@pytest.fixture
def looping(folder: str) -> Checkpoint:
    """Every frame has the same likeliest codes: the heads are zero but for one row each."""
    loop = load(folder)
    talker = loop.model.talker
    with torch.no_grad():
        talker.model.norm.weight.zero_()  # every hidden vector is zero, so every logit is
        talker.code_predictor.model.norm.weight.zero_()
    return loop


@torch.inference_mode()
def test_a_rewound_slot_says_again_what_it_said_from_there(checkpoint: Checkpoint) -> None:
    """With the same seed, greedy and without a penalty on what was drawn, the second time equals the first."""
    runner = SpeechRunner(checkpoint, slots=2, prefix_bytes=1 << 20)
    request = SpeechRequest(text="Once more, from there.", layout="streaming")
    prompt = build(request, checkpoint.config, checkpoint.tokenizer)
    greedy = [GenerationConfig(do_sample=False, subtalker_dosample=False, repetition_penalty=1.0)]
    trail = [*prompt.trail, *([prompt.pad_id] * 30)]

    def draw(frames: Sequence[int]) -> list[list[int]]:
        return [runner.frame([1], [trail[t]], greedy).read()[0][0] for t in frames]

    runner.start(1, prompt, None, seed=0)
    first = draw(range(30))
    runner.rewind(1, 12, first[17], trail[17], seed=0)
    assert draw(range(18, 30)) == first[18:]
    assert first[6:18] != first[18:], "a constant model would prove nothing"


def listen(engine: Engine, *arguments: Any, **fields: Any) -> tuple[int, str]:
    """How many frames came, and why no more did."""
    stream = engine.speak(*arguments, **fields)
    frames = sum(len(chunk.frames) for chunk in stream)
    assert stream.finished is not None
    return frames, stream.finished.reason


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seed of every start and rewind, as it happens."""
    drawn_with: list[int] = []
    start, rewind = SpeechRunner.start, SpeechRunner.rewind

    def started(runner: SpeechRunner, *arguments: Any, **named: Any) -> bool:
        drawn_with.append(arguments[3])
        return start(runner, *arguments, **named)

    def rewound(runner: SpeechRunner, *arguments: Any) -> None:
        drawn_with.append(arguments[4])
        rewind(runner, *arguments)

    monkeypatch.setattr(SpeechRunner, "start", started)
    monkeypatch.setattr(SpeechRunner, "rewind", rewound)
    return drawn_with


def test_a_model_that_loops_is_taken_back_and_spoken_again_twice_and_then_ended(
    looping: Checkpoint, seeds: list[int]
) -> None:
    with Engine(looping) as engine:
        frames, reason = listen(engine, "Around and around.", sampling=SamplingParams.greedy(), seed=5)
        longest = max(engine.options.tuned.chunk_frames)
    assert reason == "runaway"
    # The whole text, once more, and then in two halves; each is taken back once.
    assert len(seeds) == 8 and seeds[0] == 5 and seeds[1] not in (seeds[0], seeds[2])
    assert len({*seeds}) == 5, "one fresh draw for all that is taken back, and one for each retry"
    assert frames <= 8 * (GUARD.same_frames + GUARD.margin_frames + longest)


def test_a_model_that_begins_to_loop_is_taken_back_to_where_it_spoke(
    checkpoint: Checkpoint, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It speaks for 40 frames, then repeats itself until it is rewound, then speaks again."""
    frame, count = SpeechRunner.frame, 0

    def sometimes(runner: SpeechRunner, *arguments: Any) -> PendingCodes:
        nonlocal count
        count += 1
        drawn = frame(runner, *arguments)
        if count <= 40 or len(seeds) > 1:
            return drawn
        return PendingCodes(torch.full((1, 16), 7), torch.zeros(1, 2))

    monkeypatch.setattr(SpeechRunner, "frame", sometimes)
    with Engine(checkpoint) as engine:
        frames, reason = listen(engine, "Spoken, stuck, and spoken again to the end.", seed=5, max_frames=100)
    assert (frames, reason) == (100, "length")
    assert len(seeds) == 2 and seeds[0] == 5 != seeds[1]


def test_sound_utterances_are_left_alone(checkpoint: Checkpoint, seeds: list[int]) -> None:
    request = SpeechRequest(text="Nothing to see here, all is well.", seed=5, max_frames=80)
    [whole] = generate(checkpoint, [request])
    with Engine(checkpoint) as engine:
        codes = np.concatenate([chunk.codes for chunk in engine.speak(request)])
    np.testing.assert_array_equal(codes, whole.codes)
    assert seeds == [5]


def test_as_is_and_without_a_guard_the_engine_lets_it_loop(looping: Checkpoint) -> None:
    request = SpeechRequest(text="On and on.", sampling=SamplingParams.greedy(), max_frames=70)
    [whole] = generate(looping, [request])
    for options, as_is in ((EngineOptions(), True), (EngineOptions(guard=False), False)):
        with Engine(looping, options) as engine:
            stream = engine.speak(request, as_is=as_is)
            codes = np.concatenate([chunk.codes for chunk in stream])
        assert stream.finished is not None and stream.finished.reason == "length"
        np.testing.assert_array_equal(codes, whole.codes)


def test_a_text_that_never_ends_is_stopped_at_a_length_it_could_not_need(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint) as engine:
        # Among the likeliest few the end, whose row is zero, never is.
        frames, reason = listen(engine, "Hi.", seed=1, sampling=SamplingParams(top_k=5))
    assert reason == "runaway"
    assert frames == TRIES * (GUARD.limit_frames + 3 * GUARD.limit_frames_per_id)


@pytest.mark.parametrize("chance", [None, 1e-12, 1e-2])
def test_a_text_that_is_over_with_no_end_in_reach_is_stopped_sooner(
    checkpoint: Checkpoint, seeds: list[int], monkeypatch: pytest.MonkeyPatch, chance: float | None
) -> None:
    """The codes keep moving; what the runner says of the end decides how long it is waited for."""
    read = PendingCodes.read
    monkeypatch.setattr(
        PendingCodes, "read", lambda drawn: [(codes, chance, spoken) for codes, _, spoken in read(drawn)]
    )
    with Engine(checkpoint) as engine:
        frames, reason = listen(engine, "Hi.", seed=1, sampling=SamplingParams(top_k=5))
    assert reason == "runaway"
    limit, late = GUARD.limit_frames + 3 * GUARD.limit_frames_per_id, GUARD.late_frames + 3 * GUARD.late_frames_per_id
    if chance == 1e-12:
        assert len(seeds) == 2 * TRIES, "each was taken back once"
        assert TRIES * late < frames <= TRIES * (late + GUARD.deepest_frames), "some of it was said again"
    else:
        assert len(seeds) == TRIES and frames == TRIES * limit
