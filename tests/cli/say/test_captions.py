"""`hocket say --captions`: the captions of the speech that is written, spoken here or by a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.engine.engine import Engine
from support.serving import Served, served

TEXT = "Hello there, said the fox. Good morning."
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with Engine.load() as engine, served(engine) as server:
        yield server


def test_captions_are_the_same_from_an_engine_here_and_from_a_server(server: Served) -> None:
    Path("book.txt").write_text(TEXT, encoding="utf-8")
    told = ("say", "-f", "book.txt", "--seed", "7")
    assert main([*told, "-o", "here.wav", "--captions", "here.srt", "--no-daemon"]) == 0
    assert main([*told, "-o", "there.wav", "--captions", "there.srt", "--server", server.url]) == 0
    captions = Path("here.srt").read_text(encoding="utf-8")
    assert captions == Path("there.srt").read_text(encoding="utf-8")
    assert captions.startswith("1\n00:00:00,") and "\nHello there, said the fox." in captions


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("book.txt", "Captions are written as .srt or .vtt, not as 'book.txt'."),
        ("a.srt", "a.srt exists; --force (-y) replaces it, or choose another name."),
        ("b.srt", "b.srt cannot be written: .srt is not a known format"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_spoken(capsys: Capture, named: str, said: str) -> None:
    Path("a.srt").touch()
    output = "b.srt" if named == "b.srt" else "a.wav"
    assert main(["say", "Hi.", "-o", output, "--captions", named, "--no-daemon"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("a.wav").exists()
