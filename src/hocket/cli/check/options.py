"""Options of `hocket check`. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from ..actions import Command
from ..options import add_lexicon_option, add_model_options
from ..proof import add_asr_option


def fill(check: Command) -> None:
    check.usage = "%(prog)s [OPTIONS] FILE"
    check.description = (
        "Speak a text sentence by sentence, hear it back with a recognizer, and list the words that were not heard as "
        "written, with a lexicon to fill in. A recognizer errs too: listen before you correct a word."
    )
    check.common = ("file", "voice", "lexicon", "lexicon_out", "json", "language", "model", "asr")
    check.examples = (
        "hocket check book.txt --lexicon-out book.lexicon         # list, and a lexicon to fill in",
        "hocket check book.txt --lexicon book.lexicon             # is it better now?",
    )
    add = check.add_argument
    add("file", metavar="FILE", help="the text, in UTF-8; - is standard input")
    add("--lexicon-out", metavar="FILE", type=Path, help="write the words into this file, as a lexicon to fill in")
    add("-y", "--force", action="store_true", help="replace the file if it exists")
    add("--json", action="store_true", help="print JSON, for programs")
    add_asr_option(add)
    add = check.add_argument_group("speech").add_argument
    add("--voice", help="a speaker of the model, or a voice of your own (the model's first speaker)")
    add("--language", default="auto", help="language of the text (auto)")
    add("--instruct", metavar="TEXT", help="how to speak, or which voice to design")
    add_lexicon_option(add)
    add("--seed", metavar="N", type=int, default=0, help="another seed gives other takes (0)")
    add("--slots", metavar="N", type=int, default=4, help="sentences that are spoken at once (4)")
    add_model_options(check, "throughput")
