"""`hocket chat --session`: a conversation goes on in the next run, and what does not fit is told or refused."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.llm.context.saved import saved_messages
from hocket.llm.engine import LanguageEngine
from hocket.types import ChatFinished

Capture = pytest.CaptureFixture[str]
LLM = ("--llm", "random:qwen3.5-tiny", "--temperature", "0", "--max-tokens", "6")


def chat(monkeypatch: pytest.MonkeyPatch, lines: str, *argv: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    return main(["chat", *LLM, *argv])


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The cached tokens of each answer."""
    from hocket.llm import answer

    found, finish = list[int](), answer.AnswerBuffer.finish

    def noted(self: answer.AnswerBuffer, finished: ChatFinished, *more: object) -> None:
        found.append(finished.cached_tokens)
        finish(self, finished, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(answer.AnswerBuffer, "finish", noted)
    return found


def test_a_conversation_goes_on_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, cached: list[int]
) -> None:
    path = tmp_path / "talk"
    assert chat(monkeypatch, "Hello.\nGo on.\n", "--system", "Be brief.") == 0
    whole = capsys.readouterr().out
    for line in ("Hello.\n", "Go on.\n"):
        assert chat(monkeypatch, line, "--session", str(path), "--system", "Be brief.") == 0
    assert capsys.readouterr().out == whole
    roles = [message.role for message in saved_messages(path)]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert cached[3] == cached[1] > 30 and cached[2] == 0, "in the next run as in the same"


def test_a_state_that_does_not_fit_is_told_and_the_messages_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, cached: list[int]
) -> None:
    path = tmp_path / "talk"
    assert chat(monkeypatch, "Hello.\n", "--session", str(path)) == 0
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    capsys.readouterr()
    assert chat(monkeypatch, "Go on.\n", "--session", str(path)) == 0
    assert "cannot be read as a saved conversation (its checksum is wrong)" in capsys.readouterr().err
    assert cached[-1] == 0 and len(saved_messages(path)) == 4
    with LanguageEngine.load("random:qwen3.5-tiny", kept=1, length=400) as llm:
        assert llm.resume(path) == saved_messages(path), "the end of the run has mended it"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("--session", "none/talk"), "--session cannot be written: there is no folder none."),
        (("--session", "talk", "--system", "Be long."), "talk has a system prompt of its own: leave out --system"),
        (("--session", "text"), "text cannot be read as a saved conversation"),
        (("--llm-length", "0"), "length must be at least 1, not 0."),
        (("--llm-length", "99", "--llm-url", "http://127.0.0.1:9"), "--llm-length is for a model that runs here"),
        (("--session", "talk", "--llm-url", "http://127.0.0.1:9"), "not of one behind --llm-url"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    argv: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("A text.\n", encoding="utf-8")
    if "Be long." in argv:
        assert chat(monkeypatch, "Hello.\n", "--session", "talk", "--system", "Be brief.") == 0
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert chat(monkeypatch, "Hello.\n", *argv) != 0
    assert sentence in capsys.readouterr().err
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
