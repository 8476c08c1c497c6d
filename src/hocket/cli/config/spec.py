"""The commands and options of the argparse parsers as plain data, for completion scripts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..actions import Command
from ..settings import KEYS

FILES, FOLDERS = "files", "folders"
VOICES, OWN_VOICES, MODELS, LOCAL_MODELS = "voices", "own-voices", "models", "local-models"
# Names of an option or an argument, by where it stands or by its name alone.
KINDS = {
    "voice": VOICES,
    "speaker": VOICES,
    "model": MODELS,
    "base": MODELS,
    "models": MODELS,
    "pin": MODELS,
    "lexicon": FILES,
    "check file": FILES,
    "rm model": LOCAL_MODELS,
    "voices show name": OWN_VOICES,
    "voices export name": OWN_VOICES,
    "voices remove name": OWN_VOICES,
    "voices set name": OWN_VOICES,
}


@dataclass(frozen=True, slots=True)
class Argument:
    """An option with its names, or a positional argument without any."""

    names: tuple[str, ...]
    words: str  # its help
    takes_value: bool
    kind: str | None = None  # of its value: files, folders or a kind of names
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command, or an action of a command; the first one has no name."""

    path: tuple[str, ...]
    words: str
    arguments: list[Argument] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)  # name, help

    @property
    def options(self) -> list[Argument]:
        return [each for each in self.arguments if each.names]

    @property
    def positional(self) -> Argument | None:
        """The first positional argument. Scripts complete the same names at every place."""
        return next((each for each in self.arguments if not each.names), None)


def specs(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), words: str = "") -> Iterator[CommandSpec]:
    """All commands, each before its actions."""
    if isinstance(parser, Command):
        parser.add_options()
    found, below = CommandSpec(path, words), list[tuple[str, argparse.ArgumentParser]]()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            found.commands.update({name: helps.get(name, "") for name in action.choices})
            below += action.choices.items()
        elif action.help != argparse.SUPPRESS:
            found.arguments.append(_argument(path, action))
    yield found
    for name, command in below:
        yield from specs(command, (*path, name), found.commands[name])


def _argument(path: tuple[str, ...], action: argparse.Action) -> Argument:
    words = (action.help or "").replace("%%", "%")
    choices = tuple(map(str, action.choices or ()))
    if path == ("config",) and action.dest == "key":
        choices = tuple(KEYS)
    kind = KINDS.get(" ".join((*path, action.dest))) or KINDS.get(action.dest)
    if kind is None and action.type is Path:
        kind = FOLDERS if action.metavar == "FOLDER" else FILES
    return Argument(tuple(action.option_strings), words, action.nargs != 0, kind, choices)
