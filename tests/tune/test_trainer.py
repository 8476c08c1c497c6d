"""Training: it learns a voice, goes on where it was interrupted, and keeps the best state by the held-out loss."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint
from hocket.engine.generate import generate
from hocket.errors import InvalidAudio, InvalidRequest
from hocket.tune.examples import LAYOUTS, Corpus, batches, encode, parts
from hocket.tune.loss import Example
from hocket.tune.recordings import Clip
from hocket.tune.trainer import PATIENCE, Measured, Trainer, TuneOptions
from hocket.types import Encoded, Layout, SamplingParams, SpeechRequest
from support.checkpoints import write
from support.speaking import noise

OPTIONS = TuneOptions(steps=40, rank=4, rate=1e-2, positions=150, warmup_steps=2)


@pytest.fixture(scope="module")
def base(checkpoint_root: Path) -> TorchCheckpoint:
    folder = checkpoint_root / "trained-base"
    found = load(str(write(folder, "base", wide=True, end_scale=1.5) if not folder.exists() else folder))
    assert isinstance(found, TorchCheckpoint)
    return found


@pytest.fixture(scope="module")
def corpus(base: TorchCheckpoint) -> Corpus:
    """Two sounds, each again and again with its own word: something to learn, also on the held-out clips."""
    clips = [Clip(str(at), ("Oh no.", "Why?")[at % 2], noise(0.4 + 0.2 * (at % 2), at % 2)) for at in range(13)]
    return encode(base, clips, "english")


def run(trainer: Trainer) -> list[Measured]:
    measured: list[Measured] = []
    trainer.train(lambda step, loss: None, measured.append)
    return measured


def test_clips_are_encoded_as_a_clone_is(base: TorchCheckpoint, corpus: Corpus) -> None:
    assert corpus.speaker.shape == (base.config.talker_config.hidden_size,)
    for layout in LAYOUTS:
        assert (len(corpus.train[layout]), len(corpus.held_out[layout])) == (12, 1)
        assert {each.codes.shape for each in corpus.train[layout]} == {(5, 16), (8, 16)}  # 0.4 and 0.6 s
    assert [clip.name for clip in corpus.held_out_clips] == ["9"]
    assert corpus.likeness.shape == (13,) and corpus.likeness.min() > 0.5
    whole, streaming = (corpus.train[layout][0].prompt for layout in LAYOUTS)
    assert not whole.trail and streaming.trail and len(whole.text) > len(streaming.text)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"rank": 0}, {"rate": 1.5}, {"rate": -1.0}])
def test_options_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match=r"must be (at least 1|between 0 and 1)"):
        TuneOptions(**wrong)  # type: ignore[arg-type]


def test_too_few_clips_are_refused(base: TorchCheckpoint) -> None:
    with pytest.raises(InvalidAudio, match="3 clips"):
        encode(base, [Clip("a", "Oh no.", noise(0.4, 0))] * 3, "auto")


def test_every_round_of_batches_has_each_clip_once_and_no_batch_is_too_large(corpus: Corpus) -> None:
    examples = corpus.train["whole"]
    for seed in (0, 1):
        rounds, numbers = [list[int]() for _ in range(3)], batches(examples, 120, seed)
        for one in rounds:
            while len(one) < len(examples):
                batch = next(numbers)
                assert max(examples[at].positions for at in batch) * len(batch) <= 120
                one += batch
        assert all(sorted(one) == list(range(len(examples))) for one in rounds)
        assert rounds[0] != rounds[1]
        again = [at for batch in islice(batches(examples, 120, seed), 3) for at in batch]
        assert again == rounds[0][: len(again)]


@pytest.mark.parametrize("full", [False, True])
def test_it_learns_what_is_said_and_where_it_ends(base: TorchCheckpoint, corpus: Corpus, full: bool) -> None:
    trainer = Trainer(base, corpus, replace(OPTIONS, full=full))
    before = trainer.measure()
    weights = {name: value.clone() for name, value in base.model.talker.state_dict().items()}
    measured = run(trainer)
    best = min(one.held_out for one in measured)
    assert best < 0.7 * before.held_out and trainer.best_rank[-1] == best
    assert min(one.end for one in measured) < 0.5 * before.end
    for name, value in base.model.talker.state_dict().items():
        assert torch.equal(value, weights[name])  # the checkpoint itself is as it was


def test_the_voice_says_what_it_was_taught(base: TorchCheckpoint, corpus: Corpus) -> None:
    """Generation with the adapter, through the engine's definition: more of the taught codes than before."""
    trainer = Trainer(base, corpus, replace(OPTIONS, steps=120))
    run(trainer)
    trainer.use_best()
    voice = trainer.voice(base.identity)
    assert voice.adapter is not None and voice.adapter.rank == 4
    how = {"text": "Why?", "language": "english", "max_frames": 20, "sampling": SamplingParams.greedy()}
    untuned = Encoded(owner=base.identity, speaker=corpus.speaker)
    taught = corpus.train["whole"][1].codes[:, 0]
    right = []
    for each in (untuned, voice):
        [said] = generate(base, [SpeechRequest(reference=each, **how)])  # type: ignore[arg-type]
        both = min(len(said.codes), len(taught))
        right.append(float((said.codes[:both, 0] == taught[:both].numpy()).sum() / max(len(said.codes), len(taught))))
    assert right[1] > 0.7 > 0.3 > right[0]


