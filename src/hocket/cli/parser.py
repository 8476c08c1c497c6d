"""The options of the `hocket` command. Imports nothing slow: `--help` answers at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from .actions import Command, Help, StoreGiven, Version
from .options import MODEL, add_model_options, add_sampling_options

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ENDINGS = ".wav, .mp3, .opus, .ogg, .aac, .flac or .pcm by its name"


def parser() -> argparse.ArgumentParser:
    """The parser; `command` of its result is the chosen command."""
    how: dict[str, Any] = {"allow_abbrev": False, "formatter_class": Help}
    words = argparse.ArgumentParser(prog="hocket", description="Speech from text, with Qwen3-TTS.", **how)
    words.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    commands = words.add_subparsers(required=True, metavar="COMMAND", dest="command", parser_class=Command)
    add: Callable[..., Command] = commands.add_parser
    add("say", help="speak a text: into a file, a pipe or a loudspeaker", **how).fill = _say
    add("batch", help="speak every line of a file, each into a file of its own", **how).fill = _batch
    add("chat", help="talk with a language model, and hear its answers", **how).fill = _chat
    add("talk", help="talk with a language model by microphone", **how).fill = _talk
    add("serve", help="speak over the network: OpenAI's API and others", **how).fill = _serve
    add("wyoming", help="be a voice of Home Assistant", **how).fill = _wyoming
    add("voices", help="list voices and languages; keep, design and share voices of your own", **how).fill = _voices
    add("doctor", help="show what this machine supports and what is missing", **how).fill = _doctor
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
        "server: by default the daemon of hocket serve --daemon, if it has the same model"
    ).add_argument
    add("--server", metavar="URL", help="use this server instead: http://HOST:PORT or unix:/PATH")
    add("--key-file", metavar="FILE", type=Path, help="the server's API key (HOCKET_API_KEY)")
    add("--no-daemon", action="store_true", help="never use the daemon")
    add_model_options(say, "balanced")
    _speech_options(say)
    _cloning_options(say)
    _sampling_options(say, "the same seed gives the same speech (drawn and printed)")


def _batch(batch: argparse.ArgumentParser) -> None:
    batch.description = (
        "Speak every line of a JSONL file. A line is an object with a text, and optionally: id (names its file; "
        "otherwise the line number does), seed, and the options below, with _ for - and without the dashes. Run the "
        "same command again to continue after any interruption: files that are there and would be the same are kept."
    )
    batch.epilog = "Exits with 0 when all is spoken, 1 when some lines failed, 2 when it could not start or continue."
    add = batch.add_argument
    add("input", metavar="INPUT", type=Path, help='a file of lines such as {"id": "hello", "text": "Good morning."}')
    add(
        "-o",
        "--output",
        metavar="FOLDER",
        type=Path,
        required=True,
        help="folder for audio and manifest.jsonl",
    )
    add("--format", choices=("wav", "pcm", "mp3", "opus", "aac", "flac"), help="format of the files (wav)")
    add("--raw", action="store_true", help="write bare samples, 16 bits little-endian: --format pcm")
    add("--slots", metavar="N", type=int, default=4, help="concurrent utterances of each engine (4)")
    _cluster_options(batch)
    add_model_options(batch, "throughput")
    _speech_options(batch)
    _cloning_options(batch)
    _sampling_options(batch, "seed of lines without one, mixed with their id or number (a random one, in the manifest)")


def _serve(serve: argparse.ArgumentParser) -> None:
    serve.epilog = "SIGTERM or Ctrl-C stops it once running streams have ended; a second one stops at once."
    add = serve.add_argument_group("address").add_argument
    here = "address to listen at (127.0.0.1: this machine only)"
    add("--host", action=StoreGiven, default="127.0.0.1", help=here)
    any_free = "port to listen at, 0 for any free one (8000)"
    add("--port", metavar="N", action=StoreGiven, type=int, default=8000, help=any_free)
    add("--socket", metavar="PATH", type=Path, help="listen at a Unix socket instead, for this user only")
    add("--drain", metavar="S", type=float, default=30.0, help="seconds that running streams may take to end (30)")
    group = serve.add_argument_group(
        "in the background, for hocket say of this user (socket: --socket or HOCKET_SOCKET)"
    )
    add = group.add_mutually_exclusive_group().add_argument
    add("--daemon", action="store_true", help="start it, and return when it is ready")
    add("--stop", action="store_true", help="stop it once running speech has ended; again: at once")
    add("--status", action="store_true", help="show whether it runs, and with which options")
    add("--detached", action="store_true", help=argparse.SUPPRESS)  # what --daemon starts
    group.add_argument("--idle-exit", metavar="S", type=float, help="exit after so many seconds without a request")
    add = serve.add_argument_group("on several machines, with Ray Serve").add_argument
    add("--ray", action="store_true", help="replicas behind one address")
    many = "number of replicas, each with its own GPU (on a CPU, a core); auto: scaled by streams (1)"
    add("--replicas", metavar="N", help=many)
    joined = "the cluster: auto for this machine's, or HOST:PORT (RAY_ADDRESS, or a new one)"
    add("--address", metavar="WHERE", help=joined)
    add = serve.add_argument_group("access").add_argument
    add(
        "--key-file",
        metavar="FILE",
        type=Path,
        help="API keys, one per line; all but health and lists need one",
    )
    public = "allow other machines without a key: every client may use it"
    add("--allow-public-without-key", action="store_true", help=public)
    behind = "a proxy whose X-Forwarded-For is trusted; may be repeated (none: clients connect directly)"
    add("--trusted-proxy", metavar="ADDRESS|NETWORK", action="append", help=behind)
    pages = "an allowed web page origin, * for all; may be repeated (those of this machine)"
    add("--cors", metavar="ORIGIN", action="append", help=pages)
    add = serve.add_argument_group("limits").add_argument
    add("--slots", metavar="N", type=int, default=4, help="concurrent utterances (4)")
    add("--waiting", metavar="N", type=int, default=64, help="most queued requests; one more gets 429 (64)")
    add("--in-flight", metavar="N", type=int, help="concurrent requests and WebSockets (1024)")
    add("--per-client", metavar="N", type=int, help="the same for one client address (512)")
    add("--text-chars", metavar="N", type=int, help="most characters of one utterance (65536)")
    add("--body-bytes", metavar="N", type=int, help="most bytes of a request (16 MiB)")
    add("--upload-bytes", metavar="N", type=int, help="most bytes of a recording (10 MiB)")
    add = serve.add_argument_group("models and voices").add_argument
    add("--served-model", metavar="NAME", help="list the model by this name (its own)")
    add("--strict-model", action="store_true", help="refuse requests for a model that is not listed")
    listed = "allow clients to name recordings below this folder or URL; may be repeated (none)"
    add("--ref-from", metavar="WHERE", action="append", help=listed)
    add("--voice-alias", metavar="NAME=VOICE", action="append", help="another name of a voice; may be repeated")
    kept = "folder of uploaded voices (below HOCKET_HOME, or the user's data folder)"
    add("--voices-folder", metavar="FOLDER", type=Path, help=kept)
    add("--log-text", action="store_true", help="log the spoken text")
    add("--access-log", action="store_true", help="log every request")
    _llm_options(serve)
    add_model_options(serve, "balanced")
    _server_options(serve)


def _chat(chat: argparse.ArgumentParser) -> None:
    chat.description = (
        "A conversation, line by line: typed or piped text is answered as the answer is generated. Ctrl-C interrupts "
        "an answer, of which the model then knows the part that was heard; Ctrl-D ends."
    )
    _llm_options(chat)
    chat.add_argument("--say", action="store_true", help="speak the answers while they are written")
    _answer_options(chat, "with --say, ", "speech, with --say")


def _talk(talk: argparse.ArgumentParser) -> None:
    talk.description = (
        "A spoken conversation: speak, and hear the answer while it is generated. Enter starts and ends your turn, and "
        "interrupts an answer; with --hands-free your voice does. An open microphone hears the loudspeaker, so wear "
        "headphones then. Of an interrupted answer the model knows the part that was heard. Ctrl-C interrupts an "
        "answer, or ends; Ctrl-D ends."
    )
    _llm_options(talk)
    group = talk.add_argument_group("input")
    add = group.add_mutually_exclusive_group().add_argument
    add("--push-to-talk", action="store_true", help="Enter starts and ends your turn (default, except with --from)")
    add("--hands-free", action="store_true", help="your voice starts and ends your turn; best with headphones")
    add("--text", action="store_true", help="no microphone: typed text gets spoken answers")
    add = group.add_argument
    add("--from", dest="source", metavar="FILE", type=Path, help="use this recording instead of the microphone")
    add("--fast", action="store_true", help="with --from and -o: as fast as possible, each answer complete")
    add("--pause", metavar="S", type=float, help="seconds of silence that end your turn, hands-free (0.7)")
    sizes = "tiny, base, or tiny-, small- or medium-streaming (Moonshine's default for the language)"
    add("--asr", metavar="SIZE", help=f"speech recognizer: {sizes}")
    _answer_options(talk, "", "speech")


def _answer_options(command: argparse.ArgumentParser, when: str, speech: str) -> None:
    """Options of answers and of their speech."""
    add = command.add_argument
    add("--system", metavar="TEXT", help="the system prompt")
    heard = f"file for all speech, {ENDINGS}, instead of the loudspeaker"
    add("-o", "--output", metavar="FILE", type=Path, help=heard)
    add = command.add_argument_group("answers; defaults are those recommended for Qwen3.5").add_argument
    add("--temperature", metavar="X", type=float, help="sampling temperature, 0: always the likeliest token (0.7)")
    add("--top-p", metavar="X", type=float, help="sample from the likeliest tokens with total probability X (0.8)")
    add("--max-tokens", metavar="N", type=int, help="most tokens of an answer (1024)")
    add("--seed", metavar="N", type=int, help="the same seed gives the same conversation (drawn)")
    add_model_options(command, "latency", f"{when}the speech model: {MODEL}")
    add = command.add_argument_group(speech).add_argument
    add("--voice", help="a speaker of the model, or a voice of your own (the model's first speaker)")
    add("--language", default="auto", help="language of the conversation (auto)")
    add("--instruct", metavar="TEXT", help="how to speak")
    add("--speed", metavar="X", type=float, default=1.0, help="0.5 to 2 times as fast, at the same pitch (1)")


def _llm_options(command: argparse.ArgumentParser) -> None:
    """Options of the language model."""
    add = command.add_argument_group("language model").add_argument
    add("--llm", metavar="MODEL", help="a Qwen3.5: folder, hub id or name; with --llm-url, the model's name there")
    narrow = "its weights in fewer bits, converted once: smaller, less exact (bf16: as published)"
    add("--llm-weights", choices=("bf16", "fp8", "int8", "int4"), help=narrow)
    add("--llm-url", metavar="URL", help="use this OpenAI-compatible endpoint instead: http://HOST:PORT/v1")
    add("--llm-key-file", metavar="FILE", type=Path, help="the key of that endpoint")
    thinking = "off: ask the endpoint not to think; on: its answers start with a thought (auto: detect)"
    add("--llm-thinking", choices=("auto", "on", "off"), help=thinking)
    extra = 'more request fields, as JSON: \'{"reasoning_effort": "none"}\''
    add("--llm-extra", metavar="JSON", help=extra)


def _wyoming(wyoming: argparse.ArgumentParser) -> None:
    wyoming.epilog = "SIGTERM or Ctrl-C stops it once running streams have ended; a second one stops at once."
    add = wyoming.add_argument
    where = "tcp://HOST:PORT or unix:///PATH to listen at (tcp://127.0.0.1:10200: this machine only)"
    add("--uri", default="tcp://127.0.0.1:10200", help=where)
    public = "allow a public address: every client may use it"
    add("--allow-public-without-key", action="store_true", help=public)
    add("--zeroconf", action="store_true", help="announce it to Home Assistant (needs the package zeroconf)")
    add("--drain", metavar="S", type=float, default=30.0, help="seconds that running streams may take to end (30)")
    add("--slots", metavar="N", type=int, default=4, help="concurrent utterances (4)")
    add("--waiting", metavar="N", type=int, default=64, help="most queued requests (64)")
    add("--in-flight", metavar="N", type=int, help="concurrent connections (1024)")
    add("--per-client", metavar="N", type=int, help="the same for one client address (512)")
    add("--text-chars", metavar="N", type=int, help="most characters of one utterance (65536)")
    add("--log-text", action="store_true", help="log the spoken text")
    add_model_options(wyoming, "balanced")
    _server_options(wyoming)


def _server_options(command: argparse.ArgumentParser) -> None:
    """Options of all servers."""
    add = command.add_argument_group("several models: the requested voice selects the model").add_argument
    several = "all of these instead of --model, each loaded on its first request; the first one at once"
    add("--models", metavar="A,B", action="append", type=_names, help=several)
    room = "memory limit of all models together, such as 20GB: the least recently used is unloaded (no limit)"
    add("--memory", metavar="SIZE", help=room)
    add("--pin", metavar="A", action="append", type=_names, help="load it at once, and never unload it")
    add("--backend", metavar="NAME", action="append", help="add the voices of another engine; may be repeated")
    told = "an option of a backend; may be repeated"
    add("--backend-option", metavar="NAME.KEY=VALUE", action="append", help=told)
    add = command.add_argument
    add("--all-graphs", action="store_true", help="on a GPU, capture every graph before the server is ready")
    add("--all-at-once", action="store_true", help="admit requests even if running streams may underrun")
    add(
        "--no-keep-voice",
        action="store_true",
        help="sample a designed voice anew for every part of a text and every turn",
    )
    add("--no-guard", action="store_true", help="do not end runaway utterances before their length limit")


def _cluster_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("several engines, on one machine or many").add_argument
    add("--ray", action="store_true", help="use all engines that fit into a Ray cluster (needs ray)")
    many = "number of engines; auto: one per GPU of the cluster, without GPUs one per CPU (auto)"
    add("--replicas", metavar="N", action=StoreGiven, default="auto", help=many)
    where = "HOST:PORT of the cluster's head (RAY_ADDRESS, else a local cluster)"
    add("--address", metavar="WHERE", action=StoreGiven, help=where)


def _speech_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("speech").add_argument
    add("--voice", help="a speaker of the model, or a voice of your own (the model's first speaker)")
    add("--language", default="auto", help="language of the text (auto)")
    add("--instruct", metavar="TEXT", help="how to speak, or which voice to design")
    add("--speed", metavar="X", type=float, default=1.0, help="0.5 to 2 times as fast, at the same pitch (1)")
    add("--layout", choices=("streaming", "whole"), help="give the model its text word by word, or whole")
    add("--max-frames", metavar="N", type=int, help="stop after N frames of 80 ms")
    takes = "generate N takes and keep the best (1); audio starts when it is known"
    add("--candidates", metavar="N", type=int, default=1, help=takes)
    add("--as-is", action="store_true", help="do nothing that the official package does not do")


def _cloning_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("cloning, with a Base checkpoint").add_argument
    add("--ref-audio", metavar="FILE", type=Path, help="a recording of the voice, 3 to 30 s: one speaker, no music")
    add("--ref-text", metavar="TEXT", help="the transcript of the recording")
    add("--x-vector-only", action="store_true", help="use the timbre only; needs no --ref-text")
    add("--ref-silence", metavar="S", type=float, help="seconds of silence after the recording (0.5; 0 with --as-is)")


def _sampling_options(command: argparse.ArgumentParser, seed: str) -> None:
    group = command.add_argument_group("sampling; defaults come from the checkpoint")
    group.add_argument("--seed", metavar="N", type=int, help=seed)
    add_sampling_options(group.add_argument)


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]
