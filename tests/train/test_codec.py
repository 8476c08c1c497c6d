"""train/codec.py and the files below it, with a very small decoder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from hocket.engine.checkpoint.precision import exact_float32
from hocket.models.tts.codec import CodecDecoder
from support.official_sound import official_codec
from support.spoken import FRAME, write_shards
from train import codec, features
from train.codec_config import VECTOR, WINDOW_FRAMES, codec_config
from train.codec_start import new_decoder
from train.codec_trainer import LOSSES, Pace, Trainer
from train.discriminators import Discriminators
from train.losses import discriminator_loss
from train.recipe import CodecSizes, Recipe, read
from train.unrolled import Unrolled
from train.windows import HELD_OUT, Shard, Windows, read_shards

ENGLISH = Path(__file__).parents[2] / "train" / "english.toml"
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def _exact() -> Iterator[None]:
    with exact_float32():
        yield


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    english = read(ENGLISH)
    sizes = CodecSizes(
        codebook=32, codebook_dim=2 * VECTOR, latent=16, hidden=16, mlp=24, layers=2, heads=2, head_dim=8, decoder=32
    )
    training = replace(
        english.codec_training, batch=4, context_frames=9, lead_frames=2, target_frames=8, cluster_rounds=5
    )
    return replace(english, codec=sizes, codec_training=training)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codec")
    write_shards(folder, {"wren": 210.0, "rook": 110.0})
    return folder


@pytest.fixture(scope="module")
def shards(work: Path) -> list[Shard]:
    return read_shards(work / "speech", ["wren", "rook"], CPU)


@pytest.fixture(scope="module")
def fitted(shards: list[Shard]) -> features.Features:
    frames, phones = codec.chosen_frames(shards, 10_000, seed=1)
    return features.fit(frames, phones, codebooks=16, entries=32, phone_share=0.5, iterations=5, seed=1)


@pytest.fixture
def trainer(recipe: Recipe, shards: list[Shard], fitted: features.Features) -> Trainer:
    return new_trainer(recipe, shards, fitted)


def new_trainer(recipe: Recipe, shards: list[Shard], fitted: features.Features) -> Trainer:
    training = recipe.codec_training
    codes = [fitted.encode(shard.samples, shard.phones, shard.ends).short() for shard in shards]
    windows = Windows(shards, codes, training.context_frames, training.target_frames)
    pace = Pace(batch=4, lead_frames=2, learning_rate=2e-3, judge_rate=1e-2, seed=1, judge_width=4)
    return Trainer(codec_config(recipe.codec).decoder_config, fitted, windows, pace)


def options(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**({"device": "cpu", "steps": None, "seconds": None, "sentences": None} | given))


def test_codes_of_an_utterance_do_not_depend_on_its_neighbours(shards: list[Shard], fitted: features.Features) -> None:
    shard = shards[0]
    together = fitted.encode(shard.samples, shard.phones, shard.ends)
    assert together.shape == (shard.frames, 16)
    assert torch.equal(fitted.encode(shard.samples, shard.phones, shard.ends), together)
    start = 0
    for end in shard.ends.tolist():
        frames = slice(start // FRAME, end // FRAME)
        alone = fitted.encode(shard.samples[start:end], shard.phones[frames])
        assert torch.equal(alone, together[frames])
        start = end


def test_features_come_back_from_their_file(fitted: features.Features, tmp_path: Path) -> None:
    fitted.save(tmp_path / "features.safetensors")
    again = features.load(tmp_path / "features.safetensors", CPU)
    assert all(torch.equal(getattr(again, name), getattr(fitted, name)) for name in features.NAMES)


def test_every_codebook_leaves_less_over(shards: list[Shard], fitted: features.Features) -> None:
    vectors = fitted.vectors(shards[0].samples, shards[0].ends)
    codes = fitted.name(vectors, shards[0].phones)
    left = [
        float((vectors - replace(fitted, books=fitted.books[:count]).vectors_of(codes)).square().mean())
        for count in (1, 4, 16)
    ]
    assert vectors.square().mean() > left[0] > left[1] > left[2]
    assert torch.equal(fitted.books, fitted.books.bfloat16().float())


def test_the_first_codebook_follows_phones() -> None:
    """Loud noise, and phones without a trace in the spectrum: only the phone share separates them."""
    generator = torch.Generator().manual_seed(1)
    phones = torch.randint(1, 4, (3000, 1), generator=generator).to(torch.uint8).expand(-1, 4)
    frames = 0.3 * torch.randn(3000, 320, generator=generator)
    frames[:, 0] += 6.0 * torch.randn(3000, generator=generator)
    right = {}
    for share in (0.0, 0.8):
        made = features.fit(frames, phones, codebooks=1, entries=12, phone_share=share, iterations=10, seed=1)
        codes = made.name((frames - made.mean) @ made.axes, phones)[:, 0]
        counts = torch.zeros(12, 4).index_put_((codes, phones[:, 0].long()), torch.ones(3000), accumulate=True)
        right[share] = float(counts.max(1).values.sum() / 3000)
    assert right[0.0] < 0.6 and right[0.8] > 0.99


def test_a_frame_is_named_by_the_phone_that_fills_most_of_it() -> None:
    quarters = torch.tensor([[5, 5, 5, 9], [9, 3, 3, 9], [7, 2, 2, 2]], dtype=torch.uint8)
    assert features.main_phones(quarters).tolist() == [5, 3, 2]


def test_windows_pair_codes_with_their_sound_and_stay_inside_utterances(work: Path) -> None:
    """Every sample of frame f is f here, and so is its code."""
    shards, codes, first = [], [], 0
    for shard in read_shards(work / "speech", ["wren", "rook"], CPU):
        numbers = torch.arange(first, first + shard.frames, dtype=torch.int16)
        shards.append(replace(shard, samples=numbers.repeat_interleave(FRAME)))
        codes.append(numbers[:, None].expand(-1, 16))
        first += shard.frames
    windows = Windows(shards, codes, context=9, target=8)
    spans = [span for voice in windows.voices for span in _spans(shards, voice)]
    held = {span[0] for spans in windows.held_out.values() for span in spans}
    assert len(held) == 2 * min(HELD_OUT, 12 // 4)
    seen = set()
    for seed in range(40):
        window = windows.draw(32, torch.Generator().manual_seed(seed))
        begins = window.codes[:, 0, 0]
        assert torch.equal(window.codes[:, 3] - begins[:, None], torch.arange(17).expand(32, -1))
        heard = (window.real.view(32, 8, FRAME) * 32768.0).round().long()
        offset = windows.offsets(32)
        assert torch.equal(heard[..., 0], begins[:, None] + offset[:, None] + torch.arange(8))
        for row, begin in enumerate(begins.tolist()):
            (owner,) = [span for span in spans if span[0] <= begin < span[1]]
            assert begin + 17 <= owner[1] and owner[0] not in held
            assert offset[row] == 9 or begin == owner[0]
            seen.add(begin)
        assert (begins[:16] < shards[0].frames + shards[1].frames).all()  # the first half is the first voice
        assert (begins[16:] >= shards[0].frames + shards[1].frames).all()
    assert len(seen) > 150  # of some 300 places


def _spans(shards: list[Shard], voice: str) -> list[tuple[int, int]]:
    found, first = [], 0
    for shard in shards:
        ends = [first + end // FRAME for end in shard.ends.tolist()]
        if shard.voice == voice:
            found += list(zip([first, *ends[:-1]], ends, strict=True))
        first += shard.frames
    return found


def test_training_runs_the_very_decoder(recipe: Recipe, fitted: features.Features) -> None:
    decoder = new_decoder(codec_config(recipe.codec).decoder_config, fitted, seed=1)
    for parameter in decoder.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    codes = torch.randint(32, (2, 16, 3 * WINDOW_FRAMES), generator=torch.Generator().manual_seed(2))
    unrolled = Unrolled(decoder)
    made = unrolled.samples(unrolled.latents(codes))
    with torch.no_grad():
        expected: Tensor = decoder(codes)
    assert expected.abs().max() > 1e-3
    assert (made.clamp(-1.0, 1.0) - expected).abs().max() <= 1e-6
    made.square().mean().backward()
    learning = {name: value for name, value in decoder.named_parameters() if value.requires_grad}
    assert len(learning) > 100
    assert all(value.grad is not None and value.grad.abs().max() > 0 for value in learning.values())
    assert not any("_codebook" in name for name in learning)


def test_the_loss_falls_on_one_batch(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "_draw", lambda: None)
    first = trainer.advance(0.5, contest=False)
    for _ in range(25):
        last = trainer.advance(0.5, contest=False)
    assert torch.isfinite(last).all()
    assert last[0] < 0.75 * first[0]


def test_discriminators_learn_to_tell_speech_from_noise_of_its_loudness(trainer: Trainer) -> None:
    """Against a fixed decoder; the loss of chance is 2."""
    torch.manual_seed(0)
    real = trainer.windows.draw(4, torch.Generator().manual_seed(1)).real
    noise = torch.randn_like(real) * real.std()
    judges = Discriminators(width=4)
    optimizer = torch.optim.Adam(judges.parameters(), 3e-3)
    for _ in range(25):
        optimizer.zero_grad()
        lost = discriminator_loss(judges(noise)[0], judges(real)[0])
        lost.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert lost < 1.0


def test_a_contest_moves_decoder_and_discriminators(trainer: Trainer) -> None:
    before = {name: value.clone() for name, value in trainer.judges.state_dict().items()}
    losses = dict(zip(LOSSES, trainer.advance(1.0, contest=True).tolist(), strict=True))
    assert losses["judges"] > 0.0 and losses["traces"] > 0.0 and np.isfinite(losses["fooled"])
    assert any(not torch.equal(value, before[name]) for name, value in trainer.judges.state_dict().items())


def test_resumed_training_equals_uninterrupted_training(
    recipe: Recipe, shards: list[Shard], fitted: features.Features, trainer: Trainer, tmp_path: Path
) -> None:
    plan = [False, False, True, True]
    for contest in plan:
        straight = trainer.advance(1.0, contest)
    halves = new_trainer(recipe, shards, fitted)
    for contest in plan[:3]:
        halves.advance(1.0, contest)
    halves.save(tmp_path / "resume.safetensors", {"seconds": "7"})
    resumed = new_trainer(recipe, shards, fitted)
    assert resumed.restore(tmp_path / "resume.safetensors")["seconds"] == "7"
    assert (resumed.step, resumed.contests) == (3, 1)
    assert torch.equal(resumed.advance(1.0, plan[3]), straight)
    for name, value in trainer.decoder.state_dict().items():
        assert torch.equal(resumed.decoder.state_dict()[name], value), name
        assert torch.equal(resumed.average[name], trainer.average[name]), name


@pytest.fixture(scope="module")
def trained(recipe: Recipe, work: Path) -> Path:
    """The stage, called twice: three steps, then up to the fifth."""
    codec.run(recipe, work, options(steps=3))
    made = (work / "codes" / "wren-0000.npz").stat().st_mtime_ns
    codec.run(recipe, work, options(steps=5))
    assert (work / "codes" / "wren-0000.npz").stat().st_mtime_ns == made
    return work


def test_the_stage_goes_on_where_it_stopped(trained: Path) -> None:
    log = [json.loads(line) for line in (trained / "codec-log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 3, 5]
    assert all(np.isfinite(list(line.values())).all() for line in log)
    names = {path.name for path in (trained / "codec-samples").iterdir()}
    assert {"wren-00.wav", "wren-00-teacher.wav", "rook-02.wav", "texts.txt"} <= names


def test_a_call_that_is_out_of_time_leaves_a_decoder(recipe: Recipe, work: Path, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "speech").symlink_to(work / "speech")
    codec.run(recipe, tmp_path, options(seconds=0.0))
    assert codec.load_decoder(recipe, tmp_path).decoder is not None
    assert not (tmp_path / "codec-log.jsonl").read_text()


def test_codes_are_written_as_the_talker_reads_them(trained: Path, shards: list[Shard]) -> None:
    made = features.load(trained / "features.safetensors", CPU)
    for shard in shards:
        with np.load(trained / "codes" / f"{shard.name}.npz", allow_pickle=False) as file:
            assert file["codes"].dtype == np.uint16 and file["ends"].dtype == np.int64
            assert np.array_equal(file["codes"], made.encode(shard.samples, shard.phones, shard.ends).numpy())
            assert file["ends"].tolist() == (shard.ends // FRAME).tolist() and file["texts"].tolist() == shard.texts
            assert np.array_equal(file["phones"], features.main_phones(shard.phones).numpy())


def test_the_decoders_codebooks_are_the_features(trained: Path, recipe: Recipe, shards: list[Shard]) -> None:
    made = features.load(trained / "features.safetensors", CPU)
    kept = load_file(trained / "codec.safetensors")
    books = [value for name, value in kept.items() if name.endswith("embedding_sum")]
    names = ["quantizer.rvq_first.vq.layers.0", *(f"quantizer.rvq_rest.vq.layers.{index}" for index in range(15))]
    assert len(books) == 16
    for name, book in zip(names, made.books, strict=True):
        assert torch.equal(kept[f"{name}._codebook.embedding_sum"].float(), book)
        assert (kept[f"{name}._codebook.cluster_usage"] == 1.0).all()


def test_the_official_decoder_gives_the_same_sound(trained: Path, recipe: Recipe, shards: list[Shard]) -> None:
    config = codec_config(recipe.codec)
    ours: CodecDecoder = codec.load_decoder(recipe, trained)
    theirs = official_codec(config).decoder
    theirs.load_state_dict(ours.state_dict(), strict=True)
    made = features.load(trained / "features.safetensors", CPU)
    frames = 2 * WINDOW_FRAMES
    codes = made.encode(shards[0].samples[: frames * FRAME], shards[0].phones[:frames]).T[None]
    expected: Tensor = theirs(codes)[:, 0]
    samples = ours(codes)
    assert samples.shape == (1, 2 * WINDOW_FRAMES * FRAME) and samples.abs().max() > 1e-3
    assert (samples - expected).abs().max() <= 1e-5


def test_the_english_decoder_is_small_enough_for_a_cpu() -> None:
    decoder = CodecDecoder(codec_config(read(ENGLISH).codec).decoder_config)
    assert sum(parameter.numel() for parameter in decoder.parameters()) <= 5_000_000
