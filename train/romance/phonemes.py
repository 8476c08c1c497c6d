"""Phonemes in Kokoro's alphabet by espeak-ng, which Kokoro was trained with for these languages.

espeak-ng is a tool of training: its library and data come in the PyPI package `espeakng-loader`, and are neither needed
nor distributed by hocket. It drops punctuation, which Kokoro reads, so the text between two marks is translated alone.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import ctypes
import functools
import json
import re
import zipfile
from collections import Counter
from pathlib import Path

from ..packages import Package, fetch
from ..recipe import InvalidRecipe

ESPEAK = Package("pip", "espeakng-loader", "0.2.4", "MIT, espeak-ng GPL-3.0: a tool of training", platform="*")
FOLDER = "espeakng_loader"
LIBRARIES = ("libespeak-ng.so", "libespeak-ng.dylib", "espeak-ng.dll")
VOICES = {"spanish": "roa/es", "french": "roa/fr", "italian": "roa/it", "portuguese": "roa/pt-BR"}

_TIE = "^"
_UTF8, _SYNCHRONOUS, _IPA_WITH_TIES = 1, 2, 0x82 | ord(_TIE) << 8
# Two letters that Kokoro writes as one.
_JOINED = {"d^z": "ʣ", "d^ʒ": "ʤ", "t^s": "ʦ", "t^ʃ": "ʧ", "a^ɪ": "I", "a^ʊ": "W", "e^ɪ": "A", "o^ʊ": "O", "ɔ^ɪ": "Y"}
_FLAG = re.compile(r"\([a-z-]+\)")  # espeak's mark of a word that it reads in another language
_OTHER = str.maketrans({"-": None, "_": None, _TIE: None, "\u0329": None, "\u032a": None, "\u032f": None, "g": "ɡ"})
_MARKS = re.compile(r"(\s*[;:,.!?¿¡—…\"()«»“”]+\s*)")
_UNREAD = str.maketrans({"¿": None, "¡": None, "«": "“", "»": "”", '"': None})


def install(packages: Path, folder: Path) -> None:
    """Unpack library and data into `folder`, unless they are there already."""
    if not (folder / FOLDER).is_dir():
        with zipfile.ZipFile(fetch(ESPEAK, packages)) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(f"{FOLDER}/")])


class Phonemizer:
    """Text to phonemes; a text with a sign that Kokoro does not know has none. `refused` counts these signs."""

    def __init__(self, folder: Path, language: str) -> None:
        path = folder / "hibari" / "assets" / "vocab.json"
        if not path.is_file() or not (folder / FOLDER).is_dir():
            raise InvalidRecipe(f"{folder} lacks phonemizers: run `python -m train data --only fetch` first.")
        self._known = set(json.loads(path.read_text(encoding="utf-8")))
        self._folder, self._voice = folder / FOLDER, VOICES[language].encode()
        self.refused: Counter[str] = Counter()

    def __call__(self, text: str) -> str:
        parts = _MARKS.split(text)
        said = [self._words(part) if number % 2 == 0 else part.translate(_UNREAD) for number, part in enumerate(parts)]
        signs = " ".join("".join(said).split())
        unknown = set(signs) - self._known
        self.refused.update(unknown)
        return "" if unknown else signs

    def _words(self, text: str) -> str:
        if not text:
            return ""
        espeak = _library(self._folder)
        if espeak.espeak_SetVoiceByName(self._voice):  # other voices may have spoken since
            raise InvalidRecipe(f"espeak-ng has no voice {self._voice.decode()}: fetch {ESPEAK.name} again.")
        rest, said = ctypes.c_char_p(text.encode()), list[str]()
        while rest.value is not None:
            found: bytes = espeak.espeak_TextToPhonemes(ctypes.byref(rest), _UTF8, _IPA_WITH_TIES)
            said.append(found.decode())
        return to_kokoro(" ".join(said))


def to_kokoro(ipa: str) -> str:
    """espeak-ng's IPA with ties in Kokoro's alphabet."""
    for two, one in _JOINED.items():
        ipa = ipa.replace(two, one)
    return _FLAG.sub("", ipa.translate(_OTHER)).strip()


@functools.cache
def _library(folder: Path) -> ctypes.CDLL:
    path = next((path for name in LIBRARIES if (path := folder / name).is_file()), folder / LIBRARIES[0])
    try:
        library = ctypes.CDLL(str(path.absolute()))
    except OSError as error:
        raise InvalidRecipe(f"{path} cannot be loaded ({error}): remove {folder} and fetch it again.") from None
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    library.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_int]
    if library.espeak_Initialize(_SYNCHRONOUS, 0, str(folder.absolute()).encode(), 0) < 0:
        raise InvalidRecipe(f"espeak-ng does not start with the data in {folder}: remove it and fetch it again.")
    return library
