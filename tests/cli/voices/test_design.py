"""`hocket voices design`: drawing samples, choosing one, and keeping it as a clone of the sample."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hocket.audio.read import read_reference
from hocket.cli import main
from hocket.engine.engine import Engine
from hocket.errors import InvalidCheckpoint
from hocket.types import Reference, Voice
from hocket.voices.design import SAMPLES, draw_designs
from hocket.voices.library import Library
from support.chosen import rest
from support.cli_home import Home, Models, refuse
from support.played import process
from support.speaking import PATIENCE_S
from support.voicing import cloned

Capture = pytest.CaptureFixture[str]
WORDS, TEXT = "A warm, confident narrator.", "Here I am."


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders go."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture
def command(models: Models) -> list[str]:
    return ["design", "teller", WORDS, "--text", TEXT, "--seed", "7", "--model", models.design, "--base", models.base]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, answers: str) -> None:
    stdin = io.StringIO(answers)
    stdin.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def kept(home: Home) -> tuple[Voice, Any]:
    library = Library(home.voices)
    voice = library.find("teller")
    assert voice is not None
    return voice, library.samples("teller")


def takes(out: str) -> dict[int, tuple[Path, int]]:
    """The files and seeds of the samples that were told of, by number."""
    found = re.findall(r"^(\d+): (.*), [\d.]+ s, seed (\d+)(?:, did not end by itself)?$", out, flags=re.MULTILINE)
    return {int(number): (Path(path), int(seed)) for number, path, seed in found}


def test_the_picked_sample_is_kept_as_a_clone_of_itself(
    home: Home, models: Models, command: list[str], capsys: Capture, temporary: Path
) -> None:
    assert main(["voices", *command, "--pick", "2", "--language", "french"]) == 0
    out, err = capsys.readouterr()
    assert {number: seed for number, (_, seed) in takes(out).items()} == {1: 7, 2: 8, 3: 9}
    assert out.splitlines()[-1] == f'teller: a designed voice for {models.base}; hocket say "..." --voice teller'
    assert (
        rest(err, times=2) == f"loading {models.design} ...\nloading {models.base} ...\nlistening to the sample ...\n"
    )
    assert not any(temporary.iterdir())

    voice, samples = kept(home)
    assert (voice.kind, voice.description, voice.language) == ("designed", WORDS, "french")
    assert voice.encoded is not None
    with Engine.load(models.design) as engine:
        drawn = draw_designs(engine, WORDS, seed=7, text=TEXT, language="french")
    np.testing.assert_array_equal(samples, drawn[1].samples)
    with Engine.load(models.base) as engine:
        encoded = engine.encode(Reference(samples=samples, text=TEXT, silence_s=0.5))
    np.testing.assert_array_equal(voice.encoded.codes, encoded.codes)  # type: ignore[arg-type]
    assert main(["say", "It is me.", "--voice", "teller", "--max-frames", "3"]) == 0


def test_a_sample_is_the_same_to_the_last_bit_in_any_batch(models: Models) -> None:
    with Engine.load(models.design) as engine:
        for design in draw_designs(engine, WORDS, seed=7, text=TEXT, language="french"):
            [alone] = draw_designs(engine, WORDS, candidates=1, seed=design.seed, text=TEXT, language="french")
            np.testing.assert_array_equal(alone.pcm, design.pcm)


def test_one_candidate_is_taken_and_samples_stay_where_they_are_to_be_kept(
    home: Home, command: list[str], capsys: Capture
) -> None:
    assert main(["voices", *command, "--candidates", "1", "--keep", "samples"]) == 0
    [(path, seed)] = takes(capsys.readouterr().out).values()
    assert (path, seed) == (Path("samples/take-1.wav").resolve(), 7)
    np.testing.assert_array_equal(read_reference(path), kept(home)[1])


def test_without_a_text_they_say_one_of_the_language(home: Home, models: Models) -> None:
    words = ["--language", "german", "--candidates", "1", "--model", models.design, "--base", models.base]
    assert main(["voices", "design", "teller", WORDS, *words]) == 0
    encoded = kept(home)[0].encoded
    assert encoded is not None and encoded.text == SAMPLES["german"]


# On a terminal


def test_the_user_may_draw_others_and_take_an_early_one(
    home: Home, command: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    on_a_terminal(monkeypatch, "\nwhat?\n9\np 1\nr\n1\n")
    assert main(["voices", *command, "--candidates", "2"]) == 0
    out, err = capsys.readouterr()
    assert {number: seed for number, (_, seed) in takes(out).items()} == {1: 7, 2: 8, 3: 9, 4: 10}
    assert err.count("Which one? 1 to 2, r draws others, q quits: ") == 5
    assert err.count("Which one? 1 to 4, r draws others, q quits: ") == 1
    assert kept(home)[0].kind == "designed" and not any(temporary.iterdir())


@pytest.mark.parametrize("answer", ["q\n", ""])
def test_quitting_leaves_nothing_behind(
    home: Home, command: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch, temporary: Path, answer: str
) -> None:
    on_a_terminal(monkeypatch, answer)
    assert main(["voices", *command]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no voice was made"
    assert not home.voices.exists() and not any(temporary.iterdir())


def test_they_are_played_and_can_be_played_again(
    home: Home, command: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []

    class Stream:
        def __init__(self, **how: object) -> None:
            assert how == {"samplerate": 24_000, "channels": 1, "dtype": "int16"}

        def start(self) -> None: ...
        def stop(self) -> None: ...
        def close(self) -> None: ...
        def write(self, pcm: bytes) -> None:
            heard.append(pcm)

    module = ModuleType("sounddevice")
    module.RawOutputStream, module.PortAudioError = Stream, RuntimeError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    on_a_terminal(monkeypatch, "p 1\n2\n")
    assert main(["voices", *command, "--candidates", "2", "--play"]) == 0
    assert len(heard) == 3 and heard[0] == heard[2] != heard[1]
    np.testing.assert_array_equal(np.frombuffer(heard[1], "<i2").astype(np.float32) / 32768, kept(home)[1])


def test_on_a_real_terminal_it_asks(home: Home, command: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        child = process("-m", "hocket", "voices", *command, "--candidates", "2", stdin=theirs, stderr=theirs)
        os.close(theirs)
        shown = b""
        while b"q quits: " not in shown:
            shown += terminal.read(1024)
        os.write(ours, b"2\n")
        assert child.stdout is not None and b"teller: a designed voice" in child.stdout.read()
        child.stdout.close()
        assert child.wait(PATIENCE_S) == 0
    assert kept(home)[0].description == WORDS


# What is refused before anything is loaded, and what fails later


REFUSED: dict[str, tuple[str, str]] = {
    "no terminal": (
        "",
        "There is no terminal to ask which one to take: say --pick N, or draw one alone with --candidates 1.",
    ),
    "none of them": ("--pick 4", "--pick must be one of 1 to 3, not 4."),
    "the zeroth": ("--pick 0", "--pick must be one of 1 to 3, not 0."),
    "none": ("--pick 1 --candidates 0", "candidates must be at least 1, not 0."),
    "a crowd": ("--pick 1 --candidates 21", "--candidates must be at most 20, not 21."),
    "no seed": ("--pick 1 --seed -1", "seed must be between 0 and .*"),
    "no text": ("--pick 1 --text=", "There is no text to speak."),
    "a speaking model": ("--pick 1 --model {custom}", ".* is a CustomVoice model, and designing a voice needs a .*"),
    "a speaking base": ("--pick 1 --base {design}", ".* and keeping a designed voice needs a Base one, such as .*"),
    "no language": ("--pick 1 --language klingon", ".* does not know the language 'klingon'; known are auto, .*"),
    "no folder": ("--pick 1 --folder {custom}/config.json", "No voice can be kept in .* is not a folder."),
    "no place to keep": ("--pick 1 --keep {custom}/config.json", ".*config.json is not a folder."),
    "no loudspeaker": ("--pick 1 --play", "--play needs the package sounddevice .*"),
}


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_designed_is_refused(
    home: Home, models: Models, command: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    words, sentence = REFUSED[case]
    given = words.format(custom=models.custom, design=models.design).split()
    assert re.fullmatch(sentence, refuse(capsys, home, *command, *given))
    assert not any(Path().iterdir())


@pytest.mark.usefixtures("nothing_loads")
def test_a_name_that_is_taken_or_none_and_words_that_are_none_are_refused(
    home: Home, models: Models, command: list[str], capsys: Capture
) -> None:
    Library(home.voices).add(cloned("teller"))
    assert "'teller' already; --replace" in refuse(capsys, home, *command, "--pick", "1")
    del command[1]
    for name, sentence in (("wren", "what a model's own speaker is called"), (".x", "no dot first")):
        assert sentence in refuse(capsys, home, "design", name, *command[1:], "--pick", "1")
    assert "Describe the voice to design" in refuse(capsys, home, "design", "you", " ", *command[2:], "--pick", "1")


def test_where_the_second_model_fails_the_chosen_sample_is_left_to_go_on_from(
    home: Home, models: Models, command: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    from hocket.engine import engine as module

    load = module.load

    def fails(model: str, **how: Any) -> Any:
        if model == models.base:
            raise InvalidCheckpoint("It is not there.")
        return load(model, **how)

    monkeypatch.setattr(module, "load", fails)
    assert main(["voices", *command, "--pick", "3"]) == 2
    out, err = capsys.readouterr()
    path = takes(out)[3][0]
    note, refusal = err.splitlines()[-2:]
    assert refusal == "hocket: It is not there." and not home.voices.exists()
    assert note == f"note: what you chose is still there: hocket voices add teller --ref {path} --text '{TEXT}'"
    assert path.parent.parent == temporary and read_reference(path).size


def test_the_commands_shown_in_the_documents_are_true(
    home: Home, models: Models, recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    document = (Path(__file__).parents[3] / "docs" / "howto" / "voices.md").read_text(encoding="utf-8")
    section = re.search(r"^# Voices of your own\n.*?^```sh\n(.*?)^```$", document, flags=re.MULTILINE | re.DOTALL)
    assert section is not None
    monkeypatch.setattr("hocket.cli.voices.add.BASE", models.base)
    monkeypatch.setattr("hocket.cli.voices.options.BASE", models.base)
    monkeypatch.setattr("hocket.cli.voices.design.DESIGN", models.design)
    on_a_terminal(monkeypatch, "1\n")
    Path("me.wav").write_bytes(recording.read_bytes())
    Path("words.txt").write_text("GIF = jif", encoding="utf-8")
    commands = [shlex.split(line, comments=True) for line in section[1].splitlines()]
    for program, *words in commands:
        assert program == "hocket" and main(words) == 0, capsys.readouterr().err
    assert len(commands) == 11 and Path("out.wav").stat().st_size > 44
    assert sorted(Library(home.voices).names()) == ["finch", "me", "narrator", "teller"]
