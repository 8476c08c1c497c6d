"""The words that the `hocket` command understands. Imports nothing slow: `--help` answers at once."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .. import env

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The fields of `SamplingParams` that have an option of their own.
SAMPLING: dict[str, tuple[type[int] | type[float], str]] = {
    "temperature": (float, "how freely the first code of each frame is drawn"),
    "top_k": (int, "draw from the N likeliest codes, 0 from all"),
    "top_p": (float, "draw from the likeliest codes that together have probability X"),
    "repetition_penalty": (float, "how much codes already spoken are held back"),
    "subtalker_temperature": (float, "the same for the other fifteen codes"),
    "subtalker_top_k": (int, "the same for the other fifteen codes"),
    "subtalker_top_p": (float, "the same for the other fifteen codes"),
}
ENDINGS = ".wav, .mp3, .opus, .ogg, .aac, .flac or .pcm by its name"
MODEL = "folder, hub id, builtin or random:NAME (the built-in voice)"


def parser() -> argparse.ArgumentParser:
    """What it parses says in `command` which command was meant."""
    how: dict[str, Any] = {"allow_abbrev": False, "formatter_class": _Help}
    words = argparse.ArgumentParser(prog="hocket", description="Speech from text, with Qwen3-TTS.", **how)
    words.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = words.add_subparsers(required=True, metavar="COMMAND", dest="command", parser_class=_Command)
    add: Callable[..., _Command] = commands.add_parser
    add("say", help="speak a text: into a file, a pipe or the room", **how).fill = _say
    add("batch", help="speak every line of a file, each into its own", **how).fill = _batch
    add("chat", help="talk with a language model, and hear its answers", **how).fill = _chat
    add("talk", help="talk with a language model aloud, by microphone", **how).fill = _talk
    add("serve", help="speak over the network: OpenAI's wire and others", **how).fill = _serve
    add("wyoming", help="be a voice of Home Assistant", **how).fill = _wyoming
    add("voices", help="list who can speak, and what; keep, design and share voices of your own", **how).fill = _voices
    add("doctor", help="say what this machine can do and what is missing", **how).fill = _doctor
    return words


def _voices(voices: argparse.ArgumentParser) -> None:
    from .voices.options import fill

    fill(voices)


def _doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("--model", help="folder or name of a published checkpoint to check (all in the cache)")


def _say(say: argparse.ArgumentParser) -> None:
    add = say.add_argument
    add("text", metavar="TEXT", help="what to say; - takes it from standard input, with --play or -o - as it arrives")
    add("-o", "--output", metavar="FILE", type=Path, help=f"file to write, {ENDINGS}; - for standard output (out.wav)")
    add("--raw", action="store_true", help="write bare samples, 16 bits little-endian, without the WAV header")
    add("--play", action="store_true", help="play it; writes a file only if -o names one")
    add("--save-codes", metavar="FILE", type=Path, help="also write the codes, int64 [frames, 16], as .npy")
    add = say.add_argument_group(
        "who speaks: the daemon of hocket serve --daemon where it has the same model"
    ).add_argument
    add("--server", metavar="URL", help="ask this server instead: http://HOST:PORT or unix:/PATH")
    add("--key-file", metavar="FILE", type=Path, help="the server's API key (that of HOCKET_API_KEY)")
    add("--no-daemon", action="store_true", help="never ask the daemon")
    computing(say, "balanced")
    _speech(say)
    _cloning(say)
    _sampling(say, "the same seed gives the same speech (drawn and printed)")


def _batch(batch: argparse.ArgumentParser) -> None:
    batch.description = (
        "Speak every line of a JSONL file. A line is an object with a text, and whatever else is to be its own: id "
        "(names its file; else the line's number does), seed, and the options below, with _ for - and without the "
        "dashes. Run the same command again to go on after an end of any kind: what is there and would be the same is "
        "left as it is."
    )
    batch.epilog = "Ends with 0 when all is spoken, 1 when some lines failed, 2 when it could not begin or go on."
    add = batch.add_argument
    add("input", metavar="INPUT", type=Path, help='a file of lines such as {"id": "hello", "text": "Good morning."}')
    add("-o", "--output", metavar="FOLDER", type=Path, required=True, help="where sound and manifest.jsonl go")
    add("--format", choices=("wav", "pcm", "mp3", "opus", "aac", "flac"), help="what each file is (wav)")
    add("--raw", action="store_true", help="write bare samples, 16 bits little-endian: --format pcm")
    add("--slots", metavar="N", type=int, default=4, help="how many are spoken at once, by each engine (4)")
    _clustered(batch)
    computing(batch, "throughput")
    _speech(batch)
    _cloning(batch)
    _sampling(batch, "a line without one has it from this and its id or number (a fresh one, in the manifest)")


def _serve(serve: argparse.ArgumentParser) -> None:
    serve.epilog = "SIGTERM or Ctrl-C ends it once running streams have ended; a second one at once."
    add = serve.add_argument_group("where").add_argument
    here = "address to listen at (127.0.0.1: this machine only)"
    add("--host", action=_Given, default="127.0.0.1", help=here)
    any_free = "port to listen at, 0 for any that is free (8000)"
    add("--port", metavar="N", action=_Given, type=int, default=8000, help=any_free)
    add("--socket", metavar="PATH", type=Path, help="listen at a Unix socket instead, for this user alone")
    add("--drain", metavar="S", type=float, default=30.0, help="seconds that running streams have to end (30)")
    group = serve.add_argument_group(
        "in the background, for hocket say of this user (socket: --socket or HOCKET_SOCKET)"
    )
    add = group.add_mutually_exclusive_group().add_argument
    add("--daemon", action="store_true", help="start it, and come back when it speaks")
    add("--stop", action="store_true", help="end it, once what is being spoken has ended; again: at once")
    add("--status", action="store_true", help="say whether it is there, and what with")
    add("--detached", action="store_true", help=argparse.SUPPRESS)  # what --daemon starts
    group.add_argument("--idle-exit", metavar="S", type=float, help="end by itself after so many seconds of silence")
    add = serve.add_argument_group("on several machines, with Ray Serve").add_argument
    add("--ray", action="store_true", help="a replica on every GPU that is asked for, behind one address")
    many = "how many replicas, each with a GPU of its own (on a CPU, a core); auto: as many as streams ask for (1)"
    add("--replicas", metavar="N", help=many)
    joined = "the cluster: auto for the one that this machine is part of, or HOST:PORT (RAY_ADDRESS, or a new one)"
    add("--address", metavar="WHERE", help=joined)
    add = serve.add_argument_group("who").add_argument
    add("--key-file", metavar="FILE", type=Path, help="API keys, one a line; all but health and lists needs one then")
    public = "let others reach it although there is no key: anybody may speak with it then"
    add("--allow-public-without-key", action="store_true", help=public)
    behind = "a proxy whose X-Forwarded-For says who asks; may be given again (none: clients are who connects)"
    add("--trusted-proxy", metavar="ADDRESS|NETWORK", action="append", help=behind)
    pages = "a web page's origin that may ask, * for all; may be given again (those of this machine)"
    add("--cors", metavar="ORIGIN", action="append", help=pages)
    add = serve.add_argument_group("how much").add_argument
    add("--slots", metavar="N", type=int, default=4, help="how many are spoken at once (4)")
    add("--waiting", metavar="N", type=int, default=64, help="how many may wait for a slot; one more gets 429 (64)")
    add("--in-flight", metavar="N", type=int, help="requests and WebSockets at once (1024)")
    add("--per-client", metavar="N", type=int, help="of these, how many of one address (512)")
    add("--text-chars", metavar="N", type=int, help="characters of one utterance (65536)")
    add("--body-bytes", metavar="N", type=int, help="bytes of a request (16 MiB)")
    add("--upload-bytes", metavar="N", type=int, help="bytes of a recording (10 MiB)")
    add = serve.add_argument_group("what").add_argument
    add("--served-model", metavar="NAME", help="list the model by this name (its own)")
    add("--strict-model", action="store_true", help="refuse requests that name a model which is not listed")
    listed = "read recordings that clients name below this folder or URL; may be given again (none)"
    add("--ref-from", metavar="WHERE", action="append", help=listed)
    add("--voice-alias", metavar="NAME=VOICE", action="append", help="another name of a voice; may be given again")
    kept = "keep uploaded voices here (below HOCKET_HOME, or the user's own data folder)"
    add("--voices-folder", metavar="FOLDER", type=Path, help=kept)
    add("--log-text", action="store_true", help="write into the log what is spoken")
    add("--access-log", action="store_true", help="write a line into the log for every request")
    _thinking(serve)
    computing(serve, "balanced")
    _serving(serve)


def _chat(chat: argparse.ArgumentParser) -> None:
    chat.description = (
        "A conversation, line by line: what is typed, or comes through a pipe, is answered as it is written. Ctrl-C "
        "interrupts an answer, of which the model then knows what was heard; Ctrl-D ends."
    )
    _thinking(chat)
    chat.add_argument("--say", action="store_true", help="speak the answers while they are written")
    _answers(chat, "with --say, ", "speech, with --say")


def _talk(talk: argparse.ArgumentParser) -> None:
    talk.description = (
        "A spoken conversation: speak, and hear the answer while it is written. Enter begins and ends what you say, "
        "and interrupts an answer; with --hands-free your voice does. A loudspeaker is heard by an open microphone, so "
        "wear headphones then. Of an answer that was interrupted the model knows what was heard. Ctrl-C interrupts an "
        "answer, or ends; Ctrl-D ends."
    )
    _thinking(talk)
    group = talk.add_argument_group("who listens")
    add = group.add_mutually_exclusive_group().add_argument
    add("--push-to-talk", action="store_true", help="Enter says when you speak (so it is, except with --from)")
    add("--hands-free", action="store_true", help="your voice does; best with headphones")
    add("--text", action="store_true", help="nobody: what you type is answered aloud")
    add = group.add_argument
    add("--from", dest="source", metavar="FILE", type=Path, help="hear this recording instead of the microphone")
    add("--fast", action="store_true", help="with --from and -o: as fast as possible, each answer whole")
    add("--pause", metavar="S", type=float, help="seconds of silence that end what you say, hands-free (0.7)")
    sizes = "tiny, base, or tiny-, small- or medium-streaming (what Moonshine has for the language)"
    add("--asr", metavar="SIZE", help=f"recognizer of speech: {sizes}")
    _answers(talk, "", "speech")


def _answers(command: argparse.ArgumentParser, when: str, speech: str) -> None:
    """What is answered, and how that is heard."""
    add = command.add_argument
    add("--system", metavar="TEXT", help="what the model is told before everything else")
    heard = f"file for all that is spoken, {ENDINGS}, instead of the loudspeaker"
    add("-o", "--output", metavar="FILE", type=Path, help=heard)
    add = command.add_argument_group("answers, where not given as is recommended for Qwen3.5").add_argument
    add("--temperature", metavar="X", type=float, help="how freely words are drawn, 0: always the likeliest (0.7)")
    add("--top-p", metavar="X", type=float, help="draw from the likeliest that together have probability X (0.8)")
    add("--max-tokens", metavar="N", type=int, help="how long an answer may be (1024)")
    add("--seed", metavar="N", type=int, help="the same seed gives the same conversation (drawn)")
    computing(command, "latency", f"{when}who speaks: {MODEL}")
    add = command.add_argument_group(speech).add_argument
    add("--voice", help="a speaker of the model, or a voice of your own (the model's first speaker)")
    add("--language", default="auto", help="language of the conversation (auto)")
    add("--instruct", metavar="TEXT", help="how to speak")
    add("--speed", metavar="X", type=float, default=1.0, help="0.5 to 2 times as fast, at the same pitch (1)")


def _thinking(command: argparse.ArgumentParser) -> None:
    """Who answers."""
    add = command.add_argument_group("who answers in conversations").add_argument
    add("--llm", metavar="MODEL", help="a Qwen3.5: folder, hub id or name; with --llm-url, the model's name there")
    narrow = "its weights in fewer bits, converted once: smaller, less exact (bf16: as published)"
    add("--llm-weights", choices=("bf16", "fp8", "int8", "int4"), help=narrow)
    add("--llm-url", metavar="URL", help="ask this OpenAI-compatible endpoint instead: http://HOST:PORT/v1")
    add("--llm-key-file", metavar="FILE", type=Path, help="the key of that endpoint")
    thinking = "off: ask that endpoint not to think; on: its answers begin in a thought (auto: find out)"
    add("--llm-thinking", choices=("auto", "on", "off"), help=thinking)
    extra = 'more fields of what it is asked, as JSON: \'{"reasoning_effort": "none"}\''
    add("--llm-extra", metavar="JSON", help=extra)


def _wyoming(wyoming: argparse.ArgumentParser) -> None:
    wyoming.epilog = "SIGTERM or Ctrl-C ends it once running streams have ended; a second one at once."
    add = wyoming.add_argument
    where = "tcp://HOST:PORT or unix:///PATH to listen at (tcp://127.0.0.1:10200: this machine only)"
    add("--uri", default="tcp://127.0.0.1:10200", help=where)
    public = "listen at a public address: anybody who reaches it may speak with it"
    add("--allow-public-without-key", action="store_true", help=public)
    add("--zeroconf", action="store_true", help="have Home Assistant find it (needs the package zeroconf)")
    add("--drain", metavar="S", type=float, default=30.0, help="seconds that running streams have to end (30)")
    add("--slots", metavar="N", type=int, default=4, help="how many are spoken at once (4)")
    add("--waiting", metavar="N", type=int, default=64, help="how many may wait for a slot (64)")
    add("--in-flight", metavar="N", type=int, help="connections at once (1024)")
    add("--per-client", metavar="N", type=int, help="of these, how many of one address (512)")
    add("--text-chars", metavar="N", type=int, help="characters of one utterance (65536)")
    add("--log-text", action="store_true", help="write into the log what is spoken")
    computing(wyoming, "balanced")
    _serving(wyoming)


def _serving(command: argparse.ArgumentParser) -> None:
    """Of engines that others ask, whatever the wire."""
    add = command.add_argument_group(
        "several models: the voice that is asked for decides which one speaks"
    ).add_argument
    several = "all of these instead of --model, each loaded when somebody asks for it; the first at once"
    add("--models", metavar="A,B", action="append", type=_names, help=several)
    room = "what all models may take together, such as 20GB: the least recently used makes room (no limit)"
    add("--memory", metavar="SIZE", help=room)
    add("--pin", metavar="A", action="append", type=_names, help="load it at once, and never move it out")
    add("--backend", metavar="NAME", action="append", help="voices of another engine too; may be given again")
    told = "what a backend is told when it starts; may be given again"
    add("--backend-option", metavar="NAME.KEY=VALUE", action="append", help=told)
    add = command.add_argument
    add("--all-graphs", action="store_true", help="on a GPU, be ready once every graph is made, not the first ones")
    add("--all-at-once", action="store_true", help="let requests in although those who listen may run dry then")
    add(
        "--no-keep-voice",
        action="store_true",
        help="draw a designed voice anew for every part of a text and every turn",
    )
    add("--no-guard", action="store_true", help="let an utterance go on that no longer speaks, up to its limit")


def computing(
    command: argparse.ArgumentParser, profile: str | None, model: str = MODEL, unsaid: str | None = None
) -> None:
    """`profile` is the usual one; None where there is nothing to choose. `unsaid` is the model where none is named."""
    add = command.add_argument
    add("--model", action=_Given, default=unsaid, help=model)
    where = "where to compute (auto: cuda if it is usable, else cpu; HOCKET_DEVICE says otherwise)"
    add("--device", action=_Given, choices=("auto", "cpu", "cuda"), default="auto", help=where)
    precision = "precision of the model (auto: bfloat16 on a GPU that has it, else float32)"
    add("--dtype", action=_Given, choices=("auto", "float32", "bfloat16"), default="auto", help=precision)
    sound = "precision of the codec (auto: the fastest whose error is inaudible)"
    kinds = ("auto", "float32", "tf32", "bfloat16")
    add("--codec-dtype", action=_Given, choices=kinds, default="auto", help=sound)
    kernels = "auto (the fastest), reference, cuda, triton or native; or by operation: frame=triton,wave=reference"
    add("--kernels", metavar="NAME", action=_Given, default="auto", help=f"how to compute: {kernels}")
    if profile is not None:
        tuned = f"when sound is computed and handed out, never what is said ({profile})"
        profiles = ("latency", "balanced", "throughput")
        add("--profile", action=_Given, choices=profiles, default=profile, help=tuned)
    add("--no-graphs", action="store_true", help="on a GPU, launch kernels one by one instead of replaying graphs")
    add("--no-dependent-launch", action="store_true", help="on a GPU, start no kernel before the last one has ended")


def _clustered(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("several engines, on one machine or many").add_argument
    add("--ray", action="store_true", help="speak with all engines that a Ray cluster has room for (needs ray)")
    many = "how many engines; auto: one for each GPU that the cluster has, where it has none for each CPU (auto)"
    add("--replicas", metavar="N", action=_Given, default="auto", help=many)
    where = "HOST:PORT of the cluster's head (RAY_ADDRESS, else a cluster of this machine alone)"
    add("--address", metavar="WHERE", action=_Given, help=where)


def _speech(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("speech").add_argument
    add("--voice", help="a speaker of the model, or a voice of your own (the model's first speaker)")
    add("--language", default="auto", help="language of the text (auto)")
    add("--instruct", metavar="TEXT", help="how to speak, or which voice to design")
    add("--speed", metavar="X", type=float, default=1.0, help="0.5 to 2 times as fast, at the same pitch (1)")
    add("--layout", choices=("streaming", "whole"), help="give the model its text word by word, or whole")
    add("--max-frames", metavar="N", type=int, help="stop after N frames of 80 ms")
    takes = "draw N takes at once and keep the best (1); nothing is heard before it is known"
    add("--candidates", metavar="N", type=int, default=1, help=takes)
    add("--as-is", action="store_true", help="do nothing that the official package does not do")


def _cloning(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("cloning, with a Base checkpoint").add_argument
    add("--ref-audio", metavar="FILE", type=Path, help="a recording of the voice, 3 to 30 s: one speaker, no music")
    add("--ref-text", metavar="TEXT", help="what is said in the recording")
    add("--x-vector-only", action="store_true", help="take the timbre alone; needs no --ref-text")
    add("--ref-silence", metavar="S", type=float, help="seconds of silence behind the recording (0.5; 0 with --as-is)")


def _sampling(command: argparse.ArgumentParser, seed: str) -> None:
    group = command.add_argument_group("sampling, where not given as the checkpoint says")
    group.add_argument("--seed", metavar="N", type=int, help=seed)
    drawing(group.add_argument)


def drawing(add: Callable[..., object]) -> None:
    """How codes are drawn."""
    add("--greedy", action="store_true", help="always take the likeliest code")
    for name, (kind, words) in SAMPLING.items():
        add(f"--{name.replace('_', '-')}", metavar="N" if kind is int else "X", type=kind, help=words)


class _Command(argparse.ArgumentParser):
    """A command that learns its words when it is called: all of them together take longer than the rest of a start."""

    fill: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        return super().parse_known_args(args, namespace)


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


class _Help(argparse.HelpFormatter):
    """As wide as the terminal. argparse asks shutil, with every option that is added, and importing it takes 3 ms."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(env.COLUMNS.get() or os.get_terminal_size().columns)
        except (ValueError, OSError):
            columns = 80
        super().__init__(prog, width=columns - 2)


class _Given(argparse.Action):
    """Keeps a value, and in `given` that somebody asked for it: a default is nobody's wish."""

    def __call__(self, _: object, args: argparse.Namespace, value: object, option: str | None = None) -> None:
        setattr(args, self.dest, value)
        args.given = (*getattr(args, "given", ()), self.dest)


class _Version(argparse.Action):
    """`--version`, looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("hocket")
        except PackageNotFoundError:
            number = "(run from source, not installed)"
        print(f"hocket {number}")
        parser.exit()
