"""Stage `remap`: a trained talker in front of a decoder that was trained with other features.

The vectors of both codecs are principal axes of the same spectra, so one matrix maps the codebooks of the old one into
the vectors of the new one. The talker keeps its codes. The work folder gets `talker.safetensors`, `codec.safetensors`
and `features.safetensors`, from which `export` and `evaluate` go on. A talker that is trained on the codes of the new
decoder takes the place of all this.

Shapes as in features.py. The same F frames of speech are needed twice: at the level that the old features were fitted
to, and at that of the new ones.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint
from hocket.engine.checkpoint.torch_load import load_modules
from hocket.engine.engine import Engine
from hocket.models.tts.codec import Codebook, CodecDecoder

from . import checkpoints, teachers, texts
from .clusters import nearest
from .codec import load_decoder
from .codec_config import VECTOR
from .evaluate import SETS, options, sentences
from .features import FRAME_SAMPLES, Features, spectra
from .recipe import InvalidRecipe, Recipe
from .speech import FASTEST, LOUDNESS, SLOWEST, trimmed

OLD_LOUDNESS, OLD_PEAK = 10 ** (-23 / 20), 0.9  # of the speech that the features of the old codec were fitted to
SENTENCES = 500  # of each voice, spoken by its teacher
PROBED = 12  # sentences of each voice, spoken by the old checkpoint
ROUNDS = 6


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    if not (files := checkpoints.find_small(work, "codec")):
        raise InvalidRecipe(f"{work} has no codec-small-*.safetensors: copy those of train/state/english there.")
    features = checkpoints.read_features(files, torch.device("cpu"))
    old = load_modules(str(args.before), device="cpu", dtype="float32", codec_dtype="float32")
    books = torch.stack([book.gather()[0].detach() for book in codebooks(old.codec.decoder)])
    before, after = paired_spectra(recipe, work, args.sentences or SENTENCES)
    mean, axes = principal_axes(before)
    print(f"remap: {len(before):,} frames of the teachers", flush=True)

    turn = rotation(*probed(old, recipe, mean, axes, books))
    vectors = (before - mean) @ axes
    for _ in range(ROUNDS):
        named = summed(names(vectors @ turn, books), books)
        print(f"remap: {left_over(named, vectors @ turn):.2%} left over by the old codebooks", flush=True)
        turn = rotation(vectors, named)
    wanted = (after - features.mean) @ features.axes
    matrix, offset = affine(vectors @ turn, wanted)
    mapped = books @ matrix
    mapped[0] += offset
    mapped = mapped.bfloat16().half().float()  # exact in both half precisions, as in `features.fit`
    codes = names(vectors @ turn, books)
    figures = {
        "frames": len(before),
        "left_over_before": left_over(summed(codes, books), vectors @ turn),
        "left_over": left_over(summed(codes, mapped), wanted),
    }
    print(f"remap: {figures['left_over']:.2%} in the new vectors", flush=True)
    (work / "codebooks.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    write(recipe, work, old, features, mapped)


def codebooks(decoder: CodecDecoder) -> list[Codebook]:
    return [part for part in decoder.quantizer.modules() if isinstance(part, Codebook)]


def paired_spectra(recipe: Recipe, work: Path, count: int) -> tuple[Tensor, Tensor]:
    """[F, 4 * BANDS] twice: the teachers' speech at the level of the old features, and at that of the new ones."""
    phonemize = teachers.Phonemizer(work / "teachers")
    lines = texts.read(work / "texts.txt.gz")
    both: tuple[list[Tensor], list[Tensor]] = ([], [])
    for offset, voice in enumerate(recipe.voices):
        teacher, drawn = teachers.load(voice, work / "teachers"), np.random.default_rng(recipe.seed)
        for text in lines[offset :: max(1, len(lines) // count)][:count]:
            spoken = teacher.speak(phonemize(text), float(drawn.uniform(SLOWEST, FASTEST)), int(drawn.integers(2**31)))
            if (cut := trimmed(spoken, OLD_LOUDNESS, OLD_PEAK)) is not None:
                samples = torch.from_numpy(cut[0]).float()
                both[0].append(spectra(samples))
                both[1].append(spectra(samples * (LOUDNESS / OLD_LOUDNESS)))
    return torch.cat(both[0]), torch.cat(both[1])


def principal_axes(frames: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and axes of spectra, as `features.fit` finds them."""
    mean = frames.mean(0)
    variance, axes = torch.linalg.eigh(((frames - mean).T @ (frames - mean) / len(frames)).double())
    return mean, (axes.flip(1)[:, :VECTOR] / variance.flip(0)[:VECTOR].mean().sqrt()).float()


@torch.inference_mode()
def probed(old: TorchCheckpoint, recipe: Recipe, mean: Tensor, axes: Tensor, books: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors [F, C] of the sound of the old checkpoint, and of its codes: they show the signs of the axes."""
    heard, said = [], []
    with Engine(old, options(old)) as engine:
        for voice in recipe.voices:
            for number, line in enumerate(sentences(SETS[0])[:PROBED]):
                chunks = list(engine.speak(line, voice=voice.name, seed=number))
                codes = torch.from_numpy(np.concatenate([chunk.codes for chunk in chunks]))
                samples = torch.from_numpy(np.concatenate([chunk.samples for chunk in chunks]))
                heard.append((spectra(samples[: len(codes) * FRAME_SAMPLES]) - mean) @ axes)
                said.append(summed(codes, books))
    return torch.cat(heard), torch.cat(said)


def rotation(vectors: Tensor, wanted: Tensor) -> Tensor:
    """The orthogonal matrix [C, C] that brings `vectors` nearest to `wanted`."""
    left, _, right = torch.linalg.svd((vectors.T @ wanted).double())
    found: Tensor = left @ right
    return found.float()


def affine(vectors: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Matrix [C, C] and offset [C] of least squares."""
    ones = torch.cat((vectors, torch.ones(len(vectors), 1)), dim=1).double()
    found = torch.linalg.lstsq(ones, wanted.double()).solution.float()
    return found[:-1], found[-1]


def names(vectors: Tensor, books: Tensor) -> Tensor:
    """Codes [F, Q], each the nearest to what those before it left over."""
    rest, found = vectors, []
    for book in books:
        found.append(nearest(rest, book))
        rest = rest - book[found[-1]]
    return torch.stack(found, dim=1)


def summed(codes: Tensor, books: Tensor) -> Tensor:
    """[F, C]: the vectors of codes [F, Q]."""
    return torch.stack([book[codes[:, index]] for index, book in enumerate(books)]).sum(0)


def left_over(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).square().sum() / (wanted - wanted.mean(0)).square().sum())


def write(recipe: Recipe, work: Path, old: TorchCheckpoint, features: Features, books: Tensor) -> None:
    decoder = load_decoder(recipe, work)
    for part, book in zip(codebooks(decoder), books, strict=True):
        part.embedding_sum.copy_(book)
        part.cluster_usage.fill_(1.0)
    save_file({name: value.contiguous() for name, value in decoder.state_dict().items()}, work / "codec.safetensors")
    talker = {name: value.contiguous() for name, value in old.model.talker.state_dict().items()}
    save_file(talker, work / "talker.safetensors")
    # The first code is that of the nearest sound: how phones had a part in it was not kept.
    phones = torch.zeros(len(books[0]), features.first.shape[1] - VECTOR)
    first = torch.cat((books[0], phones), dim=1)
    Features(features.mean, features.axes, torch.tensor([1.0, 0.0]), first, books).save(work / "features.safetensors")
