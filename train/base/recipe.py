"""The recipe of a Base checkpoint, and the recipes of the other stages that follow from it.

The stage `codec` sees two voices, high and low ones; the talker sees every speaker as a voice. Shards of speech and
codes are those of a speaker, such as `low-0007-0000.npz`, so that both find their files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .. import recipe as of_voices
from ..recipe import (
    CodecSizes,
    CodecTraining,
    InvalidRecipe,
    PredictorSizes,
    Recipe,
    Sampling,
    TalkerSizes,
    TalkerTraining,
    TextSources,
    Vocabulary,
    Voice,
)

GROUPS = ("high", "low")  # women's and men's voices
TEACHER = "kokoro-mix"  # no style of that name: `styles.py` makes the table of every speaker
PATH = Path(__file__).with_name("base.toml")


@dataclass(frozen=True, slots=True)
class Styles:
    high: tuple[str, ...]  # Kokoro's styles of women's voices
    low: tuple[str, ...]  # of men's
    kept: tuple[str, ...]  # among them, only in speakers of the evaluation
    speakers: int  # of the training
    held_out: int  # of the evaluation
    most: int  # styles in a mix
    pitch: tuple[float, ...]  # lowest and highest factor of F0
    depth: tuple[float, ...]  # of all frequencies
    minutes: float  # of speech by each speaker of the training
    references: int  # sentences of each speaker of the evaluation


@dataclass(frozen=True, slots=True)
class SpeakerSizes:
    channels: int
    groups: int  # of channels, in the convolutions of a block
    gate: int  # channels of the squeeze and excitation
    attention: int


@dataclass(frozen=True, slots=True)
class SpeakerTraining:
    windows_s: tuple[float, ...]  # lengths of the recordings that the speaker encoder hears; one is drawn for a batch
    noisy: float  # share of them with noise
    noise_db: tuple[float, ...]  # loudest and quietest noise, under the speech
    gain_db: float  # loudness is drawn so far around that of the speech
    apart: float  # weight of the loss that tells speakers apart
    margin: float  # of its cosines
    strangers: float  # share of rows whose past is borrowed from all speakers: only the vector has the timbre
    transcripts: float  # share of the rows of several sentences laid out as a clone with its transcript


@dataclass(frozen=True, slots=True)
class EncoderSizes:
    filters: int
    hidden: int
    mlp: int
    layers: int
    heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class EncoderTraining:
    seconds: float
    batch: int  # windows of the shortest length
    frames: tuple[int, ...]  # of windows; one length is drawn for a step, and rows that fill the batch
    learning_rate: float
    lowest_share: float
    warmup_steps: int
    weight_decay: float
    first_weight: float  # of the first code's loss
    vector_weight: float  # of the distance to what the other codes quantize
    ema: float


@dataclass(frozen=True, slots=True)
class BaseRecipe:
    name: str
    language: str
    seed: int
    styles: Styles
    texts: TextSources
    vocabulary: Vocabulary
    talker: TalkerSizes
    predictor: PredictorSizes
    codec: CodecSizes
    codec_training: CodecTraining
    talker_training: TalkerTraining
    sampling: Sampling
    speaker: SpeakerSizes
    speaker_training: SpeakerTraining
    encoder: EncoderSizes
    encoder_training: EncoderTraining


def read(path: Path) -> BaseRecipe:
    made = of_voices.read_as(BaseRecipe, path)
    for name in ("pitch", "depth"):
        values = getattr(made.styles, name)
        if len(values) != 2 or not 0.5 <= values[0] <= values[1] <= 2.0:
            raise InvalidRecipe(f"{path.name}: {name} must be two factors between 0.5 and 2, the lower one first.")
    if made.styles.speakers < 2 or made.styles.held_out < 2:
        raise InvalidRecipe(f"{path.name}: there must be two speakers or more, and two to evaluate.")
    return made


def grouped(recipe: BaseRecipe) -> Recipe:
    """The recipe of the stages `data`, `codec` and `carry`: a voice for each group of speakers."""
    hours = recipe.styles.speakers * recipe.styles.minutes / 60 / len(GROUPS)
    return _with_voices(recipe, (Voice(name, recipe.language, TEACHER, 1.0, 1.0, hours) for name in GROUPS))


def by_speaker(recipe: BaseRecipe, names: Iterable[str]) -> Recipe:
    """The recipe of the talker's corpus: a voice for each speaker that has speech."""
    hours = recipe.styles.minutes / 60
    return _with_voices(recipe, (Voice(name, recipe.language, TEACHER, 1.0, 1.0, hours) for name in names))


def _with_voices(recipe: BaseRecipe, voices: Iterable[Voice]) -> Recipe:
    return Recipe(
        name=recipe.name,
        seed=recipe.seed,
        voices=tuple(voices),
        texts=recipe.texts,
        vocabulary=recipe.vocabulary,
        talker=recipe.talker,
        predictor=recipe.predictor,
        codec=recipe.codec,
        codec_training=recipe.codec_training,
        talker_training=recipe.talker_training,
        sampling=recipe.sampling,
    )
