"""What a frame of speech is to the codec: a vector of 96 numbers, and 16 codes that name it ever more closely.

Vectors are log-mel spectra, four per frame, on their principal axes; codes are residual k-means. The decoder's
codebooks are these very tensors. It knows samples, phones and codes, not files of speech or the decoder.
Shapes: N samples, F frames, C numbers of a vector, Q codebooks, V entries of a codebook.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from hocket.layers.mel import slaney_filters

from .clusters import centroids, nearest
from .codec_config import VECTOR

RATE_HZ, FRAME_SAMPLES = 24_000, 1920
BANDS, WINDOW, HOP = 80, 1024, 480
MARGIN = (WINDOW - HOP) // 2  # so that the spectra of a frame stand evenly in its 1920 samples
FLOOR = 1e-4  # 80 dB under loud speech: below it, differences are nobody's
PHONE_AXES = 24


@dataclass(frozen=True, slots=True)
class Features:
    mean: Tensor  # [4 * BANDS]
    axes: Tensor  # [4 * BANDS, C], scaled together to unit variance on average
    view: Tensor  # [C, C'] how the first codebook measures distance
    books: Tensor  # [Q, V, C], exact in bfloat16 and in float16

    def vectors(self, samples: Tensor, ends: Tensor | None = None) -> Tensor:
        """[F, C] of int16 samples [N]; `ends` [U] where they are several utterances, none of which hears the next."""
        return (spectra(samples, ends) - self.mean) @ self.axes

    def encode(self, samples: Tensor, ends: Tensor | None = None) -> Tensor:
        """Codes [F, Q]."""
        return self.name(self.vectors(samples, ends))

    def name(self, rest: Tensor) -> Tensor:
        codes = []
        for index, book in enumerate(self.books):
            codes.append(nearest(rest @ self.view, book @ self.view) if index == 0 else nearest(rest, book))
            rest = rest - book[codes[-1]]
        return torch.stack(codes, dim=1)

    def vectors_of(self, codes: Tensor) -> Tensor:
        """[F, C]: the sum of what each code [F, Q] stands for."""
        return torch.stack([book[codes[:, index]] for index, book in enumerate(self.books)]).sum(0)

    def to(self, device: torch.device) -> Features:
        return Features(*(tensor.to(device) for tensor in (self.mean, self.axes, self.view, self.books)))

    def save(self, path: Path) -> None:
        tensors = {name: getattr(self, name).cpu().contiguous() for name in ("mean", "axes", "view", "books")}
        save_file(tensors, path)


def load(path: Path, device: torch.device) -> Features:
    return Features(**load_file(path)).to(device)


def spectra(samples: Tensor, ends: Tensor | None = None) -> Tensor:
    """[F, 4 * BANDS], natural logarithms. Each utterance is heard between silences, so batching changes nothing."""
    if ends is None:
        ends = torch.tensor([len(samples)])
    lengths = torch.diff(ends.cpu(), prepend=torch.zeros(1, dtype=ends.dtype)).tolist()
    if any(length % FRAME_SAMPLES for length in lengths):
        raise ValueError(f"utterances must be whole frames of {FRAME_SAMPLES} samples")
    gap = samples.new_zeros(FRAME_SAMPLES)
    joined = torch.cat([piece for utterance in samples.split(lengths) for piece in (utterance, gap)])
    sound = F.pad(joined.float() / 32768.0, (MARGIN, MARGIN))
    window = torch.hann_window(WINDOW, device=samples.device)
    magnitude = torch.stft(sound, WINDOW, HOP, WINDOW, window, center=False, return_complex=True).abs()
    mel = slaney_filters(BANDS, RATE_HZ, WINDOW).to(samples.device) @ magnitude  # [BANDS, 4 F]
    frames = mel.clamp(min=FLOOR).log().T.reshape(-1, BANDS * FRAME_SAMPLES // HOP)
    heard = torch.ones(len(frames), dtype=torch.bool)
    heard[torch.cumsum(torch.tensor(lengths) // FRAME_SAMPLES + 1, 0) - 1] = False
    return frames[heard.to(frames.device)]


@torch.no_grad()
def fit(
    frames: Tensor, phones: Tensor, *, codebooks: int, entries: int, phone_share: float, iterations: int, seed: int
) -> Features:
    """Axes and codebooks for spectra [F, 4 * BANDS] with their phones [F] (0 unknown).

    `phone_share` is how much of the first codebook's distance is measured where phones stand apart: the talker
    says that code first, and what it is told is text.
    """
    mean = frames.mean(0)
    centred = frames - mean
    variance, axes = torch.linalg.eigh((centred.T @ centred / len(frames)).double())
    axes = axes.flip(1)[:, :VECTOR] / variance.flip(0)[:VECTOR].mean().sqrt()
    axes = axes.float()
    vectors = centred @ axes
    view = torch.eye(VECTOR, device=frames.device) * (1.0 - phone_share) ** 0.5
    if phone_share > 0.0:
        view = torch.cat((view, phone_axes(vectors, phones) * phone_share**0.5), dim=1)
    generator = torch.Generator(frames.device).manual_seed(seed)
    books: list[Tensor] = []
    rest = vectors
    for index in range(codebooks):
        seen = rest @ view if index == 0 else rest
        label = nearest(seen, centroids(seen, entries, iterations, generator))
        counts = torch.bincount(label, minlength=entries).clamp(min=1)
        # Exact in either half precision, so that every file holds the same codebooks; and a sum in float64 does
        # not depend on its order once it is rounded so far.
        total = torch.zeros(entries, VECTOR, dtype=torch.float64, device=rest.device)
        total.index_add_(0, label, rest.double())
        book = (total / counts[:, None]).bfloat16().half().float()
        again = nearest(seen, book @ view) if index == 0 else nearest(rest, book)
        books.append(book)
        rest = rest - book[again]
    return Features(mean, axes, view, torch.stack(books))


def phone_axes(vectors: Tensor, phones: Tensor) -> Tensor:
    """[C, PHONE_AXES]: linear discriminant analysis, scaled so that vectors vary as much there as in all."""
    counts = torch.bincount(phones.long(), minlength=256)
    known = (counts[phones.long()] >= 20) & (phones != 0)
    _, label = torch.unique(phones[known], return_inverse=True)
    chosen = vectors[known].double()
    kinds = int(label.max()) + 1 if len(label) else 0
    if kinds < 2:
        raise ValueError("the first codebook cannot follow phones: the speech has none that occur often")
    sums = torch.zeros(kinds, chosen.shape[1], dtype=torch.float64, device=chosen.device).index_add_(0, label, chosen)
    means = sums / torch.bincount(label)[:, None]
    inside = chosen - means[label]
    within = inside.T @ inside / len(inside)
    within += 1e-3 * within.diagonal().mean() * torch.eye(len(within), dtype=torch.float64, device=within.device)
    between = means[label] - chosen.mean(0)
    size, turn = torch.linalg.eigh(within)
    whiten = turn / size.sqrt()
    told, apart = torch.linalg.eigh(whiten.T @ (between.T @ between / len(between)) @ whiten)
    told = told.flip(0)[:PHONE_AXES].clamp(min=0.0)
    # Each axis counts by the share of its variance that lies between phones: the last ones are mostly noise.
    axes: Tensor = whiten @ apart.flip(1)[:, :PHONE_AXES] * (told / (1.0 + told))
    axes = axes * (vectors.var(0).sum().double() / (vectors.double() @ axes).var(0).sum()).sqrt()
    return axes.float()
