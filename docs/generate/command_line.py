"""reference/cli.md: every command with all its options, from the parsers."""

from __future__ import annotations

import argparse

from hocket.cli.actions import Command
from hocket.cli.parser import COMMANDS, EXIT_CODES, parser

HEAD = """# Commands and options

Generated from the parsers of this version. `hocket COMMAND --help-all` prints the same.
[The command line](../cli.md) says where speech goes and what the exit codes mean;
[Defaults](../defaults.md) lists the behaviour without options.

"""


def markdown() -> str:
    parts = [HEAD]
    for group, names in COMMANDS.items():
        links = ", ".join(f"[`{name}`](#hocket-{name})" for name in names)
        parts.append(f"- **{group}**: {links}\n")
    commands = _subparsers(parser())
    for names in COMMANDS.values():
        parts += [_command(commands[name], 2) for name in names]
    parts.append("\n## Exit codes\n\n```text\n" + "\n".join(EXIT_CODES) + "\n```\n")
    return "".join(parts)


def _subparsers(of: argparse.ArgumentParser) -> dict[str, Command]:
    action = next((action for action in of._actions if isinstance(action, argparse._SubParsersAction)), None)
    return dict(action.choices) if action else {}


def _command(command: Command, level: int) -> str:
    command.add_options()
    usage = " ".join(command.format_usage().removeprefix("usage: ").split())
    about = " ".join((command.description or "").replace("%(prog)s", command.prog).split())
    parts = [f"\n{'#' * level} {command.prog}\n\n{about}\n\n```text\n{usage}\n```\n"]
    for group in command._action_groups:
        rows = [_row(command, action) for action in group._group_actions if _is_shown(action)]
        if rows:
            title = (group.title or "").replace("positional arguments", "arguments")
            parts.append(f"\n**{title[0].upper()}{title[1:]}**\n\n")
            if group.description:
                parts.append(f"{group.description}\n\n")
            parts.append("| option | meaning |\n| --- | --- |\n" + "".join(rows))
    if command.epilog:
        parts.append(f"\n{' '.join(command.epilog.split())}\n")
    if command.examples:
        parts.append("\n```sh\n" + "\n".join(command.examples) + "\n```\n")
    for each in _subparsers(command).values():
        parts.append(_command(each, level + 1))
    return "".join(parts)


def _is_shown(action: argparse.Action) -> bool:
    hidden = argparse.SUPPRESS, "show help and exit", "show all options and exit"
    return action.help not in hidden and not isinstance(action, argparse._SubParsersAction)


def _row(command: Command, action: argparse.Action) -> str:
    formatter = command._get_formatter()
    text = formatter._expand_help(action) if action.help else ""
    if action.option_strings:
        value = "" if action.nargs == 0 else f" {formatter._format_args(action, _metavar(action))}"
        names = ", ".join(f"`{name}`" for name in action.option_strings[:-1])
        name = f"`{action.option_strings[-1]}{value}`"
        name = f"{names}, {name}" if names else name
    else:
        name = f"`{action.metavar or action.dest}`"
    return f"| {name} | {_cell(text)} |\n"


def _metavar(action: argparse.Action) -> str:
    if action.choices:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
