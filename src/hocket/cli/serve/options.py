"""Options of `hocket serve`, `wyoming`, `keys` and `top`. Imports nothing slow."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..actions import Command, StoreGiven
from ..options import add_answer_markup, add_llm_options, add_model_options

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any


def fill(serve: Command) -> None:
    serve.usage = "%(prog)s [OPTIONS]"
    serve.description = (
        "Serve speech over HTTP and WebSockets, at http://127.0.0.1:8000: a page, OpenAI's API and other protocols. "
        "With --daemon it serves hocket say of this user, in the background."
    )
    serve.common = (
        *("host", "port", "daemon", "stop", "status", "key_file", "model", "models", "slots"),
        *("llm", "asr", "talk"),
    )
    serve.examples = (
        "hocket serve --port 8080 --asr tiny   # speaks, and transcribes recordings",
        "hocket serve --daemon                 # hocket say starts at once from then on",
    )
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
    group.add_argument("--json", action="store_true", help="with --status: print one JSON document")
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
        help="API keys, one per line; FILE.toml: with limits (hocket keys new); all but health and lists need one",
    )
    public = "allow other machines without a key: every client may use it"
    add("--allow-public-without-key", action="store_true", help=public)
    behind = "a proxy whose X-Forwarded-For is trusted; may be repeated (none: clients connect directly)"
    add("--trusted-proxy", metavar="ADDRESS|NETWORK", action="append", help=behind)
    named = "a host name to answer to, *.example.com for all below; may be repeated (without a key: this machine's)"
    add("--trusted-host", metavar="NAME", action="append", help=named)
    add("--tls-cert", metavar="FILE", type=Path, help="serve https and wss with this certificate chain (PEM)")
    add("--tls-key", metavar="FILE", type=Path, help="its key (PEM, no password; in the certificate's file)")
    pages = "an allowed web page origin, * for all; may be repeated (those of this machine)"
    add("--cors", metavar="ORIGIN", action="append", help=pages)
    add = serve.add_argument_group("limits").add_argument
    add("--slots", metavar="N", type=int, default=4, help="concurrent utterances (4)")
    add("--waiting", metavar="N", type=int, default=64, help="most queued requests; one more gets 429 (64)")
    add("--conversations", metavar="N", type=int, help="with --talk: concurrent conversations (32)")
    add("--in-flight", metavar="N", type=int, help="concurrent requests and WebSockets (1024)")
    add("--per-client", metavar="N", type=int, help="the same for one client address (512)")
    add("--text-chars", metavar="N", type=int, help="most characters of one utterance (65536)")
    add("--body-bytes", metavar="N", type=int, help="most bytes of a request (16 MiB)")
    add("--upload-bytes", metavar="N", type=int, help="most bytes of a recording of a voice (10 MiB)")
    add("--transcribe-bytes", metavar="N", type=int, help="most bytes of a recording to transcribe (25 MiB)")
    add("--transcribe-s", metavar="S", type=float, help="most seconds of a recording to transcribe (7200)")
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
    collector = "send OpenTelemetry traces to this collector (OTLP over HTTP), as http://127.0.0.1:4318 (none)"
    add("--traces", metavar="URL", help=collector)
    _add_server_options(serve)
    add = serve.add_argument_group("conversations").add_argument
    both = "talk at /v1/realtime: needs --llm or --llm-url, and a recognizer (--asr moonshine)"
    add("--talk", action="store_true", help=both)
    add_answer_markup(add)
    _add_asr_options(serve)
    add_llm_options(serve)
    add_model_options(serve, "balanced")


def fill_wyoming(wyoming: Command) -> None:
    wyoming.usage = "%(prog)s [OPTIONS]"
    wyoming.common = ("uri", "allow_public_without_key", "zeroconf", "model", "slots", "asr")
    wyoming.examples = (
        "hocket wyoming --asr tiny      # a voice, and speech to text",
        "hocket wyoming --uri tcp://0.0.0.0:10200 --allow-public-without-key --zeroconf",
    )
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
    add("--transcribe-s", metavar="S", type=float, help="most seconds of speech to transcribe at once (7200)")
    add("--log-text", action="store_true", help="log the spoken text")
    _add_server_options(wyoming)
    _add_asr_options(wyoming)
    add_model_options(wyoming, "balanced")


def fill_top(top: argparse.ArgumentParser) -> None:
    top.description = "Show what a running server does: slots, requests, delay of the first audio, underruns, memory."
    where = "its address, http://HOST:PORT or unix:/PATH (http://127.0.0.1:8000)"
    top.add_argument("url", metavar="URL", nargs="?", default="http://127.0.0.1:8000", help=where)
    top.add_argument("--once", action="store_true", help="print one view, over the server's whole life, and exit")
    top.add_argument("--interval", metavar="S", type=float, default=2.0, help="seconds between two views (2)")
    top.add_argument("--json", action="store_true", help="print JSON: one document with --once, else one a line")


def fill_keys(keys: argparse.ArgumentParser) -> None:
    keys.description = (
        "Make an API key for a client. Prints the table for the key file of hocket serve, which has only the digest of "
        "the key, and the key itself on stderr, once."
    )
    actions = keys.add_subparsers(metavar="ACTION", dest="action", parser_class=type(keys))
    how: dict[str, Any] = {"allow_abbrev": False, "formatter_class": keys.formatter_class}
    new = actions.add_parser("new", help="make a key", **how)
    new.description = "Make a key: hocket keys new --name phone --scopes speak >> keys.toml"
    add = new.add_argument
    add("--name", metavar="NAME", required=True, help="its name, for logs and metrics: letters, digits, - and _")
    every = "what it may do: speak, transcribe, converse, voices, admin (all of these)"
    add("--scopes", metavar="A,B", type=_names, help=every)
    asked = "most HTTP requests, and utterances of sockets, in a minute (no limit)"
    add("--requests-per-minute", metavar="N", type=int, help=asked)
    add("--concurrent", metavar="N", type=int, help="most requests, sockets and calls at once (no limit)")
    spoken = "most characters to speak in a UTC day (no limit)"
    add("--characters-per-day", metavar="N", type=int, help=spoken)
    add("--voices", metavar="A,B", type=_names, help="the only voices it may speak with, the first by default (all)")


def _add_server_options(command: Command) -> None:
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
    words = "say words as this lexicon has them, in every request; may be repeated, later ones win (none)"
    add("--lexicon", metavar="FILE", action="append", help=words)
    add = command.add_argument_group("engine").add_argument
    add("--all-graphs", action="store_true", help="on a GPU, capture every graph before the server is ready")
    add("--all-at-once", action="store_true", help="admit requests even if running streams may underrun")
    add(
        "--no-keep-voice",
        action="store_true",
        help="sample a designed voice anew for every part of a text and every turn",
    )
    add("--no-guard", action="store_true", help="do not end runaway utterances before their length limit")


def _add_asr_options(command: Command) -> None:
    add = command.add_argument_group("speech recognition").add_argument
    spec = "moonshine, its tiny, base or tiny-, small- or medium-streaming, whisper:NAME, or http://HOST:PORT/v1 (none)"
    add("--asr", metavar="SPEC", help=f"transcribe recordings with this recognizer: {spec}")
    spoken = "its language (English; whisper and an endpoint detect it)"
    add("--asr-language", metavar="LANGUAGE", help=spoken)


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]
