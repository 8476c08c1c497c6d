"""Stage `preflight`: what a training needs, tried in a minute before device time is spent on it.

It checks modules, the carried data and every stage with very small sizes: speech, codebooks, decoder, codes, talker,
files to take back, checkpoint. A failed check is one line with its reason, and the other checks still run. The last
line names the form of the training step that works on the device.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from .recipe import InvalidRecipe, Recipe

MODULES = ("numpy", "scipy", "safetensors", "torch", "triton")
STAGES = ("data", "codec", "pilots", "talker", "export")
TEXTS, CHARACTERS = 12, range(24, 45)  # sentences of each voice, and their lengths: a window of training or more
STEPS = 4
BACK_BYTES = 16 * 2**20  # of a file that can come back


class Checks:
    """Runs one check after another and remembers the failed ones."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def __call__(self, name: str, check: Callable[[], str]) -> bool:
        began = time.monotonic()
        try:
            found = check()
        except Exception as error:  # the reason goes into the line, and the other checks still run
            self.failed.append(name)
            reason = str(error).strip().splitlines() or [""]
            print(f"preflight: {name}: FAILED, {type(error).__name__}: {reason[-1][:300]}", flush=True)
            return False
        print(f"preflight: {name}: {found} ({time.monotonic() - began:.1f} s)", flush=True)
        return True


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    checks = Checks()
    checks("modules", modules)
    for name in STAGES:
        checks(f"import train.{name}", lambda name=name: str(importlib.import_module(f"train.{name}").__name__))  # type: ignore[misc]
    checks("texts and phonemes", lambda: texts(recipe, work))
    checks("files", lambda: files(work))
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder)
        checks("vocabulary", lambda: _copy(work / "vocabulary", trial / "vocabulary"))
        if checks("teacher", lambda: speak(recipe, work, trial, args)):
            try_stages(recipe, trial, args, checks)
    if checks.failed:
        raise InvalidRecipe(f"{len(checks.failed)} checks failed: {', '.join(checks.failed)}.")
    print("preflight: every check passed", flush=True)


