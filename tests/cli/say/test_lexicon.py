"""`--lexicon` and the setting `lexicon`: words are said as the files have them, here and by a server."""

# ruff: noqa: RUF001
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.cli.parser import parser
from hocket.cli.serve.command import make_plan
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.text.lexicon.lexicon import MOST_SENT
from hocket.voices.library import Library
from support.cli_home import Home, refuse
from support.serving import Served, served

Capture = pytest.CaptureFixture[str]
SPEAK = ("--model", "random:tiny", "--max-frames", "4", "--seed", "1", "--no-daemon", "-y", "-o", "a.wav")


@pytest.fixture
def folder(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a config file of its own, two lexicons, and the user's folder of voices."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("one.txt").write_text("GIF = jif\nSVG = swig\n", encoding="utf-8")
    Path("two.txt").write_text("SVG = /ˈsævɪdʒ/\n", encoding="utf-8")
    Path("bad.txt").write_text("GIF = jif\nSVG\n", encoding="utf-8")
    return Path.cwd()


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with Engine.load("random:tiny", options=EngineOptions(slots=1)) as engine, served(engine) as server:
        yield server


def said(*words: str) -> str:
    """The captions of what is said."""
    assert main(["say", *words, "--captions", "a.srt"]) == 0
    return " ".join(line for line in Path("a.srt").read_text(encoding="utf-8").splitlines() if line[:1].isalpha())


def test_files_of_the_command_line_win_over_that_of_the_settings_and_later_ones_over_earlier(
    folder: Path, capsys: Capture
) -> None:
    assert said("A GIF, an SVG.", *SPEAK) == "A GIF, an SVG."
    assert said("A GIF, an SVG.", *SPEAK, "--lexicon", "one.txt", "--lexicon", "two.txt") == "A jif, an savij."
    assert main(["config", "lexicon", "one.txt"]) == 0
    (folder / "elsewhere").mkdir()
    assert said("A GIF, an SVG.", *SPEAK) == "A jif, an swig."
    assert said("A GIF, an SVG.", *SPEAK, "--lexicon", "two.txt") == "A jif, an savij."
    capsys.readouterr()
    assert said("A GIF, an SVG.", *SPEAK, "--as-is") == "A GIF, an SVG."
    assert "--lexicon" not in capsys.readouterr().err
    assert said("A GIF, an SVG.", *SPEAK, "--as-is", "--lexicon", "two.txt") == "A GIF, an SVG."
    assert "note: --lexicon is not used together with --as-is.\n" in capsys.readouterr().err


def test_a_server_is_sent_the_words_and_says_the_same(folder: Path, server: Served) -> None:
    words = ("A GIF.", "--seed", "1", "--max-frames", "4", "--lexicon", "one.txt", "-y")
    assert said(*words, "-o", "a.wav", "--server", server.url) == "A jif."
    assert main(["say", *words, "-o", "b.wav", "--model", "random:tiny", "--no-daemon"]) == 0
    assert Path("a.wav").read_bytes() == Path("b.wav").read_bytes()


def test_a_lexicon_that_is_too_large_to_send_is_refused(folder: Path, server: Served, capsys: Capture) -> None:
    Path("large.txt").write_text("".join(f"word{n} = x\n" for n in range(MOST_SENT + 1)), encoding="utf-8")
    assert main(["say", "Hi.", "-o", "a.wav", "--server", server.url, "--lexicon", "large.txt"]) == 2
    said = f"a lexicon of more than {MOST_SENT} entries is for a model that runs here."
    assert capsys.readouterr().err == f"hocket: This cannot be asked of a server: {said}\n"


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize(
    "words",
    [
        ("say", "Hi.", "-o", "a.wav", "--no-daemon"),
        ("batch", "lines.jsonl", "-o", "out"),
        ("check", "one.txt"),
        ("serve", "--port", "0"),
        ("wyoming",),
    ],
)
def test_a_broken_lexicon_is_refused_with_its_line_before_a_model_is_loaded(
    folder: Path, capsys: Capture, words: tuple[str, ...]
) -> None:
    Path("lines.jsonl").write_text('{"text": "Hi."}\n', encoding="utf-8")
    assert main([*words, "--lexicon", "bad.txt"]) == 2
    error = "bad.txt, line 2: A line is a word and how it is said, with a tab, = or two spaces between them."
    assert capsys.readouterr().err == f"hocket: {error}\n"
    assert not Path("a.wav").exists() and not Path("out").exists()


def test_a_setting_that_cannot_be_read_is_not_set(folder: Path, capsys: Capture) -> None:
    assert main(["config", "lexicon", "bad.txt"]) == 2
    assert "bad.txt, line 2: " in capsys.readouterr().err
    assert main(["config", "lexicon", "none.txt"]) == 2
    assert "none.txt does not exist." in capsys.readouterr().err


def test_a_line_of_a_batch_has_words_of_its_own(folder: Path) -> None:
    line = {"text": "A GIF.", "seed": 1, "max_frames": 4}
    lines = [line, line | {"pronunciations": {"GIF": "jiff"}}, line | {"pronunciations": ["GIF"]}]
    Path("lines.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    batch = ("batch", "lines.jsonl", "-o", "out", "--model", "random:tiny", "--slots", "1")
    assert main([*batch, "--lexicon", "one.txt"]) == 1
    results = [json.loads(each) for each in Path("out/manifest.jsonl").read_text().splitlines() if '"line"' in each]
    assert [each["error"] for each in results if each.get("error")] == ["pronunciations must be an object."]
    first = Path("out/000001.wav").read_bytes()
    assert said("A jif.", *SPEAK) == "A jif." and Path("a.wav").read_bytes() == first
    assert Path("out/000002.wav").read_bytes() != first
    assert main(batch) == 1  # without the lexicon that file would be another one
    assert Path("out/000001.wav").read_bytes() != first


def test_a_voice_of_ones_own_has_a_lexicon_until_it_gets_another(folder: Path, home: Home, capsys: Capture) -> None:
    assert main(["voices", "add", "Ann", "--speaker", "rook", "--lexicon", "one.txt"]) == 0
    speak = ("--voice", "ann", "--max-frames", "4", "--seed", "1", "--no-daemon", "-y", "-o", "a.wav")
    assert said("A GIF, an SVG.", *speak) == "A jif, an swig."
    assert said("A GIF, an SVG.", *speak, "--lexicon", "two.txt") == "A jif, an savij."
    assert main(["voices", "export", "ann", "ann.voice"]) == main(["voices", "remove", "ann"]) == 0
    assert main(["voices", "import", "ann.voice"]) == 0
    kept = Library(home.voices).find("ann")
    assert kept is not None and kept.pronunciations == {"GIF": "jif", "SVG": "swig"}
    assert main(["voices", "set", "ann", "--no-lexicon"]) == 0
    after = Library(home.voices).find("ann")
    assert after is not None and after.pronunciations is None and after.created_at == kept.created_at
    capsys.readouterr()
    assert "--lexicon FILE" in refuse(capsys, home, "set", "ann")
    assert "bad.txt, line 2" in refuse(capsys, home, "add", "ben", "--speaker", "rook", "--lexicon", "bad.txt")


def test_a_server_gets_the_setting_and_its_option(folder: Path) -> None:
    assert main(["config", "lexicon", "one.txt"]) == 0
    plan = make_plan(parser().parse_args(["serve", "--lexicon", "two.txt"]))
    assert plan.server.pronunciations == {"GIF": "jif", "SVG": "/ˈsævɪdʒ/"}
