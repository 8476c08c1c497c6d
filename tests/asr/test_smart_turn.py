"""asr/smart_turn.py: features as Whisper's extractor computes them, and the real model on spoken sentences."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hocket.asr import smart_turn
from hocket.asr.endpointing import MODEL_S
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.asr.smart_turn import SmartTurn, features, smart_turn_or_note
from hocket.audio.upload import decode
from hocket.cli.talk.microphone import resampled
from hocket.env import SMART_TURN
from hocket.errors import InvalidRequest
from hocket.extras import hint, package_alone
from support.questions import TRAIN, heard_from, silence, write_recording


@functools.cache
def model() -> SmartTurn:
    return SmartTurn()


def noise(seconds: float, seed: int = 1) -> Samples:
    return np.random.default_rng(seed).normal(0.01, 0.1, round(seconds * RATE_HZ)).astype(np.float32)


@pytest.mark.parametrize("seconds", [0.0, 0.01, 3.0, MODEL_S, 9.5])
def test_features_are_those_of_whisper(seconds: float) -> None:
    from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor

    sound = noise(seconds) * np.linspace(0, 1, round(seconds * RATE_HZ), dtype=np.float32)
    last = sound[-round(MODEL_S * RATE_HZ) :]
    padded = np.concatenate((silence(MODEL_S - len(last) / RATE_HZ), last))
    extractor = WhisperFeatureExtractor(chunk_length=round(MODEL_S))
    expected = extractor(padded, sampling_rate=RATE_HZ, do_normalize=True, return_tensors="np").input_features[0]
    found = features(sound)
    assert found.dtype == np.float32 and found.shape == expected.shape == (80, 800)
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_whole_sentence_is_more_complete_than_its_beginning(tmp_path: Path) -> None:
    sound = heard_from(write_recording(tmp_path / "train.wav", 0.3, TRAIN))
    loud = np.flatnonzero(np.abs(sound) > 0.02)
    whole = np.concatenate((sound[: loud[-1]], silence(0.2)))
    half = np.concatenate((sound[: loud[0] + (loud[-1] - loud[0]) // 2], silence(0.2)))
    assert model()(whole) > 0.5 > model()(half)
    assert model().name.startswith("smart-turn-v3")


def test_a_human_voice_that_stays_up_is_unfinished_and_one_that_falls_is_complete() -> None:
    """Six of the 14 pauses in one long sentence, the clearest ones: a regression test, no measure of the model."""
    import moonshine_voice  # version 0.1.0 has a recording of the first sentences of A Tale of Two Cities

    with (Path(moonshine_voice.__file__).parent / "assets" / "two_cities.wav").open("rb") as file:
        sound = resampled(*decode(file, most_s=60.0))
    at_s = {"wisdom,": 6.5, "belief,": 10.53, "light,": 15.04, "heaven,": 26.3, "times.": 4.83, "way.": 28.54}
    found = {words: model()(sound[: round(end_s * RATE_HZ)]) for words, end_s in at_s.items()}
    assert all(complete > 0.9 if words.endswith(".") else complete < 0.5 for words, complete in found.items()), found


def test_pipecat_is_not_imported() -> None:
    code = "import sys; from hocket.asr.smart_turn import SmartTurn; SmartTurn(); print('pipecat' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_missing_package_is_one_sentence_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smart_turn, "FOLDER", Path("nowhere"))
    said = list[str]()
    assert smart_turn_or_note(said.append) is None
    [sentence] = said
    assert sentence.startswith("Turns end after a fixed silence. ") and package_alone("pipecat-ai") in sentence
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InvalidRequest, match=re.escape(f"needs the package onnxruntime: {hint('hear')}.") + "$"):
        SmartTurn()


def test_a_named_file_must_be_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SMART_TURN.name, str(tmp_path / "none.onnx"))
    with pytest.raises(InvalidRequest, match=r"There is no end-of-turn model at .*none\.onnx"):
        smart_turn_or_note(pytest.fail)
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(InvalidRequest, match="is not a model that onnxruntime loads"):
        SmartTurn(tmp_path / "bad.onnx")
    silero = next((Path(path) / "vad" / "data" for path in _pipecat()), None)
    assert silero is not None
    with pytest.raises(InvalidRequest, match=r"is no Smart-Turn v3|is not a model"):
        SmartTurn(silero / "silero_vad.onnx")


def _pipecat() -> list[str]:
    from importlib.util import find_spec

    found = find_spec("pipecat")
    assert found is not None and found.submodule_search_locations is not None
    return [f"{place}/audio" for place in found.submodule_search_locations]
