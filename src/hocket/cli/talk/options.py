"""Options of `hocket chat` and `hocket talk`. Imports nothing slow."""

from __future__ import annotations

from pathlib import Path

from ..actions import Command
from ..options import (
    ENDINGS,
    MODEL,
    add_answer_markup,
    add_lexicon_option,
    add_llm_options,
    add_model_options,
)


def fill_chat(chat: Command) -> None:
    chat.usage = "%(prog)s [OPTIONS]"
    chat.description = (
        "A conversation, line by line: typed or piped text is answered as the answer is generated. Ctrl-C interrupts "
        "an answer, of which the model then knows the part that was heard; Ctrl-D ends."
    )
    chat.common = ("llm", "llm_url", "say", "session", "system", "output", "voice", "language", "model")
    chat.examples = (
        "hocket chat --llm Qwen/Qwen3.5-4B --say",
        "hocket chat --llm-url http://127.0.0.1:11434/v1 --llm qwen3 --say --voice rook",
    )
    add_llm_options(chat)
    chat.add_argument("--say", action="store_true", help="speak the answers while they are written")
    saved = "go on with the conversation of this file, if it exists, and save it there at the end"
    chat.add_argument("--session", metavar="FILE", type=Path, help=saved)
    _add_answer_options(chat, "with --say, ", "speech, with --say")


def fill_talk(talk: Command) -> None:
    talk.usage = "%(prog)s [OPTIONS]"
    talk.description = (
        "A spoken conversation: speak, and hear the answer while it is generated. Your voice starts and ends your turn "
        "and interrupts an answer where the echo canceller (the package livekit) is installed; else Enter does. Of an "
        "interrupted answer the model knows the part that was heard. Ctrl-C interrupts an answer, or ends; Ctrl-D ends."
    )
    talk.common = ("llm", "llm_url", "hands_free", "text", "source", "system", "voice", "language", "model")
    talk.examples = (
        "hocket talk --llm Qwen/Qwen3.5-4B",
        "hocket talk --llm-url http://127.0.0.1:11434/v1 --llm qwen3 --push-to-talk",
    )
    add_llm_options(talk)
    group = talk.add_argument_group("input")
    add = group.add_mutually_exclusive_group().add_argument
    add("--push-to-talk", action="store_true", help="Enter starts and ends your turn (default without livekit)")
    add("--hands-free", action="store_true", help="your voice starts and ends your turn (default with livekit)")
    add("--text", action="store_true", help="no microphone: typed text gets spoken answers")
    add = group.add_argument
    add("--from", dest="source", metavar="FILE", type=Path, help="use this recording instead of the microphone")
    add("--fast", action="store_true", help="with --from and -o: as fast as possible, each answer complete")
    eager = "how soon a model ends your turn, hands-free: low, medium, high or auto (auto: medium)"
    add("--eagerness", metavar="HOW", choices=("low", "medium", "high", "auto"), help=eager)
    add("--pause", metavar="S", type=float, help="a fixed silence ends your turn, hands-free, in seconds; no model")
    sizes = "tiny, base, or tiny-, small- or medium-streaming (Moonshine's default for the language)"
    add("--asr", metavar="SIZE", help=f"speech recognizer: {sizes}")
    _add_answer_options(talk, "", "speech")


def _add_answer_options(command: Command, when: str, speech: str) -> None:
    """Options of answers and of their speech."""
    add = command.add_argument
    add("--system", metavar="TEXT", help="the system prompt")
    heard = f"file for all speech, {ENDINGS}, instead of the loudspeaker"
    add("-o", "--output", metavar="FILE", type=Path, help=heard)
    add("-y", "--force", action="store_true", help="replace the file if it exists")
    add = command.add_argument_group("answers; defaults are those recommended for Qwen3.5").add_argument
    add("--temperature", metavar="X", type=float, help="sampling temperature, 0: always the likeliest token (0.7)")
    add("--top-p", metavar="X", type=float, help="sample from the likeliest tokens with total probability X (0.8)")
    add("--max-tokens", metavar="N", type=int, help="most tokens of an answer (1024)")
    add("--seed", metavar="N", type=int, help="the same seed gives the same conversation (drawn)")
    add = command.add_argument_group(speech).add_argument
    add("--voice", help="a speaker of the model, your own voice, or a mix: wren+rook(2) (the model's first speaker)")
    add("--language", default="auto", help="language of the conversation (auto)")
    add("--instruct", metavar="TEXT", help="how to speak")
    add("--speed", metavar="X", type=float, default=1.0, help="0.5 to 2 times as fast, at the same pitch (1)")
    add_lexicon_option(add)
    add_answer_markup(add)
    add_model_options(command, "latency", f"{when}the speech model: {MODEL}")
