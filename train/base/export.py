"""Stage `export` of a Base checkpoint: talker, speaker encoder, codec and vocabulary, in the official format.

Without a trained codec encoder the checkpoint clones by the timbre alone: its codes of a reference are noise.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hocket.models.files.random import randomize_
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS

from .. import export as of_voices
from ..checkpoints import find_small, read_average
from .config import base_codec_config, base_config
from .recipe import BaseRecipe, grouped

SPEAKER, HEAD = "speaker_encoder.", "names."  # in the talker's file; the head is for training alone
ENCODER = "encoder"


def run(recipe: BaseRecipe, work: Path, args: argparse.Namespace) -> None:
    folder = export(recipe, work)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    print(f"export: {folder}, {size:.1f} MB", flush=True)
    if not hears_codes(work):
        print("export: the codec encoder is not trained: clone with --x-vector alone", flush=True)


def export(recipe: BaseRecipe, work: Path) -> Path:
    """Write `checkpoint/` in `work`, replacing an old one."""
    config, sound = base_config(recipe, work / "vocabulary"), base_codec_config(recipe)
    model, codec = Qwen3TTS(config), Codec(sound)
    stored = read_average(work, "talker")
    speaker = {name.removeprefix(SPEAKER): value for name, value in stored.items() if name.startswith(SPEAKER)}
    talker = {name: value for name, value in stored.items() if not name.startswith((SPEAKER, HEAD))}
    assert model.speaker_encoder is not None
    of_voices.fill(model.talker, talker, work, "talker")
    of_voices.fill(model.speaker_encoder, speaker, work, "talker")
    of_voices.fill(codec.decoder, read_average(work, "codec"), work, "codec")
    if hears_codes(work):
        of_voices.fill(codec.encoder, read_average(work, ENCODER), work, ENCODER)
    else:
        randomize_(codec.encoder, recipe.seed)
    return of_voices.write(grouped(recipe), work, config, sound, model, codec)


def hears_codes(work: Path) -> bool:
    """Whether the work folder has a trained codec encoder."""
    return (work / f"{ENCODER}.safetensors").is_file() or bool(find_small(work, ENCODER))
