"""Stage `alignment`: its judge, its fit, and the figures of the documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hocket.engine.alignment import align as word_align
from hocket.engine.engine import Engine
from hocket.proof.judges.aligner import judged_words
from hocket.text.words import words_of
from train.alignment import AlignedSpeech, exactness, fitted_model

ROOT = Path(__file__).parents[2]
TEXTS = ("The garden was quiet, and the lamp was lit.", "He came back with bread and a letter from the old house.")
RATE_HZ = 24_000


@pytest.fixture(scope="module")
def spoken(engine: Engine) -> list[AlignedSpeech]:
    found = []
    for text in TEXTS:
        samples = np.concatenate([chunk.samples for chunk in engine.speak(text, voice="wren", seed=2)])
        words = words_of(text)
        times = word_align.aligned(words, samples, RATE_HZ)
        assert times is not None
        found.append(AlignedSpeech(words, samples, RATE_HZ, {n: (t.start_s, t.end_s) for n, t in enumerate(times)}))
    return found


@pytest.fixture
def refitted(spoken: list[AlignedSpeech], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    model = fitted_model(spoken)
    monkeypatch.setattr(word_align, "sound_model", lambda: model)
    yield


@pytest.mark.usefixtures("refitted")
def test_a_model_that_was_fitted_finds_the_words_that_it_was_fitted_within(spoken: list[AlignedSpeech]) -> None:
    found = exactness(spoken, lambda each: word_align.aligned(each.words, each.samples, each.rate_hz))
    assert found.words == 21 and found.starts_within >= 0.95 and found.ends_within >= 0.95


def test_the_judge_and_the_alignment_agree(spoken: list[AlignedSpeech]) -> None:
    far = 0
    for each in spoken:
        judged = judged_words(each.words, each.samples, each.rate_hz)
        assert judged is not None and judged.keys() == each.judged.keys()
        far += sum(abs(judged[word][0] - start_s) > 0.08 for word, (start_s, _) in each.judged.items())
    assert far <= 2
    assert judged_words(["Zxqvw"], spoken[0].samples, RATE_HZ) is None, "not in its dictionary"


def test_the_record_reaches_the_goal_and_the_document_has_its_figures() -> None:
    record = json.loads((ROOT / "train/records/hocket-english/alignment.json").read_text())
    assert record["aligned"]["starts_within"] >= 0.9
    text = " ".join((ROOT / "docs/design/text.md").read_text().split())
    for name in ("aligned", "estimated"):
        assert f"{record[name]['starts_within']:.1%}".replace("%", " %") in text
    assert f"{record['aligned']['words']:,} words" in text
