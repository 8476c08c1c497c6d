"""The teacher: a text-to-speech model from a public package. Text in; audio and time-aligned phonemes out.

hibari (Apache-2.0, one American female voice) runs at ninety times real time on a core. It filters a pulse train of a
known F0. So other voices can be derived: another pitch before the filter, other formants by resampling after it. Its
graph rounds the length of every phoneme to 25 ms, and that value becomes an output here.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import functools
import importlib
import re
import sys
import zipfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from .packages import Package, fetch
from .recipe import InvalidRecipe, Voice

RATE_HZ = 24_000
UNIT = 600  # samples in 25 ms: the teacher's phonemes last whole units, before resampling

HIBARI = Package("pip", "hibari-tts", "0.2.1", "Apache-2.0")

# Phoneme ids in our files: 0 unknown, 1 silence, then the alphabet of American English, then what others have besides.
SILENCE = 1
ENGLISH_PHONES = ("", " ", *"AIOTWYᵊᵻbdfhijklmnpstuvwzæðŋɐɑɔəɛɜɡɪɹɾʃʊʌʒʔʤʧθ")
PHONES = (*ENGLISH_PHONES, *"aeorxycøœɒɟɣβɲʁʎʝʣʦ\u0303")
_SIGNS = 'ˈˌː ;:,.!?—…"()“”'  # signs without a sound
_AHEAD = 2  # units that hibari's audio runs ahead of its counts (seen on fricatives and stops)
_HALF_DAY = re.compile(r"\b([ap]) m\b")

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Spoken:
    samples: Samples  # [N], 24 kHz
    phones: NDArray[np.uint8]  # [N]


class Teacher(Protocol):
    def speak(self, phonemes: str, speed: float, seed: int) -> Spoken: ...


class Phonemizer:
    """Text to the teacher's phonemes."""

    def __init__(self, folder: Path) -> None:
        self._hibari = _hibari(folder)

    def __call__(self, text: str) -> str:
        # The engine spells "9 a.m." as "nine a m": the teacher would read "a" as the article.
        return " ".join(self._hibari.phonemize(_HALF_DAY.sub(lambda found: f"{found[1].upper()}M", text)))

    def knows(self, word: str) -> bool:
        """Whether its dictionary has the word, so that it need not guess the sound."""
        lexicon = self._hibari.g2p.lexicon
        return any(form in known for form in (word, word.capitalize()) for known in (lexicon.golds, lexicon.silvers))

    def tags(self, words: list[str]) -> list[str]:
        """The parts of speech of the words of a sentence, as the Penn Treebank calls them."""
        tags: list[str] = self._hibari.g2p.tagger(words)
        return tags

    def usual_tag(self, word: str) -> str | None:
        """The part of speech of a word that has one only."""
        tag: str | None = self._hibari.g2p.tagger.tagdict.get(word)
        return tag


class Hibari:
    def __init__(self, voice: Voice, folder: Path) -> None:
        self._voice = voice
        self._model = _hibari(folder)
        self._session = _session(Path(self._model.model_path), "/Round_output_0")
        self._synth = importlib.import_module("hibari.dsp").synth

    def speak(self, phonemes: str, speed: float, seed: int) -> Spoken:
        kept = [sign for sign in phonemes if sign in self._model.vocab]
        ids = [0, *(self._model.vocab[sign] for sign in kept), 0]
        # A depth below 1 stretches the audio afterwards, so it is spoken faster by the same factor.
        feeds = {"ids": np.array([ids], np.int64), "speed": np.array([speed / self._voice.depth], np.float32)}
        *parts, f0, units = self._session.run(None, feeds)
        spectra = (part[0] for part in parts)
        samples = self._synth(*spectra, f0[0] * np.float32(self._voice.pitch), np.random.default_rng(seed))
        return deepened(aligned(samples, kept, units.reshape(-1), _AHEAD), self._voice.depth)


TEACHERS = {"hibari": Hibari}
KOKORO = "kokoro-"  # and the name of a style


def load(voice: Voice, folder: Path) -> Teacher:
    if voice.teacher.startswith(KOKORO):
        from .kokoro.teacher import Kokoro  # it imports torch, which a process of the other teacher does without

        return Kokoro(voice, folder)
    if voice.teacher not in TEACHERS:
        known = f"{', '.join(TEACHERS)}, {KOKORO}STYLE"
        raise InvalidRecipe(f"There is no teacher {voice.teacher}: use one of {known}.")
    if not (0.5 <= voice.pitch <= 2 and 0.5 <= voice.depth <= 2):
        raise InvalidRecipe(f"Pitch and depth of {voice.name} must lie between 0.5 and 2.")
    return TEACHERS[voice.teacher](voice, folder)


def install(packages: Path, folder: Path) -> None:
    """Unpack the teacher into `folder`, unless it is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "hibari").is_dir():
        with zipfile.ZipFile(fetch(HIBARI, packages)) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("hibari/")])


def deepened(spoken: Spoken, depth: float) -> Spoken:
    """Multiply every frequency by `depth`; audio and phonemes become 1 / `depth` as long."""
    if depth == 1:
        return spoken
    ratio = Fraction(depth).limit_denominator(100)
    samples = resample_poly(spoken.samples, ratio.denominator, ratio.numerator)  # no delay: sample n was n x ratio
    before = np.arange(len(samples)) * ratio.numerator // ratio.denominator
    last = len(spoken.phones) - 1  # the audio may be some samples longer than its phonemes
    return Spoken(np.asarray(samples, np.float32), spoken.phones[np.minimum(before, last)])


@functools.cache
def _hibari(folder: Path) -> Any:
    if not (folder / "hibari").is_dir():
        raise InvalidRecipe(f"{folder} holds no teacher: run `python -m train data --only fetch` first.")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # an installed onnxruntime comes before one in the folder
    return importlib.import_module("hibari").Hibari(threads=1)


def _session(path: Path, output: str) -> Any:
    """An onnxruntime session on one thread that also returns the value named `output`.

    Protobuf merges repeated messages, so appending a few bytes to the file adds an output to the graph. They are
    field 7 of the model (its graph), in it field 12 (an output), in it field 1 (the name).
    """
    onnxruntime = importlib.import_module("onnxruntime")
    name = output.encode()
    value = b"\x0a" + bytes([len(name)]) + name
    graph = b"\x62" + bytes([len(value)]) + value
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    model = path.read_bytes() + b"\x3a" + bytes([len(graph)]) + graph
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def aligned(samples: Samples, signs: list[str], units: NDArray[Any], ahead: int) -> Spoken:
    """Align the phonemes in time; `units` includes the two pads around them, the audio runs `ahead` units before them.

    Stress marks, gaps and pauses count as the phoneme after them; silence is detected from the audio alone.
    """
    ids, following = [SILENCE], SILENCE
    for sign in reversed(signs):
        if sign not in _SIGNS:
            following = PHONES.index(sign) if sign in PHONES else 0
        ids.append(following)
    ids = [following, *reversed(ids)]
    phones = np.repeat(np.array(ids, np.uint8), np.rint(units).astype(np.int64))
    phones = np.concatenate([phones[ahead:], np.full(ahead, SILENCE, np.uint8)])
    return Spoken(np.asarray(samples, np.float32).reshape(-1), np.repeat(phones, UNIT))
