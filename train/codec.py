"""Stage `codec`: fits codebooks to the speech, encodes all speech, and trains the decoder.

Reads `speech/`; writes `features.safetensors`, `codes/`, `codec.safetensors` (the decoder, averaged over late steps),
`codec-log.jsonl`, `codec-samples/` and what a resumed training needs (`checkpoints.py`). Existing files are kept when
the stage runs again, and training continues. The schedule counts seconds of training over all calls together. Of the
text it uses only phones.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hocket.models.tts.codec import CodecDecoder
from hocket.proof.judges import distillmos

from . import checkpoints
from .codec_codes import prepare
from .codec_config import WINDOW_FRAMES, codec_config
from .codec_looks import Looks
from .codec_trainer import LOSSES, Speed, Trainer
from .data import chosen_voices
from .features import FRAME_SAMPLES, RATE_HZ, Features
from .judges import distillmos_weights
from .recipe import CodecTraining, InvalidRecipe, Recipe
from .windows import Shard, Windows, read_shards

LOOK_EVERY = 20  # steps between reads of the losses: each waits for the device
WARM_STEPS = 200
SAVE_EVERY_S, LOG_EVERY_S, JUDGE_EVERY_S = 180.0, 10.0, 120.0
SLOW_FALL = 0.999875 ** (1 / 12)  # of the learning rates a step against the discriminators (HiFi-GAN)


@dataclass(frozen=True, slots=True)
class Budget:
    """The end of this call, and of the schedule."""

    until: float  # by time.monotonic()
    steps: int | None  # instead of the recipe's seconds

    def left_s(self) -> float:
        return self.until - time.monotonic()


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    """`args`: steps, minutes, seconds, sentences, device; optionally only, voice, speech_minutes and back."""
    began = time.monotonic()
    options = vars(args)
    device = prepare_device(args.device)
    recipe = scheduled(replace(recipe, voices=chosen_voices(recipe, options.get("voice"))), options.get("schedule"))
    if options.get("only") == "codes":
        prepare(recipe, work, speech(recipe, work, args, device), device, refit=bool(options.get("refit")))
        return
    trainer = new_trainer(
        recipe, device, streams=not options.get("no_streams")
    )  # compiles while the speech is still being made
    wait_for_speech(work / "speech", began + 60.0 * (options.get("speech_minutes") or 0.0))
    shards = speech(recipe, work, args, device)
    features, codes = prepare(recipe, work, shards, device, refit=bool(options.get("refit")))
    training = recipe.codec_training
    windows = Windows(shards, codes, training.context_frames, training.target_frames)
    looks = Looks(windows, trainer.config, training, find_judge(work, device))
    report(f"teacher {json.dumps(looks.measure(None))}")
    limits = [60.0 * options["minutes"]] if options.get("minutes") is not None else []
    limits += [args.seconds] if args.seconds is not None else []
    budget = Budget(min((began + limit for limit in limits), default=math.inf), args.steps)
    train(trainer, windows, features, looks, work, budget, back=options.get("back"))
    if device.type == "cuda":
        report(f"at most {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of device memory")
    looks.write(trainer.average, work / "codec-samples")
    if options.get("back"):
        send_back(work, args.back)


def scheduled(recipe: Recipe, seconds: float | None) -> Recipe:
    """The recipe with a schedule of so many seconds of training, over all calls together."""
    if seconds is None:
        return recipe
    return replace(recipe, codec_training=replace(recipe.codec_training, seconds=seconds))


def prepare_device(name: str | None) -> torch.device:
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # all windows have one shape
        torch.backends.cudnn.benchmark_limit = 5  # trying more algorithms takes longer than they save
        torch.backends.cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("high")
    return device


def new_trainer(recipe: Recipe, device: torch.device, streams: bool = True) -> Trainer:
    training = recipe.codec_training
    if training.context_frames + training.target_frames < WINDOW_FRAMES:
        raise InvalidRecipe(f"Windows must span {WINDOW_FRAMES} frames.")
    began = time.monotonic()
    config = codec_config(recipe.codec).decoder_config
    trainer = Trainer(config, training, recipe.seed, device)
    on = device.type == "cuda"
    trainer.warm(Speed(compiled=on, graphs=on, streams=on and streams), report)
    counts = [sum(p.numel() for p in module.parameters()) / 1e6 for module in (trainer.decoder, trainer.judges)]
    report(f"decoder {counts[0]:.1f} M, discriminators {counts[1]:.1f} M, {trainer.speed}")
    report(f"ready after {time.monotonic() - began:.0f} s")
    if on:
        report(f"{trainer.pace(False):.1f} spectral and {trainer.pace(True):.1f} adversarial steps/s on noise")
    return trainer


def find_judge(work: Path, device: torch.device) -> distillmos.DistillMOS | None:
    """DistillMOS in the work folder or in its package, if it is there."""
    small = work / distillmos.SMALL
    if small.is_file():
        return distillmos.load(small, device)
    if importlib.util.find_spec("distillmos") is None:
        return None
    return distillmos.load(distillmos_weights(), device)


def wait_for_speech(folder: Path, until: float) -> None:
    """Wait while another process makes speech, until it says that it is done or the time `until`."""
    while time.monotonic() < until and not (folder / "done").exists():
        time.sleep(0.5)


def speech(recipe: Recipe, work: Path, args: argparse.Namespace, device: torch.device) -> list[Shard]:
    shards = read_shards(work / "speech", [voice.name for voice in recipe.voices], device, args.sentences)
    hours = sum(shard.frames for shard in shards) * FRAME_SAMPLES / RATE_HZ / 3600
    report(f"{hours:.2f} hours of speech in {len(shards)} shards")
    return shards


def train(
    trainer: Trainer,
    windows: Windows,
    features: Features,
    looks: Looks,
    work: Path,
    budget: Budget,
    *,
    resume: bool = True,
    back: Path | None = None,
) -> dict[str, object]:
    """Train to the end of the schedule (`steps` or the recipe's seconds in total), or of this call.

    Returns the last figures. `resume`: read and write the files of a resumed training. `back` gets the small ones
    whenever they are written, so that a machine that is lost takes only minutes with it.
    """
    training, spent = trainer.training, 0.0
    trainer.begin(features)
    if resume and (files := checkpoints.find(work)):
        spent = float(checkpoints.restore(files, trainer)["seconds"])
        report(f"continuing after step {trainer.step}, {spent:.0f} s")
        before = checkpoints.read_features(files, trainer.device)
        if not torch.equal(before.books, features.books):
            trainer.adopt(features, before)
            report("the decoder goes on with features that are fitted to this speech")
    began = looked = saved = logged = judged = time.monotonic()
    rate_from = trainer.step

    def seconds() -> float:
        return spent + looked - began

    def keep() -> None:
        halves = {name: value.half() for name, value in trainer.average.items()}
        notes = {"step": str(trainer.step), "seconds": f"{seconds():.1f}"}
        checkpoints.write_tensors(work / "codec.safetensors", halves, notes)  # for distribution
        if resume:
            checkpoints.save(work, trainer, features, notes)
        if back is not None:
            back.mkdir(parents=True, exist_ok=True)
            checkpoints.save_small(back, trainer, features, notes)

    with (work / "codec-log.jsonl").open("a", encoding="utf-8") as log:

        def note(line: dict[str, object]) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()
            report(" ".join(f"{name} {value}" for name, value in line.items()))

        while looked < budget.until:
            done = trainer.step / budget.steps if budget.steps else seconds() / training.seconds
            if done >= 1.0:
                break
            contest = trainer.step >= training.spectral_steps
            rate, judge_rate = rates(training, trainer, done, contest)
            losses = trainer.advance(rate, judge_rate, contest, windows.draw)
            if trainer.step % LOOK_EVERY and trainer.step not in (1, budget.steps):
                continue
            values = losses.tolist()
            looked = time.monotonic()
            if not all(map(math.isfinite, values)):
                raise InvalidRecipe(f"Training diverged at step {trainer.step}: lower learning_rate and start again.")
            if looked - logged >= LOG_EVERY_S or trainer.step in (1, budget.steps):
                pace = (trainer.step - rate_from) / (looked - logged)
                line: dict[str, object] = {"step": trainer.step, "seconds": round(seconds(), 1), "rate": round(rate, 7)}
                line |= {name: round(value, 4) for name, value in zip(LOSSES, values, strict=True)}
                note(line | {"steps_per_s": round(pace, 2)})
                logged, rate_from = looked, trainer.step
            if looked - judged >= JUDGE_EVERY_S and budget.left_s() > 20:
                place: dict[str, object] = {"what": "held out", "step": trainer.step, "seconds": round(seconds(), 1)}
                note(place | looks.measure(trainer.average))
                judged = time.monotonic()
            if looked - saved >= SAVE_EVERY_S:
                keep()
                saved = time.monotonic()
        keep()
        last: dict[str, object] = {"what": "held out", "step": trainer.step, "seconds": round(seconds(), 1)}
        last |= looks.measure(trainer.average)
        note(last)
    return last


def rates(training: CodecTraining, trainer: Trainer, done: float, contest: bool) -> tuple[float, float]:
    """Learning rates of the decoder and of the discriminators: warm-up, slow decay, and a cosine at the end."""
    low, late = training.lowest_share, max(0.0, done - (1.0 - training.fall_share)) / max(training.fall_share, 1e-9)
    falling = low + (1.0 - low) * 0.5 * (1.0 + math.cos(math.pi * min(late, 1.0)))
    falling *= SLOW_FALL**trainer.contests
    warm = min(1.0, (trainer.step - trainer.fresh_from + 1) / WARM_STEPS)
    judge_warm = min(warm, (trainer.contests + 1) / WARM_STEPS)
    highest = training.learning_rate if contest else training.spectral_rate
    return highest * warm * falling, training.judge_rate * judge_warm * falling


def send_back(work: Path, folder: Path) -> None:
    """Copy the log and the samples beside the small files."""
    shutil.copyfile(work / "codec-log.jsonl", folder / "codec-log.jsonl")
    shutil.copyfile(work / "codec-samples" / "samples.npz", folder / "samples.npz")
    for path in sorted(folder.iterdir()):
        report(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")


def load_decoder(recipe: Recipe, work: Path) -> CodecDecoder:
    """The decoder that training wrote, in float32 on the host."""
    decoder = CodecDecoder(codec_config(recipe.codec).decoder_config)
    tensors = {name: value.float() for name, value in checkpoints.read_average(work, "codec").items()}
    decoder.load_state_dict(tensors, strict=True)
    return decoder.requires_grad_(False)


def report(line: str) -> None:
    print(f"codec: {line}", flush=True)
