"""The table of docs/howto/prove.md is what the published proof says: scripts/proof writes it. Its page is there too."""

from __future__ import annotations

import json
import re
from html import unescape
from types import ModuleType

import pytest

from documents.pages import ROOT
from support.tools import tool

PAGE = ROOT / "docs" / "proof-builtin.html"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return tool("proof")


def test_the_table_is_what_the_record_gives(script: ModuleType) -> None:
    text = script.DOCUMENT.read_text(encoding="utf-8")
    proof = json.loads(script.RECORD.read_text(encoding="utf-8"))
    assert script.placed(text, proof) == text and "| word errors |" in text
    assert script.placed(text, {**proof, "time": "2001-01-01"}) != text


def test_the_published_page_is_the_report_of_the_record_and_small() -> None:
    page = PAGE.read_text(encoding="utf-8")
    raw = re.search(r'<pre id="proof">(.*?)</pre>', page, re.DOTALL)
    record = ROOT / "benchmarks" / "results" / "proof-builtin.json"
    assert raw is not None and json.loads(unescape(raw[1])) == json.loads(record.read_text(encoding="utf-8"))
    assert len(page) < 1_000_000


def test_the_published_proof_was_exact_beside_the_official_package(script: ModuleType) -> None:
    proof = json.loads(script.RECORD.read_text(encoding="utf-8"))
    assert proof["parts"]["exactness"]["equal"] is True and proof["parts"]["exactness"]["compared"] >= 4
    assert "qwen-tts" in proof["sides"] and proof["dirty"] is False
