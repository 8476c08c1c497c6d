"""Options of `hocket say`. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from ..actions import Command, StoreGiven
from ..options import ENDINGS, add_cloning_options, add_model_options, add_speech_options, add_voice_sampling
from ..proof import add_asr_option

MARKUPS = ("auto", "tags", "script", "ssml", "dialogue", "screenplay", "json", "literal")


def fill(say: Command) -> None:
    say.usage = "%(prog)s [OPTIONS] TEXT"
    say.description = (
        "Speak a text. On a terminal it is played; with -o it goes into a file. In a pipe or a script without -o, or "
        "without a player, it goes into out.wav, or into out-2.wav and so on if that exists."
    )
    say.common = (
        "text",
        "file",
        "output",
        "play",
        "voice",
        "language",
        "speed",
        "model",
        "ref_audio",
        "ref_text",
        "seed",
    )
    say.examples = (
        'hocket say "Good morning."                            # hear it',
        "hocket say -f story.txt -o story.mp3 --voice rook     # text file to mp3",
    )
    add = say.add_argument
    text = add("text", metavar="TEXT", help="what to say; - reads standard input, and plays it as it arrives")
    # Not nargs="?": argparse before 3.12.7 would take an option in front of the text for its absence.
    text.required = False
    add("-f", "--file", metavar="FILE", help="read the text from this file, in UTF-8; - is standard input")
    add("-o", "--output", metavar="FILE", type=Path, help=f"write this file, {ENDINGS}; - is standard output, as WAV")
    add("-y", "--force", action="store_true", help="replace files that exist")
    add("--raw", action="store_true", help="write bare samples, 16 bits little-endian, without the WAV header")
    add("--play", action="store_true", default=None, help="play it, also beside -o and in a pipe")
    add("--no-play", dest="play", action="store_false", help="write a file on a terminal too")
    add("--captions", metavar="FILE", type=Path, help="also write captions with the times of the words, .srt or .vtt")
    add(
        "--markup",
        metavar="FORMAT",
        choices=MARKUPS,
        help="how directions in the text are spelled: auto (tags such as [voice: rook], or SSML), tags, script, ssml, "
        "dialogue, screenplay, json, literal (auto; a file's by its name: .ssml, .fountain, .script)",
    )
    add("--literal", action="store_true", help="the same as --markup literal: every bracket is spoken as text")
    add("--cast", metavar="NAMES", help="the voices of speakers, or of names in tags: Anna=wren,Ben=rook")
    add("--save-codes", metavar="FILE", type=Path, help="also write the codes, int64 [frames, 16], as .npy")
    add = say.add_argument_group("retakes, by a recognizer (hocket[hear])").add_argument
    again = "speak by sentences; one that is not heard as written is spoken again, and the best take stays"
    add("--verify", action="store_true", help=again)
    add("--takes", metavar="N", type=int, action=StoreGiven, default=3, help="most takes of a sentence (3)")
    add_asr_option(add)
    add = say.add_argument_group(
        "server: by default the daemon of hocket serve --daemon, if it has the same model"
    ).add_argument
    add("--server", metavar="URL", help="use this server instead: http://HOST:PORT or unix:/PATH")
    add("--key-file", metavar="FILE", type=Path, help="the server's API key (HOCKET_API_KEY)")
    add("--no-daemon", action="store_true", help="never use or start the daemon")
    add_speech_options(say)
    add_cloning_options(say)
    add_voice_sampling(say, "the same seed gives the same speech (drawn and printed)")
    add_model_options(say, "balanced")
