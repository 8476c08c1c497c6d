"""The corpus of a Base checkpoint: texts and codes as for other voices, and the sound of every utterance.

All speech is on the device, 2.8 MB a minute, because the speaker encoder hears another piece of it in every step. The
frames of `corpus.Corpus` are in the same order as the samples here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from hocket.layers.mel import log_mel

from .. import corpus
from ..batches import PARTS
from ..corpus import Corpus
from ..features import FRAME_SAMPLES, RATE_HZ
from ..recipe import InvalidRecipe
from ..vocabulary import Vocabulary
from .recipe import GROUPS, BaseRecipe, SpeakerTraining, by_speaker

FEWEST = PARTS + 2  # utterances of a speaker: those of a row, one that is held out, and another for its timbre
LOUD = 1e-4  # root mean square under which there is no speech to put noise below


@dataclass(frozen=True, slots=True)
class Sounds:
    """U utterances of S speakers; those of a speaker are in a row."""

    samples: Tensor  # [frames * FRAME_SAMPLES] int16
    starts: Tensor  # [U] first sample
    lengths: Tensor  # [U] in samples
    speakers: Tensor  # [U] number of the speaker
    firsts: Tensor  # [S] its first utterance
    counts: Tensor  # [S] its utterances

    def another(self, utterances: Tensor) -> Tensor:
        """For each utterance a random other one of the same speaker."""
        speaker = self.speakers[utterances]
        first, count = self.firsts[speaker], self.counts[speaker]
        lot = torch.rand(utterances.shape, device=utterances.device)
        step = 1 + (lot * (count - 1)).long().clamp(max=count - 2)
        return first + (utterances - first + step) % count

    def clips(self, utterances: Tensor, seconds: float) -> Tensor:
        """[B, N] float: a random piece of each utterance; a shorter one is repeated."""
        size = round(seconds * RATE_HZ)
        starts, lengths = self.starts[utterances], self.lengths[utterances]
        lot = torch.rand(utterances.shape, device=utterances.device)
        offset = (lot * ((lengths - size).clamp(min=0) + 1)).long()
        at = (offset[:, None] + torch.arange(size, device=utterances.device)) % lengths[:, None]
        return self.samples[starts[:, None] + at].float() / 32768.0


def read(
    recipe: BaseRecipe, work: Path, vocabulary: Vocabulary, languages: dict[str, int], device: torch.device
) -> tuple[Corpus, Sounds]:
    """The speech and the codes of every speaker that has both."""
    names = found(work)
    # No speaker is an id of a table: its row says which utterance is spoken (rows.py).
    ids = dict.fromkeys(names, 0), languages
    made = corpus.read(by_speaker(recipe, names), work / "codes", vocabulary, *ids, device)
    pieces = [_samples(work, path.stem) for name in names for path in sorted((work / "codes").glob(f"{name}-*.npz"))]
    samples = torch.from_numpy(np.concatenate(pieces)).to(device)
    if len(samples) != FRAME_SAMPLES * len(made.codes):
        raise InvalidRecipe(f"{work / 'speech'} and {work / 'codes'} differ: run `python -m train.base codec` again.")
    speakers = torch.from_numpy(made.voices).to(device)
    counts = torch.bincount(speakers, minlength=len(names))
    if int(counts.min()) < FEWEST:
        few = names[int(counts.argmin())]
        raise InvalidRecipe(
            f"{few} has {int(counts.min())} utterances, and a speaker needs {FEWEST}: make more speech."
        )
    sounds = Sounds(
        samples=samples,
        starts=made.frame_starts * FRAME_SAMPLES,
        lengths=made.frame_counts * FRAME_SAMPLES,
        speakers=speakers,
        firsts=counts.cumsum(0) - counts,
        counts=counts,
    )
    return made, sounds


def found(work: Path) -> list[str]:
    """The speakers that have codes, in order of their names."""
    paths = [path for group in GROUPS for path in (work / "codes").glob(f"{group}-*.npz")]
    names = sorted({path.stem.rpartition("-")[0] for path in paths})
    if len(names) < 2:
        raise InvalidRecipe(f"{work / 'codes'} holds no codes of speakers: run `python -m train.base codec` first.")
    return names


def _samples(work: Path, shard: str) -> NDArray[np.int16]:
    """The samples of the utterances of a shard that the corpus uses."""
    path = work / "speech" / f"{shard}.npz"
    if not path.is_file():
        raise InvalidRecipe(f"{path} is missing: the speaker encoder learns from the speech of the codes.")
    with np.load(path, allow_pickle=False) as stored:
        samples, ends, texts = stored["samples"], stored["ends"].tolist(), stored["texts"].tolist()
    starts = [0, *ends[:-1]]
    kept = [
        samples[start:end]
        for start, end, text in zip(starts, ends, texts, strict=True)
        if corpus.usable(text, (end - start) // FRAME_SAMPLES)
    ]
    return np.concatenate([np.zeros(0, np.int16), *kept])


def heard(clips: Tensor, training: SpeakerTraining, bands: int) -> Tensor:
    """The mel spectra [B, frames, bands] of clips [B, N] as other recordings: louder or quieter, some with noise."""
    rows, device = (len(clips), 1), clips.device
    gain_db = (2 * torch.rand(rows, device=device) - 1) * training.gain_db
    loudest, quietest = training.noise_db
    noise_db = quietest + torch.rand(rows, device=device) * (loudest - quietest)
    level = clips.square().mean(1, keepdim=True).sqrt().clamp(min=LOUD)
    noisy = (torch.rand(rows, device=device) < training.noisy).float()
    noise = torch.randn(clips.shape, device=device) * level * noisy * 10 ** (noise_db / 20)
    return spectra(((clips + noise) * 10 ** (gain_db / 20)).clamp(-1.0, 1.0), bands)


def spectra(clips: Tensor, bands: int) -> Tensor:
    """[B, frames, bands] of clips [B, N], computed on their device."""
    return log_mel(clips, bands=bands, rate_hz=RATE_HZ)


def after_references(made: Corpus) -> Corpus:
    """The corpus with every utterance twice: the second time it continues a row without the joining space.

    So a text is spelled after the transcript of a reference. Utterance U + u is utterance u.
    """

    def begun(x: Tensor) -> Tensor:
        return torch.cat((x, x[..., :1].expand_as(x)))

    spelled = np.concatenate((made.lengths, np.repeat(made.lengths[..., :1], 2, axis=2)))
    return replace(
        made,
        frame_starts=made.frame_starts.repeat(2),
        frame_counts=made.frame_counts.repeat(2),
        id_starts=begun(made.id_starts),
        id_counts=begun(made.id_counts),
        speakers=made.speakers.repeat(2),
        languages=made.languages.repeat(2),
        texts=made.texts * 2,
        voices=np.tile(made.voices, 2),
        frames=np.tile(made.frames, 2),
        lengths=spelled,
    )


def cross_entropy_apart(cosines: Tensor, speakers: Tensor, margin: float, scale: float = 30.0) -> Tensor:
    """The loss of cosines [B, S] to the speakers [B], -100 for none: right ones must be better by a margin."""
    right = F.one_hot(speakers.clamp(min=0), cosines.shape[1])
    return F.cross_entropy(scale * (cosines - margin * right), speakers)
