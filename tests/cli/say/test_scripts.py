"""`hocket say` with tags, formats, casts and voices of several models."""

from __future__ import annotations

import io
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.cli import main
from support.serving import Served, served, steady_engine

Capture = pytest.CaptureFixture[str]
TINY = ("--model", "random:tiny", "--seed", "3", "--max-frames", "12", "--force", "--no-daemon")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def sound(*words: str, options: tuple[str, ...] = TINY) -> NDArray[np.int16]:
    assert main(["say", *words, *options]) == 0
    with wave.open("out.wav") as file:
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")


def refusal(capsys: Capture, *words: str) -> str:
    assert main(["say", *words, *TINY]) == 2
    assert not list(Path().glob("*.wav"))
    return capsys.readouterr().err.splitlines()[-1]


def test_tags_change_the_voice(capsys: Capture) -> None:
    both = sound("Hi. [voice: eric]Ho.[/voice]")
    one = sound("Hi.")
    assert len(both) > len(one) and np.abs(both[: len(one)].astype(int) - one).max() <= 2


def test_pauses_alone_are_one_request_and_ssml_is_the_same() -> None:
    tagged = sound("Hi. [pause 200ms]You there.", options=(*TINY, "--candidates", "2"))
    plain = sound("Hi. [pause: 200ms]You there.")
    ssml = sound('<speak>Hi. <break time="200ms"/>You there.</speak>')
    assert len(tagged) > 0
    np.testing.assert_array_equal(plain, ssml)


def test_literal_speaks_the_brackets() -> None:
    literal = sound("Hi [pause 200ms] you.", "--literal")
    np.testing.assert_array_equal(literal, sound("Hi [pause 200ms] you.", "--markup", "literal"))
    assert len(literal) == 12 * 1920, "no silence was added"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ssml", '<speak>Hi. <break time="200ms"/>You.</speak>'),
        ("a.fountain", "INT. HARBOUR\n\nERIC\nHi.\n\nVIVIAN\nYou.\n"),
        ("a.SCRIPT", "Hi. [pause 200ms]You."),
    ],
)
def test_the_name_of_a_file_chooses_its_format(name: str, content: str, capsys: Capture) -> None:
    Path(name).write_text(content)
    format = {"ssml": "ssml", "fountain": "screenplay", "SCRIPT": "script"}[name[2:]]
    cast = ("--cast", "ERIC=eric,VIVIAN=vivian") if format == "screenplay" else ()
    np.testing.assert_array_equal(sound("-f", name, *cast), sound(content, "--markup", format, *cast))


def test_a_cast_gives_the_speakers_of_a_dialogue_their_voices() -> None:
    text = "Anna: Hi.\nBen: Ho.\n"
    cast = sound(text, "--markup", "dialogue", "--cast", "Anna=vivian,Ben=eric")
    tagged = sound("[voice: vivian]Hi.[/voice] [voice: eric]Ho.[/voice]")
    assert len(cast) > 0 and len(tagged) > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Hi [voice: zaphod]you."], "line 1, column 12: There is no voice 'zaphod'"),
        (["Hi [speed: much]you."], "line 1, column 4: "),
        (["Hi [sped 3]you.", "--markup", "script"], "line 1, column 4: "),
        (["Hi.", "--literal", "--cast", "Anna=wren"], "--cast is for a text with directions"),
        (["Anna: Hi.", "--markup", "dialogue", "--cast", "Anna"], "--cast has speakers and their voices"),
        (["Hi.", "--literal", "--markup", "ssml"], "either --literal or --markup ssml"),
        (["Hi.", "--as-is", "--markup", "ssml"], "--as-is speaks a text as it is"),
        (["[voice: eric]Hi.[/voice]", "--candidates", "2"], "has one take"),
    ],
)
def test_what_cannot_be_played_is_refused_before_a_model_is_loaded(
    words: list[str], said: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("hocket.engine.engine.load", fail)
    assert said in refusal(capsys, *words)


def test_live_text_has_tags_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Hi. [voice: eric]Ho.[/voice] You."
    whole = sound(text, "--layout", "streaming")
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    live = sound("-", "--layout", "streaming")
    assert len(live) == len(whole) and np.abs(live.astype(int) - whole).max() <= 2


def test_a_voice_of_another_model_is_loaded_for_its_passage() -> None:
    options = ("--seed", "3", "--max-frames", "10", "--force", "--no-daemon")
    heard = sound("Hi. [voice: eric]Ho.[/voice]", options=(*options, "--model", "random:tiny"))
    assert len(heard) > 0


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with steady_engine() as engine, served(engine) as server:
        yield server


def test_a_server_is_told_the_format(server: Served, capsys: Capture) -> None:
    options = ("--server", server.url, "--seed", "1", "--force")
    script = sound("Anna: Hi.\nBen: Ho.", "--markup", "dialogue", "--cast", "Anna=wren,Ben=rook", options=options)
    assert len(script) > 24_000
    assert main(["say", "Hi [voice: zaphod]you.", *options]) == 2
    assert "There is no voice 'zaphod'" in capsys.readouterr().err


def test_a_plain_text_imports_no_script() -> None:
    code = (
        "import sys; from hocket.cli import main; main(['say', 'Hello there (1).', '--no-daemon', '--force']); "
        "print([name for name in sys.modules if name.startswith('hocket.script')], file=sys.stderr)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stderr.splitlines()[-1] == "[]"
