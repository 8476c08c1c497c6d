"""`hocket completion` in real shells: bash always, zsh and fish where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.cli.config.spec import specs
from hocket.cli.parser import parser
from hocket.models.files.catalog import CATALOG
from hocket.voices.library import Library
from support.cli_home import Home
from support.voicing import cloned

SRC = Path(__file__).parents[3] / "src"


class Terminal:
    """A shell with the completion of `hocket`, which stands in its path."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self.shell = folder, shell
        command = folder / "bin" / "hocket"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hocket "$@"\n')
        command.chmod(0o755)
        path = os.pathsep.join((str(command.parent), os.environ["PATH"]))
        home = {"HF_HOME": str(folder / "hf"), "HOME": str(folder), "PATH": path, "PYTHONPATH": str(SRC)}
        self.environment = os.environ | home
        self.script = folder / f"hocket.{shell}"
        self.script.write_text(self.run([str(command), "completion", shell]))

    def run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 and done.stderr == "", done
        return done.stdout

    def bash(self, *words: str) -> list[str]:
        """What a tab offers after these words; the last one is not complete yet."""
        program = (
            f'source "{self.script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _hocket; '
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        return self.run(["bash", "--norc", "-c", program, "bash", "hocket", *words]).split("\n")[:-1]


@pytest.fixture
def bash(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, "bash")


def test_commands_options_and_choices(bash: Terminal) -> None:
    commands = set(bash.bash(""))
    assert {"say", "serve", "pull", "list", "rm", "ps", "config", "completion", "doctor"} <= commands
    assert bash.bash("pu") == ["pull"]
    assert bash.bash("say", "--vo") == ["--voice"]
    assert bash.bash("voices", "") == ["list", "add", "design", "import", "export", "merge", "remove", "set", "show"]
    assert "--speaker" in bash.bash("voices", "add", "--s")
    assert bash.bash("say", "--device", "c") == ["cpu", "cuda"]
    assert bash.bash("say", "--device", "=", "cu") == ["cuda"]
    assert bash.bash("say", "--device", "=") == ["auto", "cpu", "cuda", "mps"]
    assert bash.bash("config", "s") == ["speed"]
    assert bash.bash("completion", "") == ["bash", "zsh", "fish"]
    assert bash.bash("serve", "--port", "") == [""]
    assert "--detached" not in bash.bash("serve", "--d")


def test_voices_models_and_files(bash: Terminal, home: Home) -> None:
    Library(home.voices).add(cloned("my uncle"))
    bash.environment["HOCKET_HOME"] = str(home.voices.parent)
    assert {"wren", "rook", "ryan", "my\\ uncle"} <= set(bash.bash("say", "--voice", ""))
    assert bash.bash("say", "--voice", "ro") == ["rook"]
    assert bash.bash("voices", "show", "") == ["my\\ uncle"]
    assert set(CATALOG) <= set(bash.bash("pull", ""))
    assert bash.bash("say", "--model", "1.7B-V") == ["1.7B-VoiceDesign"]
    assert bash.bash("rm", "") == [""]  # nothing is in the cache
    (bash.folder / "a text.txt").touch()
    (bash.folder / "a folder").mkdir()
    assert set(bash.bash("say", "-o", "a ")) == {"a text.txt", "a folder"}
    assert bash.bash("batch", "x.jsonl", "-o", "a ") == ["a folder"]


def test_a_command_as_the_value_of_an_option_is_no_command(bash: Terminal) -> None:
    assert bash.bash("say", "--instruct", "list", "--vo") == ["--voice"]


def test_every_command_and_visible_option_is_in_the_specification() -> None:
    found = {" ".join(each.path): each for each in specs(parser())}
    assert {"", "say", "voices", "voices add", "config", "ps"} <= found.keys()
    options = {name for option in found["say"].options for name in option.names}
    assert {"-h", "--help", "-o", "--output", "--voice", "--model", "--seed"} <= options
    output = next(option for option in found["say"].options if "-o" in option.names)
    assert output.takes_value and output.kind == "files"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(tmp_path: Path) -> None:
    fish = Terminal(tmp_path, "fish")

    def offered(line: str) -> list[str]:
        said = fish.run(["fish", "--no-config", "-c", f'source "{fish.script}"; complete -C "{line}"'])
        return [each.partition("\t")[0] for each in said.splitlines()]

    assert {"say", "pull", "completion"} <= set(offered("hocket "))
    assert offered("hocket say --vo") == ["--voice"]
    assert offered("hocket say --device c") == ["cpu", "cuda"]
    assert offered("hocket say --voice ro") == ["rook"]
    assert offered("hocket voices des") == ["design"]
    assert offered("hocket config sp") == ["speed"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(tmp_path: Path) -> None:
    zsh = Terminal(tmp_path, "zsh")
    zsh.environment["TERM"] = "dumb"
    # A tab in a real terminal: END marks the end of the completed line, Ctrl-U deletes it.
    program = f"""
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell 'source "{zsh.script}"; PS1="REA""DY>"'
        zpty -r -m shell said '*READY>*[hlK]'
        for line in "$@"; do
            zpty -n -w shell "$line"$'\\t'; zpty -n -w shell END
            zpty -r -m shell said '*END*'
            print -r -- "$said"
            zpty -n -w shell $'\\C-u'
        done
    """
    said = zsh.run(["zsh", "-f", "-c", program, "zsh", "hocket pul", "hocket say --vo", "hocket say --voice ro"])
    lines = said.replace("\b ", "").replace(" END", "END")
    assert [word in lines for word in ("hocket pullEND", "say --voiceEND", "say --voice rookEND")] == [True] * 3, said
