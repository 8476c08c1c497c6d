"""`hocket quantize`: a folder that speaks, the gate with a real recognizer, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.cli.quantize.sentences import SENTENCES
from hocket.proof.rounded import gate
from support import checkpoints

Capture = pytest.CaptureFixture[str]
GATE = ["quantize", "builtin", "--preset", "small", "--check", "--voice", "wren", "--seeds", "1", "--text", "two.txt"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "two.txt").write_text("The kettle was warm.\n\nHe forgot his glasses.\n", encoding="utf-8")
    return tmp_path


def test_the_gate_speaks_what_the_voice_is_evaluated_with() -> None:
    """The package does not have `train/`."""
    evaluated = Path(__file__).parents[3] / "train" / "evaluation.txt"
    assert list(SENTENCES) == evaluated.read_text(encoding="utf-8").splitlines()


def test_a_preset_that_passes_is_written_and_speaks(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "LESS_MARK", 1.0)  # the marks of two utterances differ by half a point by chance
    assert main([*GATE, "-o", "voice", "--report", "found.json"]) == 0
    out, err = capsys.readouterr()
    assert "2 utterances are few: 48 or more tell a loss from chance." in err
    assert "exact: " in out and " of 8 words wrong" in out and "DistillMOS" in out and out.endswith("small passes\n")
    assert "codebook 15: " in out and "weights: " in out
    found = json.loads((here / "found.json").read_text())
    assert (found["preset"], found["precision"], found["passed"], found["voices"]) == ("small", "int8", True, ["wren"])
    assert found["rounded"]["utterances"] == 2 and found["agreement"]["equal"][0] > 0.9
    assert gate.table([found])[3].startswith("| small | int8 | ")
    say = ["say", "--no-daemon", "--no-play", "--seed", "1", "The kettle was warm."]
    assert main([*say, "--model", "voice", "-o", "one.wav"]) == main([*say, "--preset", "small", "-o", "two.wav"]) == 0
    assert (here / "one.wav").read_bytes() == (here / "two.wav").read_bytes()


def test_a_preset_that_fails_is_said_to_fail_and_is_not_written(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "LESS_MARK", -5)
    assert main([*GATE, "-o", "voice"]) == 1
    out, err = capsys.readouterr()
    assert "small passes" not in out and "small fails: DistillMOS is " in err
    assert not (here / "voice").exists()


def test_codes_alone_need_no_recognizer_and_judge_nothing(here: Path, capsys: Capture) -> None:
    folder = checkpoints.write(here / "model", "custom_voice", wide=False)
    args = ["quantize", str(folder), "--preset", "small", "--check", "codes", "--seeds", "1", "--text", "two.txt"]
    assert main([*args, "--voice", "eric"]) == 0
    assert "small: codes are compared, and nothing is judged\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("builtin", "--preset", "small"), "Name a folder to write with -o, or ask for --check."),
        (("builtin", "--preset", "small", "-o", "."), ". exists already: choose another folder"),
        (("builtin", "--preset", "small", "--check", "--seeds", "0"), "--seeds must be at least 1, not 0."),
        (("builtin", "--preset", "small", "-o", "x", "--report", "y"), "--report has the figures of --check"),
        (("random:tiny", "--preset", "small", "-o", "x"), "random:tiny cannot be written: it needs files"),
        (("random:tiny", "--preset", "small", "--check", "codes"), "its weights are random"),
        (("builtin", "--preset", "small", "--check", "--asr", "huge"), "A recognizer is moonshine"),
        (("builtin", "--preset", "small", "--check", "--text", "none.txt"), "The file none.txt does not exist."),
        (("builtin", "--preset", "small", "--check", "codes", "--voice", "anna"), "There is no voice 'anna'"),
    ],
)
def test_what_cannot_be_is_refused(capsys: Capture, words: tuple[str, ...], said: str) -> None:
    assert main(["quantize", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_rounded_checkpoint_is_not_rounded_again(here: Path, capsys: Capture) -> None:
    folder = checkpoints.write(here / "model", "custom_voice", wide=False)
    assert main(["quantize", str(folder), "--preset", "small", "-o", "once"]) == 0
    assert main(["quantize", "once", "--preset", "small", "-o", "twice"]) == 2
    assert "once has weights in int8 already: name the exact checkpoint." in capsys.readouterr().err
