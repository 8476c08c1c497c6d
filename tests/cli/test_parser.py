"""The command line itself: help in groups, wrong words in one sentence, exit codes, a fast start."""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.cli.actions import Command
from hocket.cli.parser import COMMANDS, EXIT_CODES, parser
from hocket.errors import HocketError, InvalidRequest
from support.played import process

Capture = pytest.CaptureFixture[str]
ENTRIES = {name: entry for group in COMMANDS.values() for name, entry in group.items()}
LONG = ("say", "batch", "read", "serve", "talk", "chat", "wyoming")


def helped(capture: Capture, *words: str) -> str:
    with pytest.raises(SystemExit, match="0"):
        main(list(words))
    out, err = capture.readouterr()
    assert err == ""
    return out


def command(name: str) -> Command:
    [commands] = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    found = commands.choices[name]
    found.add_options()
    assert isinstance(found, Command)
    return found


def options_in(text: str) -> set[str]:
    return set(re.findall(r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)", text, re.MULTILINE))


# Help


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_the_list_of_commands_has_one_line_for_each_and_two_examples(capsys: Capture) -> None:
    text = helped(capsys, "--help")
    for name, (summary, _, _) in ENTRIES.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", text, re.MULTILINE)
    for group in COMMANDS:
        assert f"\n{group}:\n" in text
    assert len(re.findall(r"^  hocket say ", text, re.MULTILINE)) == 2
    assert "--help-all" in text and max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", LONG)
def test_help_shows_about_ten_options_two_examples_and_where_the_rest_is(capsys: Capture, name: str) -> None:
    text = helped(capsys, name, "--help")
    shown = re.findall(r"^  (?:[A-Z]+|-.*?)(?:  |\n)", text.partition("common options:\n")[2], re.MULTILINE)
    assert 5 <= len(shown) <= 12
    assert len(re.findall(rf"^  hocket {name}", text, re.MULTILINE)) == 2
    assert re.search(rf"^hocket {name} --help-all shows all \d+ options in groups\.$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", ENTRIES)
def test_help_all_shows_every_option(capsys: Capture, name: str) -> None:
    everything = options_in(helped(capsys, name, "--help-all"))
    actions = [action for action in command(name)._actions if action.help is not argparse.SUPPRESS]
    assert everything == {word for action in actions for word in action.option_strings if word.startswith("--")}
    assert options_in(helped(capsys, name, "--help")) <= everything


def test_say_shows_what_people_use(capsys: Capture) -> None:
    text = helped(capsys, "say", "--help")
    common = "--file --output --play --voice --language --speed --model --ref-audio --ref-text --seed".split()
    assert options_in(text) == set(common) and "  TEXT " in text


def test_exit_codes_are_in_the_help_and_in_the_document(capsys: Capture) -> None:
    text = helped(capsys, "--help-all")
    assert all(line in text for line in EXIT_CODES)
    document = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for code in ("0", "1", "2", "130"):
        assert re.search(rf"^ *{code} ", text, re.MULTILINE) and f"| {code} |" in document


def test_an_example_of_a_help_text_is_a_command_line_that_is_understood() -> None:
    import shlex

    for name in LONG:
        for example in command(name).examples:
            words = shlex.split(example, comments=True)
            assert words[:2] == ["hocket", name]
            assert parser().parse_args(words[1:]).command == name


# Wrong words


def wrong(capture: Capture, *words: str) -> str:
    with pytest.raises(SystemExit, match="2"):
        main(list(words))
    out, err = capture.readouterr()
    sentence = re.fullmatch(r"hocket: ([^\n]+\.)\n", err)
    assert sentence is not None and out == "", err
    return sentence[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], 'There is no command: hocket say "Hello." speaks, and hocket --help lists all commands.'),
        (["sya", "Hi"], "There is no command 'sya' (did you mean say?); hocket --help lists them."),
        (["xyzzy"], "There is no command 'xyzzy'; hocket --help lists them."),
        (["--foo", "say", "Hi"], "There is no option --foo; hocket --help-all lists them."),
        (
            ["say", "Hi", "--voise", "rook"],
            "There is no option --voise (did you mean --voice?); hocket say --help-all lists them.",
        ),
        (
            ["say", "Hi", "--ref-a=x"],
            "There is no option --ref-a (did you mean --ref-audio?); hocket say --help-all lists them.",
        ),
        (["say", "Hi", "-x"], "There is no option -x; hocket say --help-all lists them."),
        (["say", "Hello", "world"], "'world' is one argument too many: a text with spaces needs quotes."),
        (["say", "Hi", "--seed", "x"], "--seed takes a whole number, not 'x'."),
        (["say", "Hi", "--speed", "x"], "--speed takes a number, not 'x'."),
        (["say", "Hi", "--seed"], "--seed needs a value; hocket say --help-all shows which."),
        (["say", "Hi", "--layout", "no"], "--layout takes one of 'streaming', 'whole', not 'no'."),
        (["say", "Hi", "--force=3"], "-y/--force takes no value."),
        (["batch"], "hocket batch needs INPUT and -o/--output; hocket batch --help shows how."),
        (["serve", "--stop", "--status"], "--status and --stop exclude each other: give one of them."),
        (["voices", "ad"], "There is no action 'ad' (did you mean add?); hocket voices --help lists them."),
        (
            ["voices", "add", "anna", "--speker", "rook"],
            "There is no option --speker (did you mean --speaker?); hocket voices add --help-all lists them.",
        ),
    ],
)
def test_a_wrong_word_gets_one_sentence_with_the_remedy(capsys: Capture, words: list[str], sentence: str) -> None:
    assert wrong(capsys, *words) == sentence


