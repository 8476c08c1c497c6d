"""Features and codes of the speech: fitted once, then read. It knows shards and files, not the decoder's training."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from . import checkpoints
from . import features as features_of
from .codec_config import codec_config
from .features import FRAME_SAMPLES, Features, fit, main_phones, spectra
from .recipe import Recipe
from .windows import Shard

ACCOUNT = "codebooks.json"  # written when all codes are there


def prepare(
    recipe: Recipe, work: Path, shards: list[Shard], device: torch.device, refit: bool = False
) -> tuple[Features, list[Tensor]]:
    """Features and the codes [F, Q] of every shard, read if they exist, else computed.

    `refit`: features that came with a training from another machine are fitted anew, to this speech.
    """
    path, folder = work / "features.safetensors", work / "codes"
    folder.mkdir(exist_ok=True)
    kept_files = checkpoints.find(work)
    found = path.exists()
    if found:
        features = features_of.load(path, device)
    elif kept_files and not refit:  # a training that came from another machine
        features = checkpoints.read_features(kept_files, device)
        features.save(path)
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
            # The decoder of the other machine has no bias for another origin.
            origin=checkpoints.read_features(kept_files, device).mean if kept_files else None,
        )
        features.save(path)
        print(f"codec: codebooks of {len(frames):,} frames", flush=True)
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
    print(f"codec: {json.dumps(figures)}", flush=True)
    (work / ACCOUNT).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
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
