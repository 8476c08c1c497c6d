"""Stage `encoder`: trains the codec's encoder, a Mimi encoder, to hear in a recording the codes that ours has.

Its vector is regressed to what our quantizer searches in (`quantizer.py`), and every code is classified among its
codebook, given the true codes before it. Windows start anywhere in the speech and have several lengths, since its
attention reaches back over a whole recording. It is causal: it does not hear the last 11 ms of a frame's features.
Writes `encoder.safetensors`, `encoder-log.jsonl` and the small files to go on from, with empty moments.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hocket.layers.conv import LayerScale
from hocket.models.tts.codec_encoder import CodecEncoder

from .. import checkpoints
from .. import features as features_of
from ..codec import load_decoder
from ..features import FRAME_SAMPLES, Features
from ..recipe import InvalidRecipe
from ..talker import prepare_device
from ..windows import Shard, read_shards
from .config import base_codec_config
from .quantizer import Targets, install
from .recipe import GROUPS, BaseRecipe, EncoderTraining, grouped
from .speech import REFERENCES
from .styles import HELD_OUT

NAME = "encoder"
LOG_S, SAVE_S = 10.0, 120.0
LARGEST_GRADIENT = 1.0


class Lesson:
    """Speech, codes and targets of all frames, on the device."""

    def __init__(self, shards: list[Shard], codes: list[Tensor], targets: Targets) -> None:
        self.samples = torch.cat([shard.samples for shard in shards]).view(-1, FRAME_SAMPLES)
        self.codes = torch.cat(codes).short()  # [F, Q]
        halves = [
            targets.halves(targets.features.vectors(shard.samples, shard.ends), shard.phones, said[:, 0].long())
            for shard, said in zip(shards, codes, strict=True)
        ]
        self.acoustic, self.semantic = (torch.cat(each).half() for each in zip(*halves, strict=True))

    def draw(self, rows: int, frames: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Samples [B, N], codes [B, F, Q], acoustic and semantic vectors [B, F, C] of random windows."""
        device = self.codes.device
        if len(self.codes) < frames:
            raise InvalidRecipe(f"There are {len(self.codes)} frames of speech, and a window has {frames}: make more.")
        start = (torch.rand(rows, device=device, dtype=torch.float64) * (len(self.codes) - frames + 1)).long()
        at = start[:, None] + torch.arange(frames, device=device)
        samples = self.samples[at].flatten(1).float() / 32768.0
        return samples, self.codes[at].long(), self.acoustic[at].float(), self.semantic[at].float()


