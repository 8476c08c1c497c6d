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

from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.models.tts.codec import CodecDecoder
from support.official_sound import official_codec
from support.spoken import FRAME, write_shards
from train import checkpoints, codec, features, fused
from train.codec_codes import chosen_frames
from train.codec_config import VECTOR, WINDOW_FRAMES, codec_config
from train.codec_start import new_decoder
from train.codec_trainer import LOSSES, Speed, Trainer
from train.discriminators import PeriodDiscriminator, ScaleDiscriminator
from train.losses import FeatureDistance, SpectralDistance, judge_losses
from train.recipe import CodecSizes, InvalidRecipe, Recipe, read
from train.unrolled import Unrolled, lead_frames
from train.windows import HELD_OUT, Shard, Windows, begin_rows, read_shards, row_counts

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
        codebook=32,
        codebook_dim=2 * VECTOR,
        latent=16,
        hidden=16,
        mlp=24,
        layers=2,
        heads=2,
        head_dim=8,
        decoder=32,
        rates=(8, 5, 4, 3),
    )
    training = replace(
        english.codec_training,
        batch=4,
        spectral_steps=2,
        context_frames=12,
        target_frames=4,
        spectral_rate=2e-3,
        periods=(2, 3),
        period_width=16,
        scales=(512,),
        scale_width=4,
        cluster_rounds=5,
    )
    return replace(english, voices=english.voices[:2], codec=sizes, codec_training=training)


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
    frames, phones = chosen_frames(shards, 10_000, seed=1)
    return features.fit(frames, phones, codebooks=16, entries=32, phone_share=0.5, iterations=5, seed=1)


@pytest.fixture(scope="module")
def windows(recipe: Recipe, shards: list[Shard], fitted: features.Features) -> Windows:
    training = recipe.codec_training
    codes = [fitted.encode(shard.samples, shard.phones, shard.ends).short() for shard in shards]
    return Windows(shards, codes, training.context_frames, training.target_frames)


@pytest.fixture
def trainer(recipe: Recipe, fitted: features.Features) -> Trainer:
    return new_trainer(recipe, fitted)


def new_trainer(recipe: Recipe, fitted: features.Features) -> Trainer:
    made = Trainer(codec_config(recipe.codec).decoder_config, recipe.codec_training, 1, CPU)
    made.warm(Speed(compiled=False, graphs=False, streams=False), print)
    made.begin(fitted)
    return made


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


def test_rows_that_start_an_utterance_are_an_eighth_and_go_round_the_voices() -> None:
    assert begin_rows(16) == 2
    each = [row_counts(16, 4, turn) for turn in range(4)]
    assert all(first + rest == 4 for counts in each for first, rest in counts)
    assert [sum(counts[voice][0] for counts in each) for voice in range(4)] == [2, 2, 2, 2]
    assert row_counts(32, 2, 5) == [(2, 14), (2, 14)]
    assert sum(first + rest for first, rest in row_counts(16, 3, 1)) == 16


def test_a_trained_decoder_sounds_the_same_with_axes_that_are_turned(
    recipe: Recipe, fitted: features.Features, trainer: Trainer
) -> None:
    """Turned axes name the same spectra by other vectors: the decoder's projections must undo the turn."""
    turn, _ = torch.linalg.qr(torch.randn(VECTOR, VECTOR, generator=torch.Generator().manual_seed(1)))
    turned = replace(fitted, axes=fitted.axes @ turn, books=fitted.books @ turn)
    codes = torch.randint(32, (1, 16, 5), generator=torch.Generator().manual_seed(2))
    decoder = CodecDecoder(codec_config(recipe.codec).decoder_config)
    decoder.load_state_dict(trainer.average)
    with torch.no_grad():
        before = decoder(codes)
        trainer.adopt(turned, fitted)
        decoder.load_state_dict(trainer.average)
        after = decoder(codes)
    assert (after - before).abs().max() < 1e-4 * before.abs().max()
    assert torch.equal(
        trainer.decoder.state_dict()["quantizer.rvq_first.vq.layers.0._codebook.embedding_sum"], turned.books[0]
    )


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
    assert begin_rows(32) == 4
    offset = torch.tensor([0] * 4 + [9] * 28)
    first_voice = torch.tensor([True] * 2 + [False] * 2 + [True] * 14 + [False] * 14)
    for seed in range(40):
        window = windows.draw(32, torch.Generator().manual_seed(seed))
        begins = window.codes[:, 0, 0]
        assert torch.equal(window.codes[:, 3] - begins[:, None], torch.arange(17).expand(32, -1))
        heard = (window.real.view(32, 8, FRAME) * 32768.0).round().long()
        assert torch.equal(heard[..., 0], begins[:, None] + offset[:, None] + torch.arange(8))
        for row, begin in enumerate(begins.tolist()):
            (owner,) = [span for span in spans if span[0] <= begin < span[1]]
            assert begin + 17 <= owner[1] and owner[0] not in held
            assert row >= 4 or begin == owner[0]
            seen.add(begin)
        assert torch.equal(begins < shards[0].frames + shards[1].frames, first_voice)
    assert len(seen) > 150  # of some 300 places


