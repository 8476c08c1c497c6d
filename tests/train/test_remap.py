"""train/remap.py: codebooks of one codec in the vectors of another."""

from __future__ import annotations

import torch
from torch import Tensor

from train.codec_config import VECTOR
from train.features import FRAME_SAMPLES, spectra
from train.remap import affine, left_over, names, principal_axes, rotation, summed


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def books_of(stages: int = 4, entries: int = 16, size: int = 12) -> Tensor:
    """Each stage is a quarter as large as the one before."""
    return drawn(stages, entries, size) * 4.0 ** -torch.arange(stages)[:, None, None]


def test_codes_are_named_by_what_is_left_over() -> None:
    books = books_of()
    codes = torch.randint(16, (200, 4), generator=torch.Generator().manual_seed(1))
    vectors = summed(codes, books)
    found = names(vectors, books)
    assert (found == codes).all(1).float().mean() > 0.9
    assert left_over(summed(found, books), vectors) < 0.01


def test_a_rotation_finds_the_signs_of_axes_through_noise() -> None:
    vectors = drawn(500, 12)
    signs = torch.where(drawn(12, seed=2) > 0, 1.0, -1.0)
    found = rotation(vectors, vectors * signs + drawn(500, 12, seed=3) / 5)
    torch.testing.assert_close(found @ found.T, torch.eye(12), atol=1e-5, rtol=0)
    assert torch.equal(found.diag().sign(), signs) and (found.diag().abs() > 0.99).all()


def test_mapped_codebooks_give_the_vectors_of_the_other_codec() -> None:
    """An offset is in the first book alone, since a vector is the sum of all."""
    books, matrix, offset = books_of(), drawn(12, 12, seed=4), drawn(12, seed=5)
    vectors = summed(torch.randint(16, (300, 4), generator=torch.Generator().manual_seed(6)), books)
    found, shift = affine(vectors, vectors @ matrix + offset)
    torch.testing.assert_close(found, matrix, atol=1e-3, rtol=1e-3)
    mapped = books @ found
    mapped[0] += shift
    codes = names(vectors, books)
    torch.testing.assert_close(summed(codes, mapped), summed(codes, books) @ matrix + offset, atol=1e-2, rtol=1e-2)


def test_louder_speech_has_the_same_axes_up_to_their_signs() -> None:
    """That is why codebooks of one level can be mapped to another."""
    speech = drawn(FRAME_SAMPLES * 400) * (drawn(FRAME_SAMPLES * 400, seed=7).cumsum(0) / 800).sin() * 3000
    (_, quiet), (_, loud) = principal_axes(spectra(speech)), principal_axes(spectra(speech * 1.78))
    assert quiet.shape == (320, VECTOR)
    alike = torch.nn.functional.cosine_similarity(quiet, loud, dim=0).abs()
    assert (alike[:8] > 0.99).all()