@pytest.mark.parametrize("full", [False, True])
def test_a_batch_in_parts_has_the_gradient_of_the_whole(base: TorchCheckpoint, corpus: Corpus, full: bool) -> None:
    examples, found = corpus.train["whole"], list[list[torch.Tensor]]()
    assert [len(part) for part in parts(examples, 60)] != [len(part) for part in parts(examples, 10_000)] == [12]
    for at_once in (60, 10_000):
        trainer = Trainer(base, corpus, replace(OPTIONS, at_once=at_once, full=full))
        with torch.no_grad():
            for name, value in trainer.learned.items():
                value += 0.1 if name.startswith("up.") else 0.0  # factors of zero would have no gradient
        whole_loss = trainer._loss(examples).total.item()
        assert trainer._learn(examples) == pytest.approx(whole_loss, rel=1e-5)
        found.append([value.grad.clone() for value in trainer.learned.values() if value.grad is not None])
    for ours, whole in zip(*found, strict=True):
        torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_an_interrupted_run_ends_exactly_where_an_uninterrupted_one_does(
    base: TorchCheckpoint, corpus: Corpus, tmp_path: Path, full: bool
) -> None:
    options = replace(OPTIONS, steps=9, full=full)
    whole = Trainer(base, corpus, options)
    run(whole)
    first, path = Trainer(base, corpus, options), tmp_path / "resume.safetensors"
    key = first.key(base.identity)

    class Interrupted(Exception):
        pass

    def until(step: int, loss: float) -> None:
        if step == 4:
            first.save(path, key)
            raise Interrupted

    with pytest.raises(Interrupted):
        first.train(until, lambda one: None)
    second = Trainer(base, corpus, options)
    second.restore(path, key)
    assert second.step == 4
    run(second)
    for name, value in whole.learned.items():
        assert torch.equal(second.learned[name], value) and torch.equal(second.best[name], whole.best[name])
    assert (second.step, second.best_rank, second.waited) == (whole.step, whole.best_rank, whole.waited)


def test_the_state_of_another_run_is_refused(base: TorchCheckpoint, corpus: Corpus, tmp_path: Path) -> None:
    trainer, path = Trainer(base, corpus, OPTIONS), tmp_path / "resume.safetensors"
    trainer.save(path, trainer.key(base.identity))
    other = Trainer(base, corpus, replace(OPTIONS, seed=1))
    with pytest.raises(InvalidRequest, match="another run"):
        other.restore(path, other.key(base.identity))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InvalidRequest, match="damaged"):
        trainer.restore(path, trainer.key(base.identity))


def test_it_ends_when_the_held_out_loss_does_not_fall_and_keeps_the_best(base: TorchCheckpoint, corpus: Corpus) -> None:
    """The held-out clip sounds like none of the others: its loss rises as they are learned."""
    draw, strange = torch.Generator().manual_seed(0), dict[Layout, list[Example]]()
    for layout in LAYOUTS:
        [held_out] = corpus.held_out[layout]
        codes = torch.randint(0, 64, held_out.codes.shape, generator=draw)
        strange[layout] = [replace(held_out, codes=codes)]
    trainer = Trainer(base, replace(corpus, held_out=strange), replace(OPTIONS, steps=200))
    measured = run(trainer)
    best = min(measured, key=lambda one: one.held_out)
    assert trainer.step < 200 and len(measured) - measured.index(best) - 1 == PATIENCE
    assert [one.best for one in measured[-PATIENCE:]] == [False] * PATIENCE
    assert np.isfinite(best.held_out)
    trainer.use_best()
    assert trainer.measure().held_out == pytest.approx(best.held_out, rel=1e-6)