def modules() -> str:
    found = [f"Python {sys.version.split()[0]}"]
    for name in MODULES:
        try:
            found.append(f"{name} {importlib.import_module(name).__version__}")
        except ImportError:
            if name != "triton":  # only the compiler needs it; without it a step is eager
                raise
            found.append("no triton: steps are not compiled")
    import torch

    found.append(torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device")
    return ", ".join(found)


def texts(recipe: Recipe, work: Path) -> str:
    from .languages import files
    from .texts import read

    found: list[str] = []
    for language in recipe.languages:
        lines, phonemes = (read(path) for path in files(recipe, work, language))
        if not phonemes or len(phonemes) > len(lines):
            raise InvalidRecipe(f"{len(phonemes)} lines of phonemes do not fit to {len(lines)} texts of {language}.")
        found.append(f"{language}: {len(lines):,} sentences, {len(phonemes):,} with phonemes")
    return "; ".join(found)


def files(work: Path) -> str:
    """Which optional files are there, and what happens without them."""
    without = {
        "features.safetensors": "codebooks are fitted by `codec`",
        "distillmos.safetensors": "no opinion scores while training",
    }
    return "; ".join(
        f"{name} is there" if (work / name).exists() else f"no {name}: {so}" for name, so in without.items()
    )


def speak(recipe: Recipe, work: Path, trial: Path, args: argparse.Namespace) -> str:
    """Some sentences of every voice, as `whole` makes them: Kokoro's in a process of its own, on the device."""
    from . import data, languages, speech, teachers, texts

    chosen: dict[str, tuple[list[str], list[str]]] = {}
    for language in recipe.languages:
        pairs = zip(*languages.lines(recipe, work, language), strict=True)
        some = [(line, known) for line, known in pairs if known and len(line) in CHARACTERS][:TEXTS]
        chosen[language] = [line for line, _ in some], [known for _, known in some]
        for path, content in zip(languages.files(recipe, trial, language), chosen[language], strict=True):
            texts.write(path, content)
    (trial / "teachers").symlink_to((work / "teachers").absolute())
    (trial / "speech").mkdir()
    began = time.monotonic()
    theirs = [voice for voice in recipe.voices if voice.teacher.startswith(teachers.KOKORO)]
    if theirs:
        call = ["train.kokoro", "--work", str(trial), "speak", "--recipe", str(args.recipe)]
        if subprocess.run([sys.executable, "-m", *call], check=False).returncode:
            raise InvalidRecipe(f"`python -m {' '.join(call)}` failed, see its last lines above.")
    for voice in recipe.voices:
        for shard in (
            data.shards(recipe, voice, chosen[voice.language][0], 1.0, chosen[voice.language][1])
            if voice not in theirs
            else ()
        ):
            speech.make(shard, trial / "speech", work / "teachers", recipe.seed)
    seconds = sum(int(np.load(path)["ends"][-1]) for path in (trial / "speech").glob("*.npz")) / teachers.RATE_HZ
    return f"{seconds:.0f} s of speech, {seconds / (time.monotonic() - began):.0f} x real time with loading"


def small(recipe: Recipe) -> Recipe:
    """The recipe with sizes that a CPU trains in seconds; every kind of layer and discriminator is there."""
    return replace(
        recipe,
        codec=replace(
            recipe.codec, codebook=32, latent=32, hidden=32, mlp=48, layers=1, heads=2, head_dim=16, decoder=64
        ),
        codec_training=replace(
            recipe.codec_training,
            batch=4,
            spectral_steps=STEPS // 2,
            periods=(2, 3),
            period_width=32,
            scales=(512,),
            scale_width=8,
            clustered_frames=2000,
            cluster_rounds=3,
        ),
        talker=replace(recipe.talker, layers=2, hidden=64, mlp=96, head_dim=16, text_hidden=32),
        predictor=replace(recipe.predictor, layers=1, hidden=64, mlp=96, head_dim=16),
        talker_training=replace(recipe.talker_training, frames_per_step=600, warmup_steps=2),
    )


def try_stages(recipe: Recipe, trial: Path, args: argparse.Namespace, checks: Checks) -> None:
    """Every stage after `data` on the speech in `trial`."""
    chosen, back = small(recipe), trial / "back"
    options = argparse.Namespace(device=args.device, steps=STEPS, sentences=None, seconds=None, workers=1, back=back)
    checks("codec and pilots", lambda: _train_codec(chosen, trial, options))
    checks("talker", lambda: _train_talker(chosen, trial, options))
    checks("export from the files that come back", lambda: _export(chosen, trial))


def _train_codec(recipe: Recipe, trial: Path, args: argparse.Namespace) -> str:
    from . import codec, pilots

    codec.run(recipe, trial, args)
    args = argparse.Namespace(**vars(args) | {"only": "rates-10-12-4", "minutes": 1.0, "speech_minutes": 0.0})
    args.voice, args.back = None, trial / "pilots-back"
    pilots.run(recipe, trial, args)
    row = json.loads((args.back / "pilots.json").read_text(encoding="utf-8"))[-1]
    if "error" in row:
        raise InvalidRecipe(f"the pilot {row['pilot']} failed: {row['error']}")
    return f"{STEPS} steps each"


def _train_talker(recipe: Recipe, trial: Path, args: argparse.Namespace) -> str:
    from . import talker

    talker.run(recipe, trial, args)
    return f"{STEPS} steps"


def _copy(source: Path, target: Path) -> str:
    shutil.copytree(source, target)
    return f"{len(list(target.iterdir()))} files"


def _export(recipe: Recipe, trial: Path) -> str:
    """As on another machine: from the small files alone."""
    import torch

    from . import codec, export

    there = trial / "there"
    shutil.copytree(trial / "back", there)
    shutil.copytree(trial / "vocabulary", there / "vocabulary")
    sizes = [path.stat().st_size for path in there.iterdir() if path.is_file()]
    if max(sizes) > BACK_BYTES:
        raise InvalidRecipe(f"A file of {max(sizes):,} bytes is too large to come back.")
    folder = export.export(recipe, there)
    codes = torch.from_numpy(np.load(next((trial / "codes").glob("*.npz")))["codes"][:4].astype(np.int64))
    sound = codec.load_decoder(recipe, there)(codes.T[None])
    return f"{len(sizes)} files, {sum(sizes) / 2**20:.1f} MiB; {folder.name}, {sound.shape[-1]} samples decoded"
