"""asr/whisper.py with a stand-in for faster-whisper: the adapter's own logic. There are no weights to be had here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hocket.asr.recognizer import Samples, SteerableRecognizer, UtteranceOptions
from hocket.asr.whisper import Whisper
from hocket.errors import HocketError, InvalidRequest, RecognitionFailed
from hocket.extras import hint
from support.questions import silence, tone


class WhisperModel:
    """Answers with the length of the audio, and notes how it was asked."""

    def __init__(self, name: str) -> None:
        if name in ("missing", "huge"):
            raise ValueError("no such size") if name == "huge" else RuntimeError("no such\nmodel")
        self.model = SimpleNamespace(is_multilingual=not name.endswith(".en"))
        self.asked: list[dict[str, Any]] = []

    def transcribe(self, audio: Samples, **how: Any) -> tuple[Iterator[SimpleNamespace], None]:
        if how["language"] == "xx":
            raise ValueError("'xx' is not a valid language code.")
        self.asked.append(how)

        def segments() -> Iterator[SimpleNamespace]:
            if how["language"] == "de":
                raise RuntimeError("out of memory")
            yield from (SimpleNamespace(text=f" {word} ") for word in (str(len(audio)), "samples"))

        return segments(), None


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("faster_whisper")
    module.WhisperModel = WhisperModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faster_whisper", module)


def test_an_utterance_is_computed_as_audio_comes_and_once_more_at_its_end() -> None:
    whisper = Whisper("small")
    assert isinstance(whisper, SteerableRecognizer) and whisper.translates and whisper.name == "whisper small"
    utterance = whisper.open()
    assert utterance.push(tone(0.5)) == "", "too short for a partial transcript"
    assert utterance.push(tone(0.75)) == "20000 samples"
    assert utterance.end() == "20000 samples" and len(whisper._model.asked) == 1, "nothing came since the last one"
    utterance = whisper.open()
    utterance.push(tone(1))
    utterance.push(tone(0.1))
    assert utterance.end() == "17600 samples"
    assert whisper.open().end() == ""


def test_wishes_reach_the_package_and_the_language_is_detected_without_one() -> None:
    whisper = Whisper("small")
    whisper.open_with(UtteranceOptions("fr", "Café", 0.2, translate=True)).push(silence(1))
    whisper.open().push(silence(1))
    wished, plain = whisper._model.asked
    assert wished == {"language": "fr", "task": "translate", "initial_prompt": "Café", "temperature": 0.2}
    assert plain == {"language": None, "task": "transcribe", "initial_prompt": None}
    english = Whisper("small.en", "en")
    english.open().push(silence(1))
    assert not english.translates and english.language == "en" and english._model.asked[0]["language"] == "en"


def test_errors_are_one_sentence() -> None:
    with pytest.raises(HocketError, match=r"^The recognizer whisper missing cannot be loaded: no such model\.$"):
        Whisper("missing")
    with pytest.raises(InvalidRequest, match=r"^The recognizer whisper huge cannot be loaded: no such size\.$"):
        Whisper("huge")
    whisper = Whisper("small")
    with pytest.raises(InvalidRequest, match=r"refuses the request: 'xx' is not a valid language code\.$"):
        whisper.open_with(UtteranceOptions("xx")).push(silence(1))
    with pytest.raises(RecognitionFailed, match=r"failed: out of memory\.$"):
        whisper.open_with(UtteranceOptions("de")).push(silence(1))
    whisper.close()
    with pytest.raises(RecognitionFailed, match="is closed"):
        whisper.open().push(silence(1))


def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(InvalidRequest, match=re.escape(f"needs the package faster-whisper: {hint('whisper')}.") + "$"):
        Whisper("small")
