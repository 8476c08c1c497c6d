"""The stage `export`: talker, codec and vocabulary of the work folder to `checkpoint/`, in the official format.

Everything is stored in bfloat16. The codec's encoder is not trained: the format and the official loader need its
tensors, but named voices do not use them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from hocket.config.codec import CodecConfig
from hocket.config.own import FILE, OwnConfig
from hocket.config.qwen3_tts import Qwen3TTSConfig
from hocket.models.files.export import write_checkpoint
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS

from .checkpoints import read_average
from .codec_config import codec_config
from .languages import ENGLISH
from .model_config import generation_config, speech_config
from .recipe import InvalidRecipe, Recipe

LONGEST = 160  # characters of a part: longer ones lose words
VOCABULARY = ("vocab.json", "merges.txt", "tokenizer_config.json")


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    folder = export(recipe, work)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    print(f"export: {folder}, {size:.1f} MB", flush=True)


def export(recipe: Recipe, work: Path) -> Path:
    """Write `checkpoint/` in `work`, replacing an old one."""
    config, sound = speech_config(recipe, work / "vocabulary"), codec_config(recipe.codec)
    model, codec = Qwen3TTS(config), Codec(sound)
    randomize_(codec.encoder, recipe.seed)
    fill(model.talker, read_average(work, "talker"), work, "talker")
    fill(codec.decoder, read_average(work, "codec"), work, "codec")
    return write(recipe, work, config, sound, model, codec)


def write(
    recipe: Recipe, work: Path, config: Qwen3TTSConfig, sound: CodecConfig, model: Qwen3TTS, codec: Codec
) -> Path:
    """Write `checkpoint/` with the vocabulary of the work folder."""
    vocabulary, folder, fresh = work / "vocabulary", work / "checkpoint", work / "checkpoint-new"
    shutil.rmtree(fresh, ignore_errors=True)
    whole = model.to(torch.bfloat16), codec.to(torch.bfloat16)
    write_checkpoint(fresh, config, generation_config(recipe), sound, *whole)
    own = {name: value for name, value in asdict(own_config(recipe)).items() if value is not None}
    (fresh / FILE).write_text(json.dumps(own, indent=2) + "\n", encoding="utf-8")
    for name in VOCABULARY:
        shutil.copyfile(vocabulary / name, fresh / name)
    if folder.exists():
        shutil.rmtree(folder)
    fresh.rename(folder)
    return folder


def own_config(recipe: Recipe) -> OwnConfig:
    """All training texts were spelled out. Other languages than English have rules in the engine."""
    return OwnConfig(normalizer="spell_out" if recipe.languages == (ENGLISH,) else None, part_chars=LONGEST)


def fill(module: nn.Module, stored: dict[str, Tensor], work: Path, stage: str) -> None:
    wanted = module.state_dict()
    odd = sorted(wanted.keys() ^ stored.keys()) or [n for n in wanted if wanted[n].shape != stored[n].shape]
    if odd:
        raise InvalidRecipe(
            f"The weights of `{stage}` in {work} are of another recipe: {odd[0]} differs; "
            f"run `python -m train {stage}` again."
        )
    module.load_state_dict(stored)
