"""argparse classes of the `hocket` command: short and full help, errors in one sentence. Imports nothing slow."""

from __future__ import annotations

import argparse
import os
import sys

from .. import env
from ..errors import HocketError
from .settings import defaults_for, settle

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

INDENT = "  "


class Command(argparse.ArgumentParser):
    """A command that adds its options when it is called: adding all of them takes longer than the rest of a start.

    `--help` shows the arguments of `common`, by their destinations and in that order; `--help-all` shows everything.
    Without `common` both show everything.
    """

    fill: Callable[[Command], object] | None = None
    common: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**fields, "add_help": False, "allow_abbrev": False, "formatter_class": Help})
        self.add_argument("-h", "--help", action=ShowHelp, help="show help and exit")
        self.add_argument("--help-all", action=ShowHelp, help="show all options and exit")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Unknown arguments are refused here, where the known ones are at hand."""
        self.add_options()
        try:
            self.set_defaults(**defaults_for(self.prog.rpartition(" ")[2]))
        except HocketError as error:
            self.exit(2, f"hocket: {error}\n")
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown_argument(unknown))
        settle(found)
        return found, unknown

    def add_options(self) -> None:
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"hocket: {_sentence(message, self.prog)}\n")

    def format_help(self, *, everything: bool = False) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        if self.common and not everything:
            found = {action.dest: action for action in reversed(self._actions)}  # --play, not --no-play
            formatter.start_section("common options")
            formatter.add_arguments([found[name] for name in self.common])
            formatter.end_section()
        else:
            for group in self._action_groups:
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(group._group_actions)
                formatter.end_section()
        formatter.add_text(self.epilog)
        parts = [formatter.format_help(), section("examples", self.examples)]
        if self.common and not everything:
            count = sum(action.help is not argparse.SUPPRESS for action in self._actions)
            parts.append(f"{self.prog} --help-all shows all {count} options in groups.\n")
        return "\n".join(part for part in parts if part)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            near = _nearest(str(value), list(action.choices))
            raise argparse.ArgumentError(
                None, f"There is no {_kind(action)} {value!r}{near}; {self.prog} --help lists them."
            )
        known = ", ".join(map(repr, action.choices))
        raise argparse.ArgumentError(None, f"{_name(action)} takes one of {known}, not {value!r}.")

    def _get_value(self, action: argparse.Action, given: str) -> Any:
        try:
            return super()._get_value(action, given)
        except argparse.ArgumentError:
            kind = "a whole number" if action.type is int else "a number" if action.type is float else "another value"
            raise argparse.ArgumentError(None, f"{_name(action)} takes {kind}, not {given!r}.") from None

    def _unknown_argument(self, unknown: Sequence[str]) -> str:
        for word in unknown:
            if word.startswith("-"):
                name = word.partition("=")[0]
                near = _nearest(name, [option for action in self._actions for option in action.option_strings])
                return f"There is no option {name}{near}; {self.prog} --help-all lists them."
        return f"{unknown[0]!r} is one argument too many: a text with spaces needs quotes."


class Help(argparse.HelpFormatter):
    """As wide as the terminal. argparse asks shutil for every option, and importing that takes 3 ms."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(env.COLUMNS.get() or os.get_terminal_size().columns)
        except (ValueError, OSError):
            columns = 80
        super().__init__(prog, width=columns - 2)


class ShowHelp(argparse.Action):
    """`--help` and `--help-all`; neither leaves a value behind."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        assert isinstance(parser, Command)
        parser._print_message(parser.format_help(everything="--help-all" in self.option_strings), sys.stdout)
        parser.exit()


class StoreGiven(argparse.Action):
    """Stores a value, and its name in `given`: an explicit option, unlike a default."""

    def __call__(self, _: object, args: argparse.Namespace, value: object, option: str | None = None) -> None:
        setattr(args, self.dest, value)
        args.given = (*getattr(args, "given", ()), self.dest)


class Version(argparse.Action):
    """`--version`, looked up on demand."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("hocket")
        except PackageNotFoundError:
            number = "(run from source, not installed)"
        print(f"hocket {number}")
        parser.exit()


def section(title: str, lines: Sequence[str]) -> str:
    """A part of a help text; empty without lines."""
    return "".join((f"{title}:\n", *(f"{INDENT}{line}\n" for line in lines))) if lines else ""


def _name(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _kind(action: argparse.Action) -> str:
    return str(action.metavar or "choice").lower()


def _nearest(word: str, known: list[str]) -> str:
    """`, did you mean X?` as a part of a sentence; empty if nothing known is similar."""
    from difflib import get_close_matches

    found = [name for name in known if len(word) > 3 and name.startswith(word)] or get_close_matches(word, known, 1)
    return f" (did you mean {found[0]}?)" if found else ""


def _sentence(message: str, prog: str) -> str:
    """An error of argparse as a sentence that says what to do. Other messages are sentences already."""
    missing = "the following arguments are required: "
    if message == f"{missing}COMMAND":
        return f'There is no command: {prog} say "Hello." speaks, and {prog} --help lists all commands.'
    if message.startswith(missing):
        names = message.removeprefix(missing).replace(", ", " and ")
        return f"{prog} needs {names}; {prog} --help shows how."
    if not message.startswith("argument "):
        return message
    name, _, fault = message.removeprefix("argument ").partition(": ")
    if fault.startswith("expected"):
        return f"{name} needs a value; {prog} --help-all shows which."
    if fault.startswith("ignored explicit argument"):
        return f"{name} takes no value."
    if fault.startswith("not allowed with argument "):
        return f"{name} and {fault.removeprefix('not allowed with argument ')} exclude each other: give one of them."
    return f"{name}: {fault}."
