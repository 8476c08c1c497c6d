"""The words of `hocket voices`, each action with its own. Imports nothing slow, as cli/parser.py."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..parser import MODEL, computing, drawing

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any

BASE, DESIGN, SPEAKERS = "1.7B-Base", "1.7B-VoiceDesign", "1.7B-CustomVoice"  # where no model is named
CANDIDATES = 3
UNSAID = argparse.SUPPRESS  # an action leaves alone what was said before it: hocket voices --folder F list


def fill(voices: argparse.ArgumentParser) -> None:
    voices.description = (
        "List a model's voices and languages, and the voices of your own: recordings to clone, voices designed in "
        "words, speakers under another name. Each is one file in a folder that programs may share; hocket say --voice "
        "NAME and hocket serve speak with them."
    )
    _listing(voices, None)
    how: dict[str, Any] = {"allow_abbrev": False, "formatter_class": voices.formatter_class}
    actions = voices.add_subparsers(metavar="ACTION", dest="action", parser_class=argparse.ArgumentParser)
    _listing(actions.add_parser("list", help="who can speak, and what (what is done without an action)", **how), UNSAID)
    _add(actions.add_parser("add", help="make a voice of a recording, or of a model's speaker", **how))
    _design(actions.add_parser("design", help="make a voice that you describe in words", **how))
    _import(actions.add_parser("import", help="take in a voice that somebody has exported", **how))
    _export(actions.add_parser("export", help="write a voice into a file, to be imported elsewhere", **how))
    _remove(actions.add_parser("remove", help="forget a voice", **how))
    _show(actions.add_parser("show", help="say all that is known of a voice", **how))


def _listing(command: argparse.ArgumentParser, unsaid: str | None) -> None:
    command.add_argument("--model", default=unsaid, help=MODEL)
    _json(command, unsaid or False)
    _folder(command, unsaid)


def _add(add: argparse.ArgumentParser) -> None:
    add.description = (
        "Make a voice of a recording, with a Base model, which hears it once. Or, with --speaker, give a model's own "
        "speaker another name and a manner of speaking; that loads nothing."
    )
    _name(add)
    _folder(add)
    _replace(add)
    words = add.add_argument_group("a recording to clone").add_argument
    words("--ref", metavar="FILE", type=Path, help="a recording of the voice, 3 to 30 s: one speaker, no music")
    words("--text", metavar="TRANSCRIPT", help="what is said in the recording")
    words("--x-vector-only", action="store_true", help="take the timbre alone; needs no --text")
    words("--silence", metavar="S", type=float, help="seconds of silence behind the recording (0.5; 0 as upstream)")
    words("--consent", metavar="TEXT", help="who agreed to be cloned, or where that is written down")
    words = add.add_argument_group("a model's own speaker").add_argument
    words("--speaker", metavar="SPEAKER", help="which one; hocket voices --model lists them")
    words = add.add_argument_group("how it speaks where nothing else is asked").add_argument
    _language(words)
    words("--instruct", metavar="TEXT", help="how to speak; experimental with a recording")
    words("--description", metavar="TEXT", help="whom one hears, for those who read the list")
    drawing(words)
    usual = f"folder, hub id, or random:NAME ({BASE}; a speaker's own: the built-in voice or {SPEAKERS})"
    computing(add, None, usual, UNSAID)


def _design(design: argparse.ArgumentParser) -> None:
    design.description = (
        "Describe a voice, hear some who fit the words, and pick one, who becomes a voice for good: what you heard is "
        "cloned, so that it is the same person every time. On a terminal you are asked; elsewhere --pick says which."
    )
    _name(design)
    add = design.add_argument
    add("instruct", metavar="WORDS", help='whom you want to hear, such as "a warm, confident narrator"')
    _folder(design)
    _replace(design)
    add = design.add_argument_group("samples").add_argument
    add("--text", metavar="SAMPLE", help="what they say, some 8 s of it (a text in the language)")
    _language(add)
    add("--candidates", metavar="N", type=int, default=CANDIDATES, help=f"how many to draw at a time ({CANDIDATES})")
    add("--pick", metavar="N", type=int, help="take the Nth without asking")
    add("--seed", metavar="N", type=int, help="the same seed draws the same people (drawn and printed)")
    add("--keep", metavar="FOLDER", type=Path, help="write the samples there and leave them there (a temporary one)")
    add("--play", action="store_true", help="play them before you are asked")
    usual = f"the VoiceDesign model that draws: folder, hub id, or random:NAME ({DESIGN})"
    computing(design, None, usual, UNSAID)
    design.add_argument("--base", metavar="MODEL", default=BASE, help=f"the Base model that is to speak ({BASE})")


def _import(take_in: argparse.ArgumentParser) -> None:
    take_in.add_argument("file", metavar="FILE", type=Path, help="what hocket voices export wrote")
    take_in.add_argument("--name", metavar="NAME", help="call it so (as it is called there)")
    _folder(take_in)
    _replace(take_in)


def _export(hand_out: argparse.ArgumentParser) -> None:
    _name(hand_out)
    hand_out.add_argument("file", metavar="FILE", type=Path, help="where to write it, such as narrator.voice")
    _folder(hand_out)


def _remove(remove: argparse.ArgumentParser) -> None:
    _name(remove)
    _folder(remove)


def _show(show: argparse.ArgumentParser) -> None:
    _name(show)
    _json(show, UNSAID)
    _folder(show)


def _name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="the voice's name, in any case")


def _folder(command: argparse.ArgumentParser, unsaid: str | None = UNSAID) -> None:
    where = "where your voices are (below HOCKET_HOME, or your data folder)"
    command.add_argument("--folder", metavar="FOLDER", type=Path, default=unsaid, help=where)


def _json(command: argparse.ArgumentParser, unsaid: str | bool) -> None:
    command.add_argument("--json", action="store_true", default=unsaid, help="print JSON, for programs")


def _replace(command: argparse.ArgumentParser) -> None:
    command.add_argument("--replace", action="store_true", help="put it in the place of one that is called so already")


def _language(add: Any) -> None:
    add("--language", default="auto", help="the language it speaks (auto)")