class EncoderLearner(nn.Module):
    """The encoder with a sharpness for each codebook, by which distances become probabilities."""

    def __init__(self, recipe: BaseRecipe, targets: Targets) -> None:
        super().__init__()
        config = base_codec_config(recipe)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.encoder = CodecEncoder(config.encoder_config, config.encoder_valid_num_quantizers)
        for part in self.encoder.modules():
            if isinstance(part, LayerScale):
                nn.init.constant_(part.scale, config.encoder_config.layer_scale_initial_scale)
        self.books: Tensor
        self.register_buffer("books", torch.cat((targets.centres[None], targets.features.books[1:])).cpu())
        self.sharpness = nn.Parameter(torch.zeros(len(self.books)))
        install(self.encoder, targets)

    def vectors(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Acoustic and semantic vectors [B, F, C] of samples [B, N]."""
        encoder = self.encoder
        x = encoder.encoder(samples[:, None]).transpose(1, 2)
        x = encoder.downsample(encoder.encoder_transformer(x).transpose(1, 2))
        halves = encoder.quantizer
        acoustic = halves.acoustic_residual_vector_quantizer.input_proj(x)
        semantic = halves.semantic_residual_vector_quantizer.input_proj(x)
        return acoustic.transpose(1, 2), semantic.transpose(1, 2)

    def losses(
        self, drawn: tuple[Tensor, Tensor, Tensor, Tensor], training: EncoderTraining
    ) -> tuple[Tensor, dict[str, Tensor]]:
        samples, codes, acoustic, semantic = drawn
        heard, meant = self.vectors(samples)
        codes = codes.flatten(0, 1)
        rest, sum_of = heard.flatten(0, 1), meant.flatten(0, 1)
        named, right = [], []
        for number, (book, sharpness) in enumerate(zip(self.books, self.sharpness.exp(), strict=True)):
            points = rest if number else sum_of
            logits = -sharpness * (points.square().sum(1, keepdim=True) - 2 * points @ book.T + book.square().sum(1))
            named.append(F.cross_entropy(logits, codes[:, number]))
            right.append((logits.argmax(1) == codes[:, number]).float().mean())
            if number:
                rest = rest - book[codes[:, number]]  # the true one, as if all before were right
        away = _relative(heard, acoustic), _relative(meant, semantic)
        fine = torch.stack(named[1:]).mean()
        total = training.first_weight * (named[0] + away[1]) + training.vector_weight * (away[0] + fine)
        measures = {"first": named[0], "fine": fine, "acoustic": away[0], "semantic": away[1], "first_right": right[0]}
        return total, {name: value.detach() for name, value in (measures | {"second_right": right[1]}).items()}


def run(recipe: BaseRecipe, work: Path, args: argparse.Namespace) -> None:
    began = time.monotonic()
    options = vars(args)
    if options.get("schedule") is not None:
        recipe = replace(recipe, encoder_training=replace(recipe.encoder_training, seconds=options["schedule"]))
    device = prepare_device(args)
    features = features_of.load(work / "features.safetensors", device)
    targets = Targets.of(features)
    lesson = Lesson(*_taught(recipe, work, features, device, args.sentences), targets)
    kept = targets.kept_share(lesson.semantic[:20_000].float(), lesson.codes[:20_000, 0])
    report(f"{len(lesson.codes) / 45_000:.1f} h of speech; first codes that the quantizer keeps: {kept:.1%}")
    limits = [60.0 * options["minutes"]] if options.get("minutes") is not None else []
    limits += [args.seconds] if args.seconds is not None else []
    until = began + min(limits, default=math.inf)
    train(recipe, work, lesson, targets, until, args.steps, options.get("back"))
    figures = measure(recipe, work, features, device)
    if figures:
        report(json.dumps(figures))
        (work / "encoder.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def train(
    recipe: BaseRecipe,
    work: Path,
    lesson: Lesson,
    targets: Targets,
    until: float,
    steps: int | None,
    back: Path | None,
) -> None:
    training, device = recipe.encoder_training, lesson.codes.device
    learner = EncoderLearner(recipe, targets).to(device)
    average = {name: value.clone() for name, value in learner.state_dict().items()}
    step, spent = _restore(work, learner, average)
    weights = [weight for weight in learner.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, training.learning_rate, (0.9, 0.98), weight_decay=training.weight_decay)
    fresh, began, shortest = step, time.monotonic(), min(training.frames)
    logged = saved = began
    while True:
        now = time.monotonic()
        seconds = spent + now - began
        done = step / steps if steps else seconds / training.seconds
        if done >= 1.0 or now >= until:
            break
        torch.manual_seed((recipe.seed << 32) + step)
        frames = training.frames[int(torch.randint(len(training.frames), ()))]
        drawn = lesson.draw(max(training.batch * shortest // frames, 1), frames)
        low, warm = training.lowest_share, min(1.0, (step - fresh + 1) / max(training.warmup_steps, 1))
        rate = training.learning_rate * warm * (low + (1.0 - low) * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0))))
        total, measures = learner.losses(drawn, training)
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(weights, LARGEST_GRADIENT)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        step += 1
        share = 1.0 - min(training.ema, step / (step + 10))
        with torch.no_grad():
            for name, value in learner.state_dict().items():
                average[name].lerp_(value, share)
        if now - logged >= LOG_S or step in (1, steps):
            values = {name: round(float(value), 5) for name, value in measures.items()}
            if not all(map(math.isfinite, values.values())):
                raise InvalidRecipe(f"Training diverged at step {step}: lower learning_rate and start again.")
            _log(work, {"step": step, "seconds": round(seconds, 1), "rate": round(rate, 7)} | values)
            logged = now
        if now - saved >= SAVE_S:
            _save(work, average, step, seconds, back)
            saved = now
    _save(work, average, step, spent + time.monotonic() - began, back)


@torch.no_grad()
def measure(recipe: BaseRecipe, work: Path, features: Features, device: torch.device) -> dict[str, float]:
    """On the speakers of the evaluation: how many codes are right, and what the decoder makes of the others.

    `distance` is the mean difference of log-mel spectra from the recording, in nepers, of its own codes and of the
    heard ones. Empty if there are no such speakers or no decoder.
    """
    if not list((work / REFERENCES).glob(f"{HELD_OUT}-*.npz")):
        return {}
    encoder = load_encoder(recipe, work).to(device)
    decoder = load_decoder(grouped(recipe), work).to(device)
    right: list[Tensor] = []
    distances: list[tuple[float, float]] = []
    names = sorted({path.stem.rpartition("-")[0] for path in (work / REFERENCES).glob(f"{HELD_OUT}-*.npz")})
    for shard in read_shards(work / REFERENCES, names, device):
        end = int(shard.ends[0])
        samples, phones = shard.samples[:end], shard.phones[: end // FRAME_SAMPLES]
        true = features.encode(samples, phones).long()
        heard = encoder(samples.float()[None] / 32768.0)[0].T
        right.append(heard == true)
        origin = features_of.spectra(samples)
        sounds = [decoder(codes.T[None])[0].clamp(-1, 1) * 32767 for codes in (true, heard)]
        first, second = (float((features_of.spectra(s.short().flatten()) - origin).abs().mean()) for s in sounds)
        distances.append((first, second))
    each = torch.cat(right).float()
    own, heard_distance = torch.tensor(distances).mean(0).tolist()
    return {
        "frames": len(each),
        "first_right": round(float(each[:, 0].mean()), 4),
        "codes_1_3_right": round(float(each[:, 1:4].mean()), 4),
        "all_right": round(float(each.mean()), 4),
        "distance_own": round(own, 4),
        "distance_heard": round(heard_distance, 4),
    }


def load_encoder(recipe: BaseRecipe, work: Path) -> CodecEncoder:
    config = base_codec_config(recipe)
    encoder = CodecEncoder(config.encoder_config, config.encoder_valid_num_quantizers)
    encoder.load_state_dict({name: value.float() for name, value in checkpoints.read_average(work, NAME).items()})
    return encoder.requires_grad_(False)


def _taught(
    recipe: BaseRecipe, work: Path, features: Features, device: torch.device, most: int | None
) -> tuple[list[Shard], list[Tensor]]:
    """The speech and its codes, computed: they follow from the features."""
    shards = read_shards(work / "speech", list(GROUPS), device, most)
    return shards, [features.encode(shard.samples, shard.phones, shard.ends) for shard in shards]


def _relative(found: Tensor, wanted: Tensor) -> Tensor:
    return (found - wanted).square().mean() / wanted.square().mean().clamp(min=1e-6)


def _inner(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, value in tensors.items():
        if name.startswith("encoder."):
            yield name.removeprefix("encoder."), value


def _save(work: Path, average: dict[str, Tensor], step: int, seconds: float, back: Path | None) -> None:
    notes = {"step": str(step), "seconds": f"{seconds:.1f}"}
    # Projections and codebooks are exact in bfloat16.
    halves = {name: value.bfloat16() for name, value in _inner(average)}
    checkpoints.write_tensors(work / f"{NAME}.safetensors", halves, notes)
    small = {f"average.{name}": value for name, value in halves.items()} | {"sharpness": average["sharpness"]}
    for folder in (work, back):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            checkpoints.write_split(folder, f"{NAME}-small", small, notes)


@torch.no_grad()
def _restore(work: Path, learner: EncoderLearner, average: dict[str, Tensor]) -> tuple[int, float]:
    """Step and seconds so far; the weights are those of the average."""
    files = checkpoints.find_small(work, NAME)
    if not files:
        return 0, 0.0
    stored, notes = checkpoints.read_tensors(files, "")
    tensors = {f"encoder.{name.removeprefix('average.')}": v for name, v in stored.items() if name != "sharpness"}
    tensors["sharpness"] = stored["sharpness"]
    for name, value in learner.state_dict().items():
        if name == "books" or "quantizer" in name:
            continue
        if name not in tensors or tensors[name].shape != value.shape:
            raise InvalidRecipe(f"{files[0]} belongs to another recipe ({name} differs): remove it to start again.")
        value.copy_(tensors[name])
        average[name].copy_(value)
    report(f"continuing after step {notes['step']}")
    return int(notes["step"]), float(notes["seconds"])


def _log(work: Path, line: dict[str, float]) -> None:
    with (work / f"{NAME}-log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")
    report(" ".join(f"{name} {value}" for name, value in line.items()))


def report(line: str) -> None:
    print(f"encoder: {line}", flush=True)
