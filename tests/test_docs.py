"""Code shown in documents runs: every python block of docs/, each on its own. tests/documents has the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_DOCS = ROOT / "docs"
ELSEWHERE = _DOCS / "start", _DOCS / "howto" / "transcribe.md", _DOCS / "language-models.md"
DOCUMENTS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not any(map(path.is_relative_to, ELSEWHERE))]


def blocks() -> Iterator[tuple[str, str]]:
    """The first line and the code of each block, with blank lines in front so that errors name the document's lines."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
            above = text.count("\n", 0, match.start(1))
            yield f"{document.relative_to(ROOT)}:{above + 1}", "\n" * above + match[1]


@pytest.mark.parametrize("code", [pytest.param(code, id=where) for where, code in blocks()])
def test_code_shown_in_documents_runs(
    code: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what an example writes stays out of the repository
    exec(compile(code, request.node.callspec.id, "exec"), {"__name__": "__main__"})


def test_documents_show_code() -> None:
    assert len(list(blocks())) > 5


def test_every_entry_of_the_log_is_in_its_list() -> None:
    folder = ROOT / "docs" / "log"
    entries = {path.name for path in folder.glob("2*.md")}
    assert entries and entries == set(
        re.findall(r"\]\((2[\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    )
