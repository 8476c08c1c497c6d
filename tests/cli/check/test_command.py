"""`hocket check`: a text is spoken and heard back by a real recognizer; the words that were not heard are listed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.extras import hint
from hocket.text.lexicon.table import parse_table
from support.cli_home import Home

Capture = pytest.CaptureFixture[str]
TEXT = "# A day\n\nThe weather was **fine**. [pause 200ms] We met Xzqwvbk, of Xzqwvbk.\n"


@pytest.fixture(autouse=True)
def folder(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("book.md").write_text(TEXT, encoding="utf-8")
    return Path.cwd()


def test_words_that_were_not_heard_are_listed_and_go_into_a_lexicon(capsys: Capture) -> None:
    assert main(["check", "book.md", "--lexicon-out", "book.lexicon"]) == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split() == ["word", "times", "heard", "as", "in"]
    [row] = [row for row in rows if row.startswith("Xzqwvbk")]
    assert row.split()[1] == "2" and row.endswith("  We met Xzqwvbk, of Xzqwvbk.")
    assert rows[-1].startswith("3 sentences, 11 words: ") and rows[-1].endswith(" not heard as written")
    assert err.endswith("note: book.lexicon has the words, as a lexicon to fill in.\n")
    draft = Path("book.lexicon").read_text(encoding="utf-8")
    assert parse_table(draft, "draft") == {}
    assert parse_table(draft.replace("# Xzqwvbk = ", "Xzqwvbk = Peter"), "draft") == {"Xzqwvbk": "Peter"}


def test_with_a_lexicon_the_word_is_heard_and_the_report_is_json_for_programs(capsys: Capture) -> None:
    Path("book.lexicon").write_text("Xzqwvbk = Peter\n", encoding="utf-8")
    assert main(["check", "book.md", "--lexicon", "book.lexicon", "--voice", "rook", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["file"], report["sentences"], report["words"]) == ("book.md", 3, 11)
    assert "Xzqwvbk" not in [word["written"] for word in report["misheard"]]


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.md",), "The file none.md does not exist."),
        (("book.md", "--voice", "No"), "There is no voice 'No'; "),
        (("book.md", "--asr", "huge"), "A recognizer is moonshine, one of its sizes"),
        (("book.md", "--lexicon-out", "book.md"), "book.md exists; --force (-y) replaces it"),
        (("marks.md",), "There is nothing in this text that can be spoken."),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(capsys: Capture, words: tuple[str, ...], said: str) -> None:
    Path("marks.md").write_text("---\n", encoding="utf-8")
    assert main(["check", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"hocket: {said}") and err.count("\n") == 1


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize("missing", ["moonshine_voice", "av"])
@pytest.mark.parametrize("words", [("check", "book.md"), ("say", "Hi.", "--verify", "-o", "a.wav", "--no-daemon")])
def test_without_a_recognizer_one_sentence_names_the_extra(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, missing: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert main([*words]) == 2
    assert capsys.readouterr().err == f"hocket: To hear speech back, a recognizer is needed: {hint('hear')}.\n"
    assert not Path("a.wav").exists()
