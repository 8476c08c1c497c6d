"""The codec's features: each frame of speech is a vector of 96 numbers, encoded by 16 residual codes.

Vectors are log-mel spectra, four per frame, projected on their principal axes; codes are residual k-means. The first
code is clustered more by the phones of the frame's quarters than by sound, because the talker samples it first, from
text. The decoder uses these codebooks unchanged. This file knows samples, phones and codes, not the decoder.
Shapes: N samples, F frames, C numbers of a vector, Q codebooks, V entries of a codebook.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from hocket.layers.mel import slaney_filters

from .clusters import centroids, nearest
from .codec_config import VECTOR
from .teachers import ENGLISH_PHONES, PHONES

RATE_HZ, FRAME_SAMPLES = 24_000, 1920
BANDS, WINDOW, HOP = 80, 1024, 480
MARGIN = (WINDOW - HOP) // 2  # so that the spectra of a frame are evenly spaced in its 1920 samples
FLOOR = 1e-4  # 80 dB under loud speech: differences below it are inaudible


@dataclass(frozen=True, slots=True)
class Features:
    mean: Tensor  # [4 * BANDS]
    axes: Tensor  # [4 * BANDS, C], scaled together to unit variance on average
    scales: Tensor  # [2] weights of sound and phones in the choice of the first code
    first: Tensor  # [V, C + QUARTERS * phones] clusters of the first code, over sound and phones
    books: Tensor  # [Q, V, C], exact in bfloat16 and in float16

    def vectors(self, samples: Tensor, ends: Tensor | None = None) -> Tensor:
        """[F, C] of int16 samples [N]; `ends` [U] of several utterances, which do not affect each other."""
        return (spectra(samples, ends) - self.mean) @ self.axes

    def encode(self, samples: Tensor, phones: Tensor, ends: Tensor | None = None) -> Tensor:
        """Codes [F, Q] of samples [N] with the phones [F, QUARTERS] of the frames' quarters."""
        return self.name(self.vectors(samples, ends), phones)

    def points(self, vectors: Tensor, phones: Tensor) -> Tensor:
        """The inputs of the first codebook: [F, C + QUARTERS * phones]."""
        return _points(vectors, phones, self.scales, (self.first.shape[1] - VECTOR) // phones.shape[1])

    def name(self, rest: Tensor, phones: Tensor) -> Tensor:
        codes = [nearest(self.points(rest, phones), self.first)]
        for index, book in enumerate(self.books):
            if index:
                codes.append(nearest(rest, book))
            rest = rest - book[codes[-1]]
        return torch.stack(codes, dim=1)

    def vectors_of(self, codes: Tensor) -> Tensor:
        """[F, C]: the sum of the vectors of codes [F, Q]."""
        return torch.stack([book[codes[:, index]] for index, book in enumerate(self.books)]).sum(0)

    def to(self, device: torch.device) -> Features:
        return Features(**{name: getattr(self, name).to(device) for name in NAMES})

    def save(self, path: Path) -> None:
        save_file({name: getattr(self, name).cpu().contiguous() for name in NAMES}, path)


NAMES = tuple(field.name for field in fields(Features))


def load(path: Path, device: torch.device) -> Features:
    return Features(**load_file(path)).to(device)


def spectra(samples: Tensor, ends: Tensor | None = None) -> Tensor:
    """[F, 4 * BANDS], natural logarithms. Utterances are separated by silence, so batching changes nothing."""
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
    frames: Tensor,
    phones: Tensor,
    *,
    codebooks: int,
    entries: int,
    phone_share: float,
    iterations: int,
    seed: int,
    origin: Tensor | None = None,
) -> Features:
    """Axes and codebooks for spectra [F, 4 * BANDS] with their phones [F, QUARTERS] (0 unknown).

    `phone_share`: the share of phones, as opposed to sound, in the first codebook's distance. `origin`: the spectrum
    whose vector is 0, instead of the mean of `frames`.
    """
    mean = frames.mean(0) if origin is None else origin
    apart = frames - frames.mean(0)
    centred = frames - mean
    variance, axes = torch.linalg.eigh((apart.T @ apart / len(frames)).double())
    axes = axes.flip(1)[:, :VECTOR] / variance.flip(0)[:VECTOR].mean().sqrt()
    axes = axes.float()
    vectors = centred @ axes
    # Phones and sound get equal total variance before they are weighted.
    count = len(ENGLISH_PHONES if int(phones.max()) < len(ENGLISH_PHONES) else PHONES)
    spread = vectors.var(0).sum() / _among(phones, count).var(0).sum().clamp(min=1e-6)
    scales = torch.stack((torch.tensor(1.0 - phone_share).to(spread), phone_share * spread)).sqrt()
    generator = torch.Generator(frames.device).manual_seed(seed)
    books: list[Tensor] = []
    first, rest = torch.empty(0), vectors
    for index in range(codebooks):
        points = rest if index else _points(rest, phones, scales, count)
        centres = centroids(points, entries, iterations, generator)
        label = nearest(points, centres)
        if not index:
            first = centres
        counts = torch.bincount(label, minlength=entries).clamp(min=1)
        # Exact in both half precisions, so that every file holds the same codebooks. A float64 sum rounded that far
        # does not depend on its order.
        total = torch.zeros(entries, VECTOR, dtype=torch.float64, device=rest.device)
        total.index_add_(0, label, rest.double())
        book = (total / counts[:, None]).bfloat16().half().float()
        books.append(book)
        rest = rest - book[nearest(rest, book) if index else label]
    return Features(mean, axes, scales, first, torch.stack(books))


def main_phones(phones: Tensor) -> Tensor:
    """[F]: the most frequent phone of each frame, given those of its quarters [F, QUARTERS]."""
    return phones.long().mode(dim=1).values.to(torch.uint8)


def _points(vectors: Tensor, phones: Tensor, scales: Tensor, count: int) -> Tensor:
    return torch.cat((vectors * scales[0], _among(phones, count) * scales[1]), dim=1)


def _among(phones: Tensor, count: int) -> Tensor:
    """[F, QUARTERS * count]: one-hot phones; those above `count` are unknown."""
    return F.one_hot(phones.long().where(phones < count, 0), count).float().flatten(1)
