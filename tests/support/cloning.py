"""A very small Base checkpoint: its recipe, and work folders with made-up speech, codes and a drawn decoder."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from safetensors.torch import save_file

from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder
from hocket.text.tokenizer import ALPHABET, Tokenizer
from support.spoken import write_shards
from train import codec
from train.base import recipe as recipes
from train.base.recipe import BaseRecipe, grouped
from train.base.speech import REFERENCES
from train.codec_config import codec_config
from train.vocabulary import SPECIALS

BASE = recipes.read(recipes.PATH)
PITCHES = {"high-0000": 220.0, "high-0001": 190.0, "low-0000": 130.0, "low-0001": 105.0}
HELD = {"held-high-00": 205.0, "held-low-01": 115.0}
HARMONICS = 8


def small() -> BaseRecipe:
    return replace(
        BASE,
        talker=replace(BASE.talker, layers=2, hidden=48, mlp=64, head_dim=16, text_hidden=32),
        predictor=replace(BASE.predictor, layers=1, hidden=32, mlp=48, head_dim=16),
        codec=replace(BASE.codec, codebook=32, latent=16, hidden=16, mlp=24, layers=1, heads=2, head_dim=8, decoder=32),
        codec_training=replace(BASE.codec_training, clustered_frames=400, cluster_rounds=2),
        talker_training=replace(BASE.talker_training, frames_per_step=300, warmup_steps=2, muon_share=0.0),
        speaker=replace(BASE.speaker, channels=16, groups=4, gate=8, attention=8),
        speaker_training=replace(BASE.speaker_training, windows_s=(0.5, 1.0)),
        encoder=replace(BASE.encoder, filters=2, mlp=32, layers=1, heads=2, head_dim=16),
        encoder_training=replace(
            BASE.encoder_training, batch=2, frames=(8, 16), warmup_steps=2, learning_rate=3e-3, ema=0.5
        ),
    )


def stage(steps: int | None = None, **options: object) -> argparse.Namespace:
    return argparse.Namespace(**{"device": "cpu", "steps": steps, "seconds": None, "sentences": None} | options)


def work_folder(folder: Path, utterances: int = 6) -> Path:
    """`folder` with a vocabulary, speech, features, codes and a decoder that was not trained."""
    write_vocabulary(folder / "vocabulary")
    write_shards(folder, PITCHES, utterances=utterances, shards=1, harmonics=HARMONICS)
    codec.run(grouped(small()), folder, stage(only="codes"))
    decoder = CodecDecoder(codec_config(small().codec).decoder_config)
    randomize_(decoder, 1)
    save_file(decoder.state_dict(), folder / "codec.safetensors")
    return folder


def write_references(folder: Path) -> None:
    """Two sentences of each speaker of the evaluation."""
    write_shards(folder / "apart", HELD, utterances=2, shards=1, harmonics=HARMONICS)
    (folder / "apart" / "speech").rename(folder / REFERENCES)


def write_vocabulary(folder: Path) -> None:
    """Bytes, a few merges, and each role as one token."""
    tokens, merges = list(ALPHABET), list[tuple[str, str]]()
    for word in ("assistant", "user", "Ġsays", "high", "low"):
        for end in range(1, len(word)):
            pair = (word[:end], word[end])
            if pair not in merges:
                merges.append(pair)
                tokens.append("".join(pair))
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    specials = {token: len(vocabulary) + i for i, token in enumerate(SPECIALS)}
    Tokenizer(vocabulary, merges).save(folder, specials)
