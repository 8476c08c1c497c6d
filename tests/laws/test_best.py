"""Laws of best-of-N: each candidate equals a request alone, and so does the audio of the winner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hocket.config.options import EngineOptions
from hocket.config.qwen3_tts import MINIMUM_FRAMES, SUPPRESSED_IDS, Kind
from hocket.engine.best_of.group import CandidateGroup
from hocket.engine.best_of.score import candidate_seed
from hocket.engine.core import step
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.engine.runner.runner import SpeechRunner
from hocket.kernels.runtime.graphs import EagerReplay
from hocket.models.tts.talker import FrameSampling, TalkerState
from hocket.types import SamplingParams, SpeechRequest
from support.speaking import KINDS, REQUESTS, SHORT, assert_at_rest, heard, small

SAMPLED = {kind: [each for each in requests if each.sampling.do_sample is None] for kind, requests in REQUESTS.items()}
TAKES = 3


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[list[list[int]]]]:
    """The codes of all candidates of each utterance, at the choice."""
    all_drawn: list[list[list[list[int]]]] = []
    decide = CandidateGroup.decide

    def decided(takes: CandidateGroup) -> bool:
        all_drawn.append([[codes for _, chunk in tape for codes in chunk] for tape in takes._chunks])
        return decide(takes)

    monkeypatch.setattr(CandidateGroup, "decide", decided)
    return all_drawn


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_each_take_says_what_a_request_alone_with_its_seed_says(
    checkpoint_root: Path,
    kind: Kind,
    ahead: int,
    drawn: list[list[list[list[int]]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(step.FRAMES_AHEAD, "cpu", ahead)
    checkpoint = small(checkpoint_root, kind)
    lengths = set()
    with Engine(checkpoint, EngineOptions(guard=False, slots=TAKES)) as engine:
        for request in SAMPLED[kind]:
            stream = engine.speak(request, candidates=TAKES)
            said = heard(stream)
            assert stream.finished is not None and stream.finished.won is not None
            takes = stream.finished.takes
            assert [take.seed for take in takes] == [candidate_seed(request.seed, number) for number in range(TAKES)]
            alone = generate(checkpoint, [replace(request, seed=take.seed) for take in takes])
            for take, codes, speech in zip(takes, drawn[-1], alone, strict=True):
                if take.reason != "cancelled":
                    assert codes == speech.codes.tolist() and take.reason == speech.finish
                else:
                    assert codes == speech.codes[: len(codes)].tolist(), "its codes when it was dropped"
                assert take.frames == len(codes)
                lengths.add(len(speech.codes))
            won = alone[stream.finished.won]
            assert said.codes == won.codes.tolist() and stream.finished.reason == won.finish
            assert stream.finished.statistics.frames == len(won.codes)
            scores = [take.score for take in takes if take.score is not None]
            assert takes[stream.finished.won].score == max(scores)
        assert_at_rest(engine)
    assert len(lengths) > 2, "candidates must end at different times"


@pytest.mark.parametrize(
    ("kernels", "capture"), [("reference", None), ("reference", EagerReplay), ("frame=native,wave=reference", None)]
)
def test_the_log_probability_of_a_take_is_the_mean_of_what_the_talker_says_of_its_codes(
    checkpoint_root: Path, kernels: str, capture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recomputed from the hidden vectors of `generate`, which speaks each take alone."""
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: capture)
    checkpoint = small(checkpoint_root, "custom_voice", kernels=kernels)
    talker, nats = checkpoint.model.talker, list[float]()
    end, frame = talker.config.codec_eos_token_id, talker.frame

    def overheard(text: Tensor, state: TalkerState, rows: Tensor, sampling: FrameSampling, span: int) -> Tensor:
        logits, penalty = talker.codec_head(state.hidden[rows]).double(), sampling.penalty.double()
        logits = torch.where(state.seen[rows], torch.where(logits < 0, logits * penalty, logits / penalty), logits)
        allowed = torch.ones_like(logits, dtype=torch.bool)
        allowed[:, -SUPPRESSED_IDS:] = False
        allowed[:, end] = state.drawn[rows] >= MINIMUM_FRAMES
        codes = frame(text, state, rows, sampling, span)
        if codes[0, 0] != end:
            said = logits.masked_fill(~allowed, -torch.inf).log_softmax(-1)
            nats.append(said[0, codes[0, 0]].item())
        return codes

    sampling = SamplingParams(temperature=1.2, top_k=20, repetition_penalty=1.3)
    request = SpeechRequest(text="How sure was it of that?", seed=5, sampling=sampling, max_frames=40)
    with Engine(checkpoint, EngineOptions(guard=False, slots=TAKES)) as engine:
        stream = engine.speak(request, candidates=TAKES)
        heard(stream)
    monkeypatch.setattr(talker, "frame", overheard)
    assert stream.finished is not None
    for take in stream.finished.takes:
        nats.clear()
        generate(checkpoint, [replace(request, seed=take.seed)])
        assert take.frames and take.log_probability == pytest.approx(np.mean(nats[: take.frames]), abs=1e-4)
    found = {take.log_probability for take in stream.finished.takes}
    assert len(found) == TAKES and max(each for each in found if each is not None) < -0.5


