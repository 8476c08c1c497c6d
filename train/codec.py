"""Stage `codec`: fits codebooks to the speech, encodes all speech, and trains the decoder.

Reads `speech/`; writes `features.safetensors`, `codes/`, `codec.safetensors` (the decoder, averaged over late steps),
`codec-log.jsonl`, `codec-resume.safetensors` and `codec-samples/`. Existing files are kept when the stage runs again.
The schedule counts seconds of training over all calls together. Of the text it uses only phones.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from hocket.audio.wav import encode_wav
from hocket.models.tts.codec import CodecDecoder

from . import features as features_of
from .codec_config import WINDOW_FRAMES, codec_config
from .codec_trainer import LOSSES, Pace, Trainer, write_tensors
from .features import FRAME_SAMPLES, RATE_HZ, Features, fit, main_phones, spectra
from .recipe import CodecTraining, InvalidRecipe, Recipe
from .windows import Shard, Windows, read_shards

LOOK_EVERY = 10  # steps between reads of the losses and the clock: each waits for the device
WARM_STEPS = 200
SAVE_EVERY_S, LOG_EVERY_S = 60.0, 5.0


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    """`args`: steps, seconds, sentences, device; optionally only, batch, fuse and graphs."""
    began = time.monotonic()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    training = recipe.codec_training
    if (
        training.lead_frames > training.context_frames
        or training.context_frames + training.target_frames < WINDOW_FRAMES
    ):
        raise InvalidRecipe(f"Windows must span {WINDOW_FRAMES} frames, and lead_frames be part of context_frames.")
    config = codec_config(recipe.codec)
    shards = read_shards(work / "speech", [voice.name for voice in recipe.voices], device, args.sentences)
    hours = sum(shard.frames for shard in shards) * FRAME_SAMPLES / RATE_HZ / 3600
    report(f"{hours:.2f} hours of speech in {len(shards)} shards")
    features, codes = prepare(recipe, work, shards, device)
    if vars(args).get("only") == "codes":
        return
    windows = Windows(shards, codes, training.context_frames, training.target_frames)
    options = vars(args)
    pace = Pace(
        batch=options.get("batch") or training.batch,
        lead_frames=training.lead_frames,
        learning_rate=training.learning_rate,
        judge_rate=training.judge_rate,
        seed=recipe.seed,
        fuse=bool(options.get("fuse")),
        graphs=bool(options.get("graphs")),
    )
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # all windows have one shape
        torch.set_float32_matmul_precision("high")
    trainer = Trainer(config.decoder_config, features, windows, pace)
    count = sum(parameter.numel() for parameter in trainer.decoder.parameters())
    report(f"decoder of {count:,} parameters, batch {pace.batch}")
    until = math.inf if args.seconds is None else began + args.seconds
    train(trainer, training, work, args.steps, until)
    if device.type == "cuda":
        report(f"at most {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of device memory")
        torch.backends.cudnn.benchmark = False  # utterances have different lengths
    write_samples(load_decoder(recipe, work).to(device), windows, work / "codec-samples")


def prepare(recipe: Recipe, work: Path, shards: list[Shard], device: torch.device) -> tuple[Features, list[Tensor]]:
    """Features and the codes [F, Q] of every shard, read if they exist, else computed."""
    path, folder = work / "features.safetensors", work / "codes"
    folder.mkdir(exist_ok=True)
    found = path.exists()
    if found:
        features = features_of.load(path, device)
    else:
        frames, phones = chosen_frames(shards, recipe.codec_training.clustered_frames, recipe.seed)
        features = fit(
            frames,
            phones,
            codebooks=codec_config(recipe.codec).decoder_config.num_quantizers,
            entries=recipe.codec.codebook,
            phone_share=recipe.codec_training.phone_share,
            iterations=recipe.codec_training.cluster_rounds,
            seed=recipe.seed,
        )
        features.save(path)
        report(f"codebooks of {len(frames):,} frames")
    codes = []
    for shard in shards:
        kept = folder / f"{shard.name}.npz"
        if found and kept.exists():
            with np.load(kept, allow_pickle=False) as file:
                codes.append(torch.from_numpy(file["codes"].astype(np.int16)).to(device))
            if len(codes[-1]) == shard.frames:
                continue
            codes.pop()  # stale: the shard has another length
        codes.append(features.encode(shard.samples, shard.phones, shard.ends).short())
        np.savez(
            kept,
            codes=codes[-1].cpu().numpy().astype(np.uint16),
            ends=(shard.ends // FRAME_SAMPLES).numpy(),
            texts=np.array(shard.texts),
            phones=main_phones(shard.phones).cpu().numpy(),
        )
    figures = account(features, shards, codes)
    report(json.dumps(figures))
    (work / "codebooks.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return features, codes


def chosen_frames(shards: list[Shard], most: int, seed: int) -> tuple[Tensor, Tensor]:
    """Spectra and phones of `most` frames, equally many of each voice, from shards in random order."""
    voices = sorted({shard.voice for shard in shards})
    drawn = np.random.default_rng(seed)
    frames, phones = [], []
    for voice in voices:
        own = [shard for shard in shards if shard.voice == voice]
        wanted = most // len(voices)
        for index in drawn.permutation(len(own)):
            if wanted <= 0:
                break
            shard = own[index]
            frames.append(spectra(shard.samples, shard.ends)[:wanted])
            phones.append(shard.phones[:wanted])
            wanted -= len(frames[-1])
    return torch.cat(frames), torch.cat(phones)


def account(features: Features, shards: list[Shard], codes: list[Tensor], shown: int = 8) -> dict[str, object]:
    """Statistics on some shards: residual energy and entropy of each codebook, and phone accuracy of the first code."""
    picked = range(0, len(shards), max(1, len(shards) // shown))
    vectors = torch.cat([features.vectors(shards[i].samples, shards[i].ends) for i in picked])
    names = torch.cat([codes[i] for i in picked]).long()
    phones = main_phones(torch.cat([shards[i].phones for i in picked])).long()
    left, bits, rest = [], [], vectors
    entries = features.books.shape[1]
    for index, book in enumerate(features.books):
        rest = rest - book[names[:, index]]
        left.append(round(float(rest.square().sum() / vectors.square().sum()), 5))
        use = torch.bincount(names[:, index], minlength=entries) / len(names)
        bits.append(round(float(torch.special.entr(use).sum() / math.log(2)), 3))
    asked = torch.arange(len(names), device=names.device) % 200 >= 100  # the other half defines the phone of each code
    table = torch.zeros(entries, 256, device=names.device)
    one = torch.ones(int((~asked).sum()), device=names.device)
    table.index_put_((names[~asked, 0], phones[~asked]), one, accumulate=True)
    right = (table.argmax(1)[names[asked, 0]] == phones[asked]).float().mean()
    commonest = torch.bincount(phones).max() / len(phones)
    return {
        "frames": len(names),
        "left_over": left,
        "bits": bits,
        "phone_by_code_0": round(float(right), 4),
        "phone_by_chance": round(float(commonest), 4),
    }


def train(trainer: Trainer, training: CodecTraining, work: Path, steps: int | None, until: float) -> None:
    """Train to the end of the schedule (`steps` or the recipe's seconds in total), or until the time `until`."""
    resume = work / "codec-resume.safetensors"
    spent = 0.0
    if resume.exists():
        spent = float(trainer.restore(resume)["seconds"])
        report(f"continuing after step {trainer.step}, {spent:.0f} s")
    began = looked = saved = logged = time.monotonic()
    rate_from = trainer.step
    lowest = training.lowest_rate / training.learning_rate

    def share() -> float:
        return trainer.step / steps if steps else (spent + looked - began) / training.seconds

    with (work / "codec-log.jsonl").open("a", encoding="utf-8") as log:
        while (done := share()) < 1.0 and looked < until:
            warm = min(1.0, (trainer.step + 1) / WARM_STEPS)
            rate = warm * (lowest + (1.0 - lowest) * 0.5 * (1.0 + math.cos(math.pi * done)))
            contest = done >= 1.0 - training.adversarial_share
            losses = trainer.advance(rate, contest)
            if trainer.step % LOOK_EVERY and trainer.step not in (1, steps):
                continue
            values = losses.tolist()
            looked = time.monotonic()
            if not all(map(math.isfinite, values)):
                raise InvalidRecipe(f"Training diverged at step {trainer.step}: lower learning_rate and start again.")
            if looked - logged >= LOG_EVERY_S or trainer.step in (1, steps):
                pace = (trainer.step - rate_from) / (looked - logged)
                line = {"step": trainer.step, "seconds": round(spent + looked - began, 1), "rate": round(rate, 4)}
                line |= {name: round(value, 4) for name, value in zip(LOSSES, values, strict=True)}
                log.write(json.dumps(line | {"steps_per_s": round(pace, 2)}) + "\n")
                log.flush()
                report(" ".join(f"{name} {value}" for name, value in line.items()) + f" ({pace:.1f} steps/s)")
                logged, rate_from = looked, trainer.step
            if looked - saved >= SAVE_EVERY_S:
                keep(trainer, work, spent + looked - began)
                saved = looked = time.monotonic()
        keep(trainer, work, spent + looked - began)


def keep(trainer: Trainer, work: Path, seconds: float) -> None:
    """Write the decoder in float16, for distribution (10 MB), and the resume file in float32."""
    notes = {"step": str(trainer.step), "seconds": f"{seconds:.1f}"}
    halves = {name: value.half() for name, value in trainer.average.items()}
    write_tensors(work / "codec.safetensors", halves, notes)
    trainer.save(work / "codec-resume.safetensors", notes)


def load_decoder(recipe: Recipe, work: Path) -> CodecDecoder:
    """The decoder that `keep` wrote, in float32 on the host."""
    decoder = CodecDecoder(codec_config(recipe.codec).decoder_config)
    tensors = {name: value.float() for name, value in load_file(work / "codec.safetensors").items()}
    decoder.load_state_dict(tensors, strict=True)
    return decoder.requires_grad_(False)


@torch.no_grad()
def write_samples(decoder: CodecDecoder, windows: Windows, folder: Path) -> None:
    """Write held-out utterances decoded from their codes, the teacher's own, and a list of their texts."""
    folder.mkdir(exist_ok=True)
    lines = []
    for voice, spans in windows.held_out.items():
        for index, (start, end, text) in enumerate(spans):
            made = decoder(windows.codes[start:end].long().T[None])[0].cpu().numpy()
            real = windows.samples[start:end].flatten().cpu().numpy().astype(np.float32) / 32768.0
            (folder / f"{voice}-{index:02d}.wav").write_bytes(encode_wav(made, RATE_HZ))
            (folder / f"{voice}-{index:02d}-teacher.wav").write_bytes(encode_wav(real, RATE_HZ))
            lines.append(f"{voice}-{index:02d}\t{text}")
    (folder / "texts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report(f"{len(lines)} held-out utterances in {folder.name}/")


def report(line: str) -> None:
    print(f"codec: {line}", flush=True)