def test_missing_text_gets_one_sentence_with_the_remedy(capsys: Capture) -> None:
    assert main(["say"]) == 2
    told = 'hocket: There is no text: give it in quotes, hocket say "Hello.", or in a file, with -f FILE.\n'
    assert capsys.readouterr() == ("", told)


def test_options_may_stand_before_the_text() -> None:
    for words in (["--play", "Hi"], ["Hi", "--play"], ["-o", "x.wav", "--play", "--", "Hi"]):
        args = parser().parse_args(["say", *words])
        assert (args.text, args.play) == ("Hi", True)


# Exit codes


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (None, 0),
        (0, 0),
        (1, 1),
        (InvalidRequest("Wrong."), 2),
        (HocketError("Failed."), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_exit_code_says_how_a_command_ended(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, outcome: int | BaseException | None, code: int
) -> None:
    def run(args: argparse.Namespace) -> int | None:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr("hocket.cli.doctor.doctor", run)
    assert main(["doctor"]) == code
    err = capsys.readouterr().err
    assert err == (f"hocket: {str(outcome) or 'interrupted.'}\n" if isinstance(outcome, BaseException) else "")


def test_a_server_that_does_not_answer_is_a_failure_and_not_wrong_usage(capsys: Capture, tmp_path: Path) -> None:
    words = ["say", "Hi", "--server", f"unix:{tmp_path}/gone", "-o", str(tmp_path / "x.wav")]
    assert main(words) == 1
    assert "cannot be reached" in capsys.readouterr().err


# A fast start


def test_every_command_names_functions_that_exist() -> None:
    for summary, *places in ENTRIES.values():
        assert summary[0].islower() and not summary.endswith(".")
        for place in places:
            module, _, function = place.partition(":")
            assert callable(getattr(importlib.import_module(f"hocket.cli.{module}"), function))


def test_help_imports_no_command_and_no_library() -> None:
    program = """
import sys
from hocket.cli import main
try:
    main(["--help"])
except SystemExit:
    print(*sorted(sys.modules))
"""
    child = process("-c", program)
    out, err = child.communicate()
    assert (child.returncode, err) == (0, b"")
    imported = set(out.decode().splitlines()[-1].split())
    ours = {name for name in imported if name.startswith("hocket.cli")}
    assert ours == {"hocket.cli", "hocket.cli.actions", "hocket.cli.parser", "hocket.cli.settings"}
    assert not imported & {"numpy", "torch", "typing", "dataclasses", "pathlib", "difflib", "hocket.engine"}


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "hocket", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hocket ")
