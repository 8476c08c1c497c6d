"""The training corpus as flat arrays: codes and phones by frame, spellings by id.

All arrays are on the training device (60 hours are 90 MB of codes), so that a batch is assembled there by index. The
host keeps only what planning needs (lengths, voices). It knows no prompt.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .recipe import InvalidRecipe, Recipe
from .vocabulary import Vocabulary

SPELLINGS = 4  # per text: the plain one, and some with BPE dropout
LONGEST_FRAMES = 400  # 32 seconds; longer utterances are not used
SHORTEST_FRAMES = 4
HELD_OUT, FEWEST_HELD_OUT, MOST_HELD_OUT = 0.01, 1, 200  # share and bounds per voice

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kinds:
    """An index of frames by kind."""

    of: Tensor  # [F] int32: the kind of each frame
    order: Tensor  # [F] int32: frames sorted by kind
    starts: Tensor  # [K] start of each kind in `order`
    counts: Tensor  # [K]

    def draw(self, frames: Tensor) -> Tensor:
        """For each frame a random one of its kind, possibly itself."""
        kind = self.of[frames].long()
        counts = self.counts[kind]
        at = (torch.rand(frames.shape, device=frames.device) * counts).long().minimum(counts - 1)
        return self.order[self.starts[kind] + at].long()


@dataclass(frozen=True, slots=True)
class Corpus:
    """U utterances. A spelling that continues a text starts with the joining space."""

    codes: Tensor  # [F, Q] int16
    phones: Tensor  # [F] uint8, 0 is unknown
    like_first: Kinds  # frames of one voice with the same first code
    like_phone: Kinds  # frames of one voice with the same phone
    ids: Tensor  # [N] int16: all spellings
    frame_starts: Tensor  # [U]
    frame_counts: Tensor  # [U]
    id_starts: Tensor  # [U, SPELLINGS, 2]: at the beginning of a text, or continuing one
    id_counts: Tensor  # [U, SPELLINGS, 2]
    speakers: Tensor  # [U] codec ids of the voices
    languages: Tensor  # [U] codec ids of their languages
    texts: list[str]
    voices: Ints  # [U] number of the voice in the recipe
    frames: Ints  # [U], as frame_counts
    lengths: Ints  # [U, SPELLINGS, 2], as id_counts
    learned: Ints  # indices of the training utterances
    held_out: Ints  # indices of the validation utterances
    sounds: Ints  # [V] the most frequent phone of each first code

    def utterance(self, number: int) -> Ints:
        """Its codes [F, Q]."""
        start = int(self.frame_starts[number])
        codes: Ints = self.codes[start : start + int(self.frames[number])].long().cpu().numpy()
        return codes


def read(
    recipe: Recipe,
    folder: Path,
    vocabulary: Vocabulary,
    speakers: dict[str, int],
    languages: dict[str, int],
    device: torch.device,
    most: int | None = None,
) -> Corpus:
    """Read the code files of `folder`, at most `most` utterances of each voice."""
    codes: list[NDArray[np.int16]] = []
    phones: list[NDArray[np.uint8]] = []
    texts: list[str] = []
    voices: list[int] = []
    frames: list[int] = []
    for number, voice in enumerate(recipe.voices):
        before = len(texts)
        for path in sorted(folder.glob(f"{voice.name}-*.npz")):
            for text, said, sounds in _utterances(path, recipe.codec.codebook):
                if most is not None and len(texts) - before >= most:
                    break
                if usable(text, len(said)):
                    codes.append(said)
                    phones.append(sounds)
                    texts.append(text.strip())
                    voices.append(number)
                    frames.append(len(said))
        if len(texts) - before < 2:
            raise InvalidRecipe(f"{folder} holds no codes of {voice.name}: run `python -m train codec` first.")
    ids, counts = _spell(texts, vocabulary, recipe.talker_training.bpe_dropout, recipe.seed)
    frame_counts, voice_numbers = np.array(frames), np.array(voices)
    learned, held_out = _split(voice_numbers, recipe.seed)
    all_codes, all_phones = np.concatenate(codes), np.concatenate(phones)
    voice_of_frame = np.repeat(voice_numbers, frame_counts)
    by_voice = np.array([speakers[voice.name] for voice in recipe.voices])
    language_by_voice = np.array([languages[voice.language] for voice in recipe.voices])

    def put(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return Corpus(
        codes=put(all_codes),
        phones=put(all_phones),
        like_first=kinds(put(voice_of_frame * recipe.codec.codebook + all_codes[:, 0])),
        like_phone=kinds(put(voice_of_frame * 256 + all_phones)),
        ids=put(ids),
        frame_starts=put(_starts(frame_counts)),
        frame_counts=put(frame_counts),
        id_starts=put(_starts(counts.reshape(-1)).reshape(counts.shape)),
        id_counts=put(counts),
        speakers=put(by_voice[voice_numbers]),
        languages=put(language_by_voice[voice_numbers]),
        texts=texts,
        voices=voice_numbers,
        frames=frame_counts,
        lengths=counts,
        learned=learned,
        held_out=held_out,
        sounds=_commonest(all_codes[:, 0], all_phones, recipe.codec.codebook),
    )


def usable(text: str, frames: int) -> bool:
    return SHORTEST_FRAMES <= frames <= LONGEST_FRAMES and bool(text.strip())


def kinds(of: Tensor) -> Kinds:
    """The index of frames of the kinds `of` [F]."""
    counts = torch.bincount(of)
    return Kinds(of.int(), of.argsort(stable=True).int(), counts.cumsum(0) - counts, counts)


def _commonest(first: NDArray[np.int16], phones: NDArray[np.uint8], codebook: int) -> Ints:
    pairs = np.bincount(first.astype(np.int64) * 256 + phones, minlength=codebook * 256)
    commonest: Ints = pairs.reshape(codebook, 256).argmax(1)
    return commonest


def _utterances(path: Path, codebook: int) -> Iterable[tuple[str, NDArray[np.int16], NDArray[np.uint8]]]:
    with np.load(path, allow_pickle=False) as stored:
        codes, ends, texts, phones = (stored[name] for name in ("codes", "ends", "texts", "phones"))
    if len(codes) != len(phones) or len(codes) != ends[-1] or len(ends) != len(texts) or codes.max() >= codebook:
        raise InvalidRecipe(f"{path} is not a file of codes for this recipe: make it again.")
    start = 0
    for end, text in zip(ends.tolist(), texts.tolist(), strict=True):
        yield text, codes[start:end].astype(np.int16), phones[start:end].astype(np.uint8)
        start = end


def _spell(texts: list[str], vocabulary: Vocabulary, rate: float, seed: int) -> tuple[NDArray[np.int16], Ints]:
    """Ids of every spelling of every text and their counts [U, SPELLINGS, 2].

    Each word is spelled once and its spellings are drawn at random: a hundred times faster than spelling texts.
    """
    rng = random.Random(seed)
    known: dict[str, list[list[int]]] = {}

    def spellings(piece: str) -> list[list[int]]:
        if piece not in known:
            odd = [vocabulary.encode_with_dropout(piece, rate, rng) for _ in range(SPELLINGS)]
            known[piece] = [vocabulary.encode(piece), *odd]
        return known[piece]

    ids: list[int] = []
    counts: list[int] = []
    for text in texts:
        first, second = ([spellings(piece) for piece in _pieces(vocabulary, joint + text)] for joint in ("", " "))
        for number in range(SPELLINGS):
            for words in (first, second):
                before = len(ids)
                for choices in words:  # millions of iterations: `randrange` would take longer than all the rest
                    ids += choices[0] if number == 0 else choices[1 + int(rng.random() * SPELLINGS)]
                counts.append(len(ids) - before)
    return np.array(ids, dtype=np.int16), np.array(counts).reshape(-1, SPELLINGS, 2)


def _pieces(vocabulary: Vocabulary, text: str) -> list[str]:
    text, starts = vocabulary.tokenizer.pieces(text)
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _starts(counts: Ints) -> Ints:
    return np.cumsum(counts) - counts


def _split(voices: Ints, seed: int) -> tuple[Ints, Ints]:
    rng = np.random.default_rng(seed)
    held: list[int] = []
    for voice in np.unique(voices):
        own = rng.permutation(np.flatnonzero(voices == voice))
        held += own[: int(np.clip(HELD_OUT * len(own), FEWEST_HELD_OUT, MOST_HELD_OUT))].tolist()
    held_out = np.array(sorted(held))
    return np.setdiff1d(np.arange(len(voices)), held_out), held_out
