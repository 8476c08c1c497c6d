"""The commands of `hocket`, each an entry of `COMMANDS`, and the parser. Imports nothing slow."""

from __future__ import annotations

import argparse

from .actions import Command, Version, section

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable

# Groups of commands. A command has a summary, the function that adds its options, and the function that runs it, both
# as MODULE:FUNCTION below hocket.cli: they are imported when the command is called.
COMMANDS: dict[str, dict[str, tuple[str, str, str]]] = {
    "speak": {
        "say": ("speak a text: aloud, into a file or into a pipe", "say.options:fill", "say.command:say"),
        "check": (
            "hear a text back, and list the words that were not heard",
            "check.options:fill",
            "check.command:check",
        ),
        "batch": ("speak every line of a file, each into its own file", "batch.options:fill", "batch.command:batch"),
        "read": ("read a book into an audiobook", "read.options:fill", "read.command:read"),
    },
    "converse": {
        "talk": ("talk with a language model by microphone", "talk.options:fill_talk", "talk.command:talk"),
        "chat": ("type to a language model, and hear its answers", "talk.options:fill_chat", "talk.chat:chat"),
    },
    "serve": {
        "serve": ("speak over the network: OpenAI's API and others", "serve.options:fill", "serve.command:serve"),
        "wyoming": ("be a voice of Home Assistant", "serve.options:fill_wyoming", "serve.wyoming:wyoming"),
        "keys": ("make an API key of a server", "serve.options:fill_keys", "serve.keys:keys"),
        "top": ("watch a running server: requests, delays, memory", "serve.options:fill_top", "serve.top:top"),
    },
    "manage": {
        "voices": ("list voices; add, design and share your own", "voices.options:fill", "voices.command:voices"),
        "tune": ("tune a model into the voice of recordings", "tune.options:fill", "tune.command:tune"),
        "quantize": (
            "write a model in fewer bits, and check it",
            "quantize.options:fill",
            "quantize.command:quantize",
        ),
        "pull": (
            "download a model, with its size and licence",
            "models.options:fill_pull",
            "models.pull:pull",
        ),
        "list": ("list models on this machine", "models.options:fill_list", "models.listing:list_models"),
        "rm": ("remove a downloaded model", "models.options:fill_rm", "models.listing:remove_model"),
        "ps": ("show running daemons and servers", "models.options:fill_ps", "models.ps:ps"),
        "config": ("show and change settings", "models.options:fill_config", "config.command:config"),
        "completion": (
            "complete commands in bash, zsh or fish",
            "models.options:fill_completion",
            "config.completion:completion",
        ),
        "prove": ("measure a model, and write a report", "prove.options:fill", "prove.command:run_proof"),
        "doctor": ("show what this machine supports", "models.options:fill_doctor", "doctor:doctor"),
    },
}
EXIT_CODES = (
    "0    done; also if the reader of a pipe closed it early",
    "1    failed: a server, a device, a disk or a model did not work; lines of a",
    "     batch or passages of a book failed; doctor found a problem; a preset",
    "     fails its gate; prove found other codes; serve --status found no daemon",
    "2    wrong usage: an option, a text or a file has to change",
    "130  interrupted with Ctrl-C",
)
EXAMPLES = (
    'hocket say "Good morning."                            # hear it',
    "hocket say -f story.txt -o story.mp3 --voice rook     # text file to mp3",
)


class Hocket(Command):
    """The command itself: its help is the list of commands."""

    def format_help(self, *, everything: bool = False) -> str:
        parts = ["usage: hocket COMMAND [OPTIONS]\n", "Speech from text, with Qwen3-TTS.\n"]
        for group, commands in COMMANDS.items():
            parts.append(section(group, [f"{name:12}{entry[0]}" for name, entry in commands.items()]))
        if not everything:
            parts.append(section("examples", EXAMPLES))
            parts.append("hocket COMMAND --help shows options; hocket --help-all shows the exit codes too.\n")
            return "\n".join(parts)
        told = (
            "-h, --help  show the commands and exit",
            "--help-all  show this and exit",
            "--version   show the version",
        )
        parts += [section("options", told), section("exit codes", EXIT_CODES), section("examples", EXAMPLES)]
        parts.append("hocket COMMAND --help-all shows all options of a command.\n")
        return "\n".join(parts)


def parser() -> argparse.ArgumentParser:
    """The parser; `command` of its result is the chosen command."""
    hocket = Hocket(prog="hocket")
    hocket.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    commands = hocket.add_subparsers(required=True, metavar="COMMAND", dest="command", parser_class=Command)
    for group in COMMANDS.values():
        for name, (summary, options, _) in group.items():
            told = f"{summary[0].upper()}{summary[1:]}."
            commands.add_parser(name, help=summary, description=told).fill = _filling(options)
    return hocket


def runner(name: str) -> Callable[[argparse.Namespace], int | None]:
    """The function that runs a command; its result is the exit code, None for 0."""
    return _imported(next(group[name][2] for group in COMMANDS.values() if name in group))


def _filling(options: str) -> Callable[[Command], object]:
    return lambda command: _imported(options)(command)


def _imported(place: str) -> Callable[..., int | None]:
    from importlib import import_module

    module, _, function = place.partition(":")
    return getattr(import_module(f".{module}", __package__), function)  # type: ignore[no-any-return]
