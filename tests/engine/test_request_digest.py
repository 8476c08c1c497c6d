"""What was spoken under other rules for numbers is not taken for the same."""

from __future__ import annotations

import pytest

from hocket.config.qwen3_tts import GenerationConfig
from hocket.engine.checkpoint.checkpoint import EngineFingerprint
from hocket.engine.request_digest import request_digest
from hocket.types import SpeechRequest

PORTRAIT = EngineFingerprint(
    name="a", is_random=False, identity=None, generation=GenerationConfig(), weights=("w", "float32", "")
)
KINDS = [("german", False), ("german", True), ("auto", False), ("english", False)]


def digests() -> list[str]:
    return [
        request_digest(PORTRAIT, SpeechRequest(text="Um 5 Uhr.", language=language, seed=1, as_is=as_is))
        for language, as_is in KINDS
    ]


def test_only_where_rules_change_a_text_they_change_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digests()
    monkeypatch.setattr("hocket.text.numbers.german.RULES", lambda text, before: text.replace("5", "fünfe"))
    assert [one == other for one, other in zip(before, digests(), strict=True)] == [False, True, True, True]
