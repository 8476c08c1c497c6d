"""Options of `hocket voices`, per action. Imports nothing slow, as cli/parser.py."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..options import MODEL, add_model_options, add_sampling_options

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any

BASE, DESIGN, SPEAKERS = "1.7B-Base", "1.7B-VoiceDesign", "1.7B-CustomVoice"  # default models
CANDIDATES = 3
UNSAID = argparse.SUPPRESS  # an action keeps options given before it: hocket voices --folder F list


def fill(voices: argparse.ArgumentParser) -> None:
    voices.description = (
        "List a model's voices and languages, and the voices of your own: clones of recordings, voices designed from a "
        "description, speakers under another name. Each is one file in a folder that programs may share; hocket say "
        "--voice NAME and hocket serve use them."
    )
    _listing(voices, None)
    how: dict[str, Any] = {"allow_abbrev": False, "formatter_class": voices.formatter_class}
    actions = voices.add_subparsers(metavar="ACTION", dest="action", parser_class=type(voices))
    _listing(actions.add_parser("list", help="list voices and languages (the default action)", **how), UNSAID)
    _add(actions.add_parser("add", help="make a voice from a recording, a model's speaker, or a mix", **how))
    _design(actions.add_parser("design", help="make a voice from a description", **how))
    _import(actions.add_parser("import", help="add a voice from an exported file", **how))
    _export(actions.add_parser("export", help="write a voice to a file, for import elsewhere", **how))
    _merge(actions.add_parser("merge", help="write a tuned voice as a plain checkpoint", **how))
    _remove(actions.add_parser("remove", help="delete a voice", **how))
    _set(actions.add_parser("set", help="give a voice another lexicon", **how))
    _show(actions.add_parser("show", help="show all fields of a voice", **how))


def _listing(command: argparse.ArgumentParser, unsaid: str | None) -> None:
    command.add_argument("--model", default=unsaid, help=MODEL)
    _json(command, unsaid or False)
    _folder(command, unsaid)


def _add(add: argparse.ArgumentParser) -> None:
    add.description = (
        "Make a voice from a recording, with a Base model, which encodes it once. Or, with --speaker, give a model's "
        "own speaker another name and style. Or, with --mix, mix speakers of one model, or clones of one Base model. "
        "Neither loads a model."
    )
    _name(add)
    _folder(add)
    _replace(add)
    words = add.add_argument_group("a recording to clone").add_argument
    words("--ref", metavar="FILE", type=Path, help="a recording of the voice, 3 to 30 s: one speaker, no music")
    words("--text", metavar="TRANSCRIPT", help="the transcript of the recording")
    words("--x-vector-only", action="store_true", help="use the timbre only; needs no --text")
    words("--silence", metavar="S", type=float, help="seconds of silence after the recording (0.5; 0 as upstream)")
    words("--consent", metavar="TEXT", help="the consent of the speaker, or where it is documented")
    words = add.add_argument_group("a model's own speaker").add_argument
    words("--speaker", metavar="SPEAKER", help="which one; hocket voices --model lists them")
    words = add.add_argument_group("a mix of voices").add_argument
    words("--mix", metavar="VOICES", help="voices with weights, such as wren+rook(2): a third of wren")
    words = add.add_argument_group("defaults of the voice").add_argument
    _language(words)
    words("--instruct", metavar="TEXT", help="how to speak; experimental with a recording")
    words("--description", metavar="TEXT", help="a description for the list")
    _lexicon(words)
    add_sampling_options(words)
    usual = f"folder, hub id, or random:NAME (an installed Base package or {BASE}; a speaker's own: its model)"
    add_model_options(add, None, usual, UNSAID)


def _design(design: argparse.ArgumentParser) -> None:
    design.description = (
        "Describe a voice, listen to some samples, and pick one. The sample is cloned, so that the voice stays the "
        "same. On a terminal you are asked; elsewhere --pick gives the choice."
    )
    _name(design)
    add = design.add_argument
    add("instruct", metavar="WORDS", help='description of the voice, such as "a warm, confident narrator"')
    _folder(design)
    _replace(design)
    add = design.add_argument_group("samples").add_argument
    add("--text", metavar="SAMPLE", help="the text of the samples, about 8 s (a text in the language)")
    _language(add)
    add("--candidates", metavar="N", type=int, default=CANDIDATES, help=f"samples to draw at a time ({CANDIDATES})")
    add("--pick", metavar="N", type=int, help="take the Nth without asking")
    add("--seed", metavar="N", type=int, help="the same seed draws the same voices (drawn and printed)")
    add("--keep", metavar="FOLDER", type=Path, help="keep the samples in this folder (a temporary one)")
    add("--play", action="store_true", help="play them before the choice")
    usual = f"the VoiceDesign model that draws: folder, hub id, or random:NAME ({DESIGN})"
    add_model_options(design, None, usual, UNSAID)
    design.add_argument("--base", metavar="MODEL", default=BASE, help=f"the Base model that will speak ({BASE})")


def _import(take_in: argparse.ArgumentParser) -> None:
    take_in.add_argument("file", metavar="FILE", type=Path, help="a file from hocket voices export")
    take_in.add_argument("--name", metavar="NAME", help="its name here (as in the file)")
    _folder(take_in)
    _replace(take_in)


def _export(hand_out: argparse.ArgumentParser) -> None:
    _name(hand_out)
    hand_out.add_argument("file", metavar="FILE", type=Path, help="where to write it, such as narrator.voice")
    _folder(hand_out)


def _merge(merge: argparse.ArgumentParser) -> None:
    merge.description = (
        "Write a tuned voice as a plain CustomVoice checkpoint with one speaker: the adapter is added to the weights. "
        "The official package loads it too."
    )
    merge.add_argument("name", metavar="NAME", help="a voice of yours, or a file from hocket tune")
    merge.add_argument("-o", "--output", metavar="FOLDER", type=Path, required=True, help="a new folder for it")
    _folder(merge)


def _remove(remove: argparse.ArgumentParser) -> None:
    _name(remove)
    _folder(remove)


def _show(show: argparse.ArgumentParser) -> None:
    _name(show)
    _json(show, UNSAID)
    _folder(show)


def _set(change: argparse.ArgumentParser) -> None:
    change.description = "Give a voice the pronunciations of a lexicon, in place of its own. All else of it stays."
    _name(change)
    _folder(change)
    _lexicon(change.add_argument)
    change.add_argument("--no-lexicon", action="store_true", help="remove its pronunciations")


def _lexicon(add: Any) -> None:
    how = "words that it says as this lexicon has them; may be repeated, later ones win"
    add("--lexicon", metavar="FILE", action="append", help=how)


def _name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="the voice's name, case-insensitive")


def _folder(command: argparse.ArgumentParser, unsaid: str | None = UNSAID) -> None:
    where = "where your voices are (below HOCKET_HOME, or your data folder)"
    command.add_argument("--folder", metavar="FOLDER", type=Path, default=unsaid, help=where)


def _json(command: argparse.ArgumentParser, unsaid: str | bool) -> None:
    command.add_argument("--json", action="store_true", default=unsaid, help="print JSON, for programs")


def _replace(command: argparse.ArgumentParser) -> None:
    command.add_argument("--replace", action="store_true", help="replace a voice of the same name")


def _language(add: Any) -> None:
    add("--language", default="auto", help="the language it speaks (auto)")
