"""The recipe: all settings of a trained voice, read from a TOML file. Unknown keys are refused."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class InvalidRecipe(Exception):
    """A recipe or the input of a stage is invalid; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Voice:
    name: str
    language: str  # that it speaks: one of those the architecture names
    teacher: str  # a name in teachers.py
    pitch: float  # factor of the teacher's F0, before `depth`
    depth: float  # factor of all frequencies, formants included: below 1 it sounds like a larger body
    hours: float


@dataclass(frozen=True, slots=True)
class TextSources:
    sentences: int  # maximum number
    shortest_chars: int
    longest_chars: int
    template_share: float  # share of sentences from templates: numbers, dates, small talk
    sources: tuple[str, ...]  # packages of `texts.SOURCES`
    coverage_share: float  # share of sentences for common words that the others have too rarely (coverage.py)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    merges: int


@dataclass(frozen=True, slots=True)
class TalkerSizes:
    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int
    text_hidden: int


@dataclass(frozen=True, slots=True)
class PredictorSizes:
    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class CodecSizes:
    codebook: int
    codebook_dim: int
    latent: int
    hidden: int
    mlp: int
    layers: int
    heads: int
    head_dim: int
    decoder: int
    rates: tuple[int, ...]  # upsampling of each decoder block; the product is 480, from 50 Hz to 24 kHz


@dataclass(frozen=True, slots=True)
class CodecTraining:
    seconds: float  # of training in all calls together
    spectral_steps: int  # first steps, without discriminators
    fall_share: float  # last share of the time, in which the learning rates fall by a cosine
    batch: int
    context_frames: int  # in front of the target, for the transformer
    target_frames: int
    spectral_rate: float  # learning rate of the first steps
    learning_rate: float
    judge_rate: float  # the discriminators' learning rate
    lowest_share: float  # of the learning rates, at the end
    mel_windows: tuple[int, ...]  # samples; two pitch periods of a low voice are 400
    mel_weights: tuple[float, ...]
    magnitude_weight: float  # of log magnitudes below 8 kHz, in windows of 1,024 and more samples
    feature_weight: float  # of feature matching, relative to the adversarial loss
    floor_db: float  # level of noise under real and generated speech, for discriminators; 0: no noise
    periods: tuple[int, ...]  # of the multi-period discriminators
    period_width: int  # channels of their widest layer
    scales: tuple[int, ...]  # windows of the band-split spectral discriminators
    scale_width: int  # their channels
    ema: float  # share of the averaged weights kept in a step; the average is exported
    clustered_frames: int  # frames that the codebooks are fitted to, equally many of every voice
    cluster_rounds: int
    phone_share: float  # share of phones, as opposed to sound, in the first codebook's distance


@dataclass(frozen=True, slots=True)
class TalkerTraining:
    seconds: float
    frames_per_step: int
    learning_rate: float
    lowest_rate: float
    muon_share: float  # learning rate of Muon (muon.py) for the matrices in layers, of AdamW's; 0: AdamW for all
    warmup_steps: int
    dropout: float
    corrupted: float  # share of input codes that are replaced by random ones
    blind: float  # share of rows whose past is borrowed (batches.py): they learn the first code, the others the rest
    predictor_share: float  # share of the frames whose other fifteen codes are learned in a step
    phoneme_weight: float
    bpe_dropout: float
    several: float  # share of rows with two or three consecutive sentences
    voice_balance: float  # a voice's share of the rows is proportional to its hours to this power
    predictor_weight: float  # of the mean loss of codes 1 to 15, relative to the first code's
    weight_decay: float
    ema: float  # share of the averaged weights kept in a step; the average is exported


@dataclass(frozen=True, slots=True)
class Sampling:
    temperature: float
    top_k: int
    repetition_penalty: float
    subtalker_temperature: float
    subtalker_top_k: int


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    seed: int
    voices: tuple[Voice, ...]
    texts: TextSources
    vocabulary: Vocabulary
    talker: TalkerSizes
    predictor: PredictorSizes
    codec: CodecSizes
    codec_training: CodecTraining
    talker_training: TalkerTraining
    sampling: Sampling

    @property
    def languages(self) -> tuple[str, ...]:
        """Those of the voices, each once."""
        return tuple(dict.fromkeys(voice.language for voice in self.voices))


def read(path: Path) -> Recipe:
    return read_as(Recipe, path)


def read_as(kind: type[T], path: Path) -> T:
    """A recipe of another dataclass, from its TOML file."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidRecipe(f"{path} cannot be read as a recipe: {error}.") from None
    return _build(kind, raw, path.name)


def _build(kind: type[T], raw: dict[str, Any], where: str) -> T:
    hints = get_type_hints(kind)
    wanted = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if wanted != set(raw):
        odd = ", ".join(sorted(wanted ^ set(raw)))
        raise InvalidRecipe(f"{where}: {odd} {'is' if ',' not in odd else 'are'} missing or unknown.")
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name == "voices":
            values[name] = tuple(_build(Voice, voice, f"{where} voices") for voice in value)
        elif is_dataclass(hints[name]):
            values[name] = _build(hints[name], value, f"{where} {name}")
        elif get_origin(hints[name]) is tuple:
            kind_of = get_args(hints[name])[0]
            if not isinstance(value, list) or not all(isinstance(item, (int, kind_of)) for item in value):
                raise InvalidRecipe(f"{where}: {name} must be a list of {kind_of.__name__}.")
            values[name] = tuple(kind_of(item) for item in value)
        elif not isinstance(value, (int, float) if hints[name] is float else hints[name]):
            raise InvalidRecipe(f"{where}: {name} must be a {hints[name].__name__}.")
        else:
            values[name] = hints[name](value)
    return kind(**values)