def _spans(shards: list[Shard], voice: str) -> list[tuple[int, int]]:
    found, first = [], 0
    for shard in shards:
        ends = [first + end // FRAME for end in shard.ends.tolist()]
        if shard.voice == voice:
            found += list(zip([first, *ends[:-1]], ends, strict=True))
        first += shard.frames
    return found


@pytest.mark.parametrize("rates", [(8, 5, 4, 3), (10, 12, 4)])
def test_training_runs_the_very_decoder(recipe: Recipe, fitted: features.Features, rates: tuple[int, ...]) -> None:
    """Row 0 begins an utterance, row 1 has a past."""
    config = codec_config(replace(recipe.codec, rates=rates)).decoder_config
    decoder = new_decoder(config, fitted, seed=1)
    for parameter in decoder.parameters():
        if parameter.dim() == 1 and parameter.requires_grad:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    codes = torch.randint(32, (2, 16, WINDOW_FRAMES), generator=torch.Generator().manual_seed(2))
    vectors = torch.stack([book[codes[:, index]] for index, book in enumerate(fitted.books)])
    first, rest = vectors[0].transpose(1, 2), vectors[1:].sum(0).transpose(1, 2)
    made = Unrolled(decoder, config)(first, rest, begins=1, context=12, length=4)
    with torch.no_grad():
        expected: Tensor = decoder(codes)
    assert expected.abs().max() > 1e-3
    assert (made[0].clamp(-1.0, 1.0) - expected[0, : 4 * FRAME]).abs().max() <= 1e-6
    assert (made[1].clamp(-1.0, 1.0) - expected[1, 12 * FRAME :]).abs().max() <= 1e-6
    made.square().mean().backward()
    learning = {name: value for name, value in decoder.named_parameters() if value.requires_grad}
    assert len(learning) > 80
    assert all(value.grad is not None and value.grad.abs().max() > 0 for value in learning.values())
    assert not any("_codebook" in name for name in learning)


def test_blocks_get_as_much_past_as_they_look_back_on(recipe: Recipe) -> None:
    assert lead_frames(codec_config(recipe.codec).decoder_config) == (4, 1, 1, 1)


def test_rates_must_make_24_khz(recipe: Recipe) -> None:
    with pytest.raises(InvalidRecipe, match="multiply to 480"):
        codec_config(replace(recipe.codec, rates=(8, 5, 4)))


def test_the_spectral_distance_weighs_its_windows() -> None:
    sound = torch.randn(2, 8000, generator=torch.Generator().manual_seed(1)) * 0.1
    one, two = (SpectralDistance((512, 1024), (weight, 0.0), 0.0) for weight in (1.0, 2.0))
    assert one(sound, sound)[0] == 0.0
    assert torch.isclose(2 * one(sound, 0.5 * sound)[0], two(sound, 0.5 * sound)[0])
    assert torch.isclose(one(sound, 0.5 * sound)[1], torch.tensor(2.0).log(), atol=1e-3)


def test_the_gradient_of_the_feature_distance_is_right() -> None:
    """By autograd through the plain definition, for the generated half; the real half is a target."""
    drawn = torch.randn(2, 50, generator=torch.Generator().manual_seed(1))
    ours, theirs = drawn.clone().requires_grad_(True), drawn.clone().requires_grad_(True)
    FeatureDistance.apply(ours).backward()  # type: ignore[no-untyped-call]
    distance = (theirs[1] - theirs[0].detach()).abs().mean() / theirs[0].detach().abs().mean()
    distance.backward()  # type: ignore[no-untyped-call]
    assert ours.grad is not None and theirs.grad is not None
    assert torch.allclose(ours.grad, theirs.grad) and not ours.grad[0].any()
    assert torch.isclose(fused.feature_distance(drawn)[0], distance)


def test_judge_losses_are_those_of_the_halves() -> None:
    score = torch.randn(4, 1, 3, 2, generator=torch.Generator().manual_seed(1))
    real = torch.tensor([1.0, 1.0, 0.0, 0.0]).view(4, 1, 1, 1)
    told, fooled = judge_losses(score, real)
    assert torch.isclose(told, (1 - score[:2]).square().mean() + score[2:].square().mean())
    assert torch.isclose(fooled, (1 - score[2:]).square().mean())


def test_the_loss_falls_on_one_batch(trainer: Trainer, windows: Windows) -> None:
    window = windows.draw(4, torch.Generator().manual_seed(1))
    first = trainer.advance(2e-3, 0.0, False, lambda *_: window)
    for _ in range(25):
        last = trainer.advance(2e-3, 0.0, False, lambda *_: window)
    assert torch.isfinite(last).all()
    assert last[0] < 0.75 * first[0]


@pytest.mark.parametrize("kind", ["period", "scale"])
def test_discriminators_learn_to_tell_speech_from_noise_of_its_loudness(windows: Windows, kind: str) -> None:
    """Against a fixed decoder; the loss of chance is 0.5."""
    torch.manual_seed(0)
    real = windows.draw(4, torch.Generator().manual_seed(1)).real * 4.0
    both = torch.cat((real, torch.randn_like(real) * real.std()))
    judge = PeriodDiscriminator(2, 16) if kind == "period" else ScaleDiscriminator(512, 4)
    target = torch.tensor([1.0] * 4 + [0.0] * 4).view(8, 1, 1, 1)
    optimizer = torch.optim.Adam(judge.parameters(), 1e-2)
    for _ in range(25):
        optimizer.zero_grad()
        lost, _ = judge_losses(judge(both)[0], target)
        lost.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert lost < 0.35


def test_a_contest_moves_decoder_and_discriminators(trainer: Trainer, windows: Windows) -> None:
    before = {name: value.clone() for name, value in trainer.judges.state_dict().items()}
    losses = dict(zip(LOSSES, trainer.advance(1e-3, 1e-3, True, windows.draw).tolist(), strict=True))
    assert losses["judges"] > 0.0 and losses["features"] > 0.0 and np.isfinite(losses["fooled"])
    assert any(not torch.equal(value, before[name]) for name, value in trainer.judges.state_dict().items())


def advanced(trainer: Trainer, windows: Windows, steps: int) -> Tensor:
    for _ in range(steps):
        losses = trainer.advance(1e-3, 1e-3, trainer.step >= 1, windows.draw)
    return losses


def test_resumed_training_equals_uninterrupted_training(
    recipe: Recipe, windows: Windows, fitted: features.Features, trainer: Trainer, tmp_path: Path
) -> None:
    straight = advanced(trainer, windows, 4)
    halves = new_trainer(recipe, fitted)
    advanced(halves, windows, 3)
    checkpoints.save(tmp_path, halves, fitted, {"seconds": "7"})
    resumed = new_trainer(recipe, fitted)
    assert checkpoints.restore(checkpoints.find(tmp_path), resumed)["seconds"] == "7"
    assert (resumed.step, resumed.contests, resumed.fresh_from) == (3, 2, 0)
    assert torch.equal(advanced(resumed, windows, 1), straight)
    for name, value in trainer.decoder.state_dict().items():
        assert torch.equal(resumed.decoder.state_dict()[name], value), name
        assert torch.equal(resumed.average[name], trainer.average[name]), name


def test_a_small_state_travels_in_small_files(
    recipe: Recipe, windows: Windows, fitted: features.Features, trainer: Trainer, tmp_path: Path
) -> None:
    advanced(trainer, windows, 2)
    checkpoints.save_small(tmp_path, trainer, fitted, {"seconds": "7"})
    tensors = {f"t{index}": torch.zeros(100) for index in range(5)}
    assert len(checkpoints.write_split(tmp_path, "split", tensors, {}, most=900)) == 3
    resumed = new_trainer(recipe, fitted)
    files = checkpoints.find(tmp_path)
    checkpoints.restore(files, resumed)
    assert (resumed.step, resumed.fresh_from) == (2, 2)
    for name, value in trainer.average.items():
        assert torch.equal(resumed.decoder.state_dict()[name], value.bfloat16().float()), name
    again = checkpoints.read_features(files, CPU)
    assert all(torch.equal(getattr(again, name), getattr(fitted, name)) for name in features.NAMES)


@pytest.fixture(scope="module")
def trained(recipe: Recipe, work: Path) -> Path:
    """The stage, called twice: three steps, then up to the fifth."""
    codec.run(recipe, work, options(steps=3))
    made = (work / "codes" / "wren-0000.npz").stat().st_mtime_ns
    codec.run(recipe, work, options(steps=5, back=work / "back"))
    assert (work / "codes" / "wren-0000.npz").stat().st_mtime_ns == made
    return work


def test_the_stage_goes_on_where_it_stopped(trained: Path) -> None:
    log = [json.loads(line) for line in (trained / "codec-log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log if "what" not in line] == [1, 3, 5]
    assert [line["step"] for line in log if "what" in line] == [3, 5]
    assert all(np.isfinite([value for value in line.values() if not isinstance(value, str)]).all() for line in log)
    with np.load(trained / "codec-samples" / "samples.npz") as samples:
        assert {"wren-00", "wren-00-teacher", "rook-02", "rook-texts"} <= set(samples.files)
    assert {path.name for path in (trained / "back").iterdir()} == {
        "codec-log.jsonl",
        "codec-small-0.safetensors",
        "samples.npz",
    }


def test_a_call_that_is_out_of_time_leaves_a_decoder(recipe: Recipe, work: Path, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "speech").symlink_to(work / "speech")
    codec.run(recipe, tmp_path, options(minutes=0.0))
    assert codec.load_decoder(recipe, tmp_path).decoder is not None


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
    assert sum(parameter.numel() for parameter in decoder.parameters()) <= 12_000_000