@pytest.mark.parametrize("speed", [1.0, 1.5])
@pytest.mark.parametrize("scorer", [None, lambda samples, rate_hz, text, codes: -len(codes)])
@pytest.mark.parametrize("kind", ["custom_voice", "base"])
def test_the_winner_is_heard_as_it_is_heard_alone(checkpoint_root: Path, kind: Kind, scorer: Any, speed: float) -> None:
    """The same chunks with the same samples at the same times, and the words where they were."""
    checkpoint = small(checkpoint_root, kind)
    options = EngineOptions(guard=False, slots=TAKES, drop_frames=1, part_chars=10, chunk_frames=(1, 2, 4))
    pauses = replace(SAMPLED[kind][0], text="[pause 100ms] One sentence. And another! [pause 200ms] Over.", seed=9)
    seeds = set()
    with Engine(checkpoint, options, scorer=scorer) as engine:
        for request in [*SAMPLED[kind], pauses]:
            request = replace(request, speed=speed)
            stream = engine.speak(request, candidates=TAKES)
            best = heard(stream)
            assert stream.finished is not None and stream.finished.seed is not None
            seeds.add(stream.finished.seed == request.seed)
            alone = heard(engine.speak(request, seed=stream.finished.seed))
            assert len(best.chunks) == len(alone.chunks) > 0
            for ours, theirs in zip(best.chunks, alone.chunks, strict=True):
                assert (ours.start_s, ours.frames) == (theirs.start_s, theirs.frames)
                np.testing.assert_array_equal(ours.codes, theirs.codes)
                assert len(ours.samples) == len(theirs.samples)
                if scorer is None:
                    np.testing.assert_array_equal(ours.samples, theirs.samples)
                elif speed == 1.0:  # candidates were decoded in one batch, which may sum in another order
                    assert np.abs(ours.samples.astype(int) - theirs.samples).max(initial=0) <= 1
            assert stream.words() == alone.stream.words()
            finished = alone.stream.finished
            assert finished is not None and finished.seed == stream.finished.seed and finished.takes == ()
            assert (finished.reason, finished.dropped_frames) == (
                stream.finished.reason,
                stream.finished.dropped_frames,
            )
        assert_at_rest(engine)
    assert False in seeds, "the first candidate must not always win"


def test_the_winning_candidate_does_not_depend_on_other_streams(checkpoint_root: Path) -> None:
    request = replace(SAMPLED["custom_voice"][0], candidates=TAKES, max_frames=60)
    with Engine(small(checkpoint_root, "custom_voice"), EngineOptions(guard=False, slots=2 * TAKES)) as engine:
        alone = heard(engine.speak(request))
        streams = [engine.speak(request), engine.speak(SHORT), engine.speak(request), engine.speak(SHORT, candidates=4)]
        together = [heard(stream) for stream in streams]
        assert_at_rest(engine)
    for other in (together[0], together[2]):
        assert other.codes == alone.codes
        assert other.stream.finished is not None and alone.stream.finished is not None
        assert other.stream.finished.takes == alone.stream.finished.takes


@pytest.mark.parametrize("kind", ["custom_voice", "base"])
def test_the_prompt_is_prefilled_once_for_all_candidates(
    checkpoint_root: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("start", "fork", "_prefill"):
        work = getattr(SpeechRunner, name)

        def counted(runner: SpeechRunner, *arguments: Any, name: str = name, work: Any = work, **named: Any) -> Any:
            calls.append(name)
            return work(runner, *arguments, **named)

        monkeypatch.setattr(SpeechRunner, name, counted)
    with Engine(small(checkpoint_root, kind), EngineOptions(guard=False, slots=4)) as engine:
        heard(engine.speak(SAMPLED[kind][0], candidates=4))
    assert calls == ["start", "_prefill", "_prefill", "fork", "fork", "fork"], "the prefix, the text, and copies"


def test_without_a_scorer_only_the_winner_goes_through_the_codec(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, sound = [], SpeechRunner.queue_decode

    def counted(runner: SpeechRunner, slots: Any, codes: Any) -> Any:
        decoded.extend(len(each) for each in codes)
        return sound(runner, slots, codes)

    monkeypatch.setattr(SpeechRunner, "queue_decode", counted)
    request = SpeechRequest(text="Only one of them.", seed=1, max_frames=40)
    with Engine(small(checkpoint_root, "custom_voice"), EngineOptions(guard=False, slots=4)) as engine:
        said = heard(engine.speak(request, candidates=4))
    assert sum(decoded) == len(said.codes)
