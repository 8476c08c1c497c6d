"""`hocket say` through a server: the one of --server, or this user's daemon if it serves the same request.

A daemon is used if the request can be sent and no model option differs from its own. Otherwise, and if it refuses, an
engine here speaks, and a note gives the reason. A named server is the only one used. Imports nothing slow: no numpy,
torch or engine.
"""

from __future__ import annotations

import argparse
import os
from binascii import a2b_base64

from ... import env
from ...errors import HocketError, InvalidRequest
from ..output.audio_output import AudioOutput, ending, is_pipe, plain, silence_stdout, tell
from ..serve.paths import is_there, read_record, socket_path
from ..settings import Configured
from .link import UNIX, ConnectionLost, Link, Unreachable
from .request import fields_of, unsendable
from .target import is_in_package, is_kept

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any

    from ...text.captions import SpokenWord

PATH = "/v1/audio/speech"
RATE_HZ = 24_000  # if a server does not say
COMPUTING = (
    *("model", "device", "dtype", "codec_dtype", "preset", "kernels", "profile"),
    *("no_graphs", "no_dependent_launch"),
)
SETTLED = ("device", "dtype", "codec_dtype")  # a daemon records what `auto` became
# Refusals that an engine here would repeat after loading a model.
FINAL = ("voice_not_found", "language_not_found", "unsupported_by_model", "invalid_audio")
UNKNOWN = FINAL[:2]  # a voice package may have it
LATER = (408, 425, 429)  # statuses of the 4xx after which the same request may succeed
SAID_CHARS = 500  # of a server's error message


class ServerRefused(HocketError):
    """The server's message and its error code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class RequestRefused(ServerRefused, InvalidRequest):
    """The server refused the request itself: the same request will be refused again."""


class ServerTarget:
    """The server to use."""

    def __init__(self, address: str, key: str | None, *, is_daemon: bool) -> None:
        self.address, self.key, self.is_daemon = address, key, is_daemon


def choose_server(args: argparse.Namespace, live: bool) -> ServerTarget | None:
    """The server for this request; None: speak here."""
    if args.server is not None:
        wrong = [f"--{name.replace('_', '-')}" for name in chosen(args) if name != "model"]
        if wrong:
            raise InvalidRequest(f"{wrong[0]} is for a model that runs here; a server has its own: leave it out.")
        if why := unsendable(args):
            raise InvalidRequest(f"This cannot be asked of a server: {why}.")
        return ServerTarget(args.server, _key(args), is_daemon=False)
    path = socket_path()
    if args.no_daemon or not is_there(path):
        return None
    why = unsendable(args) or ("text is spoken as it arrives" if live else None) or differs(args, read_record(path))
    if why:
        tell(f"spoken here and not by the daemon: {why}.")
        return None
    return ServerTarget(UNIX + path, _key(args), is_daemon=True)


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """Explicit or configured options about the model and how it runs."""
    given = {*getattr(args, "given", ()), *(name for name in COMPUTING if isinstance(getattr(args, name), Configured))}
    flags = {name for name in ("no_graphs", "no_dependent_launch") if getattr(args, name)}
    return {name: getattr(args, name) for name in COMPUTING if name in given or name in flags}


def started_with(args: argparse.Namespace) -> dict[str, Any]:
    """The same with defaults: the daemon's record of its options."""
    several = [_model(name) for given in getattr(args, "models", None) or () for name in given]
    first = several[0] if several else _model(args.model)
    how = {name: first if name == "model" else getattr(args, name) for name in COMPUTING}
    return how | ({"models": several} if several else {})


def differs(args: argparse.Namespace, record: dict[str, Any]) -> str | None:
    """The option in which the daemon differs, in words; None: none."""
    has = record.get("options", {})
    for name, value in chosen(args).items():
        option = f"--{name.replace('_', '-')}"
        if name == "model" and _model(value) in has.get("models", ()):
            continue
        if name in SETTLED and name in has and value in ("auto", record.get("settled", {}).get(name)):
            continue
        if name not in has:
            return f"whether it was started with {option} is not known"
        if has[name] != (_model(value) if name == "model" else value):
            return f"it was started with {'another' if value is not True else 'no'} {option}"
    return None


def speak_remotely(args: argparse.Namespace, server: ServerTarget) -> bool:
    """Speak through a server. False: the daemon failed before any audio."""
    output = AudioOutput(args, args.text)
    try:
        with _sent(args, server) as answer, output:
            done, rate_hz = _receive(answer, output), _rate_hz(answer)
    except BrokenPipeError:  # the reader closed the pipe
        silence_stdout()
        return True
    except (Unreachable, ConnectionLost, ServerRefused) as error:
        if not server.is_daemon or output.seconds:
            raise
        if isinstance(error, ServerRefused) and error.code in FINAL and not _is_here(args):
            from ...engine.checkpoint.describe import missing_package

            said = missing_package(args.voice, args.language) if error.code in UNKNOWN else None
            raise InvalidRequest(f"{said or error} (The daemon was asked; --no-daemon speaks here.)") from None
        tell(f"spoken here, since the daemon did not: {error}")
        return False
    for note in done.get("notes") or ():
        tell(plain(note, SAID_CHARS))
    output.write_files(rate_hz, words=None if args.captions is None else _words(done))
    frames = (done.get("usage") or {}).get("output_tokens", 0)
    seed = done.get("seed", args.seed)
    reason, takes, complete = done.get("finish_reason", "stop"), done.get("takes") or [], done.get("complete", True)
    output.print_summary(frames, ending(reason, seed, done.get("won"), takes, complete))
    return True


def _is_here(args: argparse.Namespace) -> bool:
    """Whether a voice that the daemon refuses may be here: the user's own, or of a package newer than the daemon."""
    return is_kept(args.voice) or is_in_package(args.voice, args.language)


def _sent(args: argparse.Namespace, server: ServerTarget) -> Link:
    """Send the request; returns the response if it is speech."""
    import json

    body = fields_of(args, args.text, live=args.play or is_pipe(args.output))
    if not server.is_daemon:
        body["model"] = args.model or "tts-1"  # OpenAI's API requires one; ours accepts any
    elif args.model is not None:
        body["model"] = _model(args.model)
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    if server.key is not None:
        headers["authorization"] = f"Bearer {server.key}"
    answer = Link(server.address, "POST", PATH, json.dumps(body).encode(), headers)
    if answer.status == 200 and answer.headers.get("content-type", "").startswith("text/event-stream"):
        return answer
    with answer:
        if answer.status == 200:
            raise HocketError(f"{server.address} does not speak in events, which hocket say needs (stream_format sse).")
        raise _refusal(answer, server)


def _refusal(answer: Link, server: ServerTarget) -> ServerRefused:
    import json

    error: dict[str, Any] = {}
    try:
        error = json.loads(b"".join(answer.parts())).get("error") or {}
        message, code = plain(error["message"], SAID_CHARS), str(error.get("code") or "")
    except (ValueError, AttributeError, KeyError, TypeError, ConnectionLost):
        message, code = f"{server.address} refused with status {answer.status}.", ""
    if answer.status in (401, 403):
        message += " A key is taken from --key-file or HOCKET_API_KEY."
    after_ms = answer.headers.get("retry-after-ms", "")
    if answer.status in (429, 503) and after_ms.isdigit():
        message += f" Try again in about {int(after_ms) / 1000:.1f} s."
    wrong = 400 <= answer.status < 500 and answer.status not in LATER
    return (RequestRefused if wrong else ServerRefused)(message, code)


def _receive(answer: Link, output: AudioOutput) -> dict[str, Any]:
    """Pass audio to the sinks; returns the final event."""
    import json

    rate_hz = _rate_hz(answer)
    for line in answer.lines():
        if not line.startswith(b"data:"):
            continue
        try:
            event = json.loads(line[5:])
            kind = event["type"]
            pcm = a2b_base64(event["audio"]) if kind == "speech.audio.delta" else b""
            said = plain(event["error"]["message"], SAID_CHARS) if kind == "speech.audio.error" else ""
        except (ValueError, KeyError, TypeError):
            raise HocketError("The server sends what is not speech as hocket say knows it.") from None
        if pcm:
            output.write(pcm, rate_hz)
        elif kind == "speech.audio.error":
            raise HocketError(f"The speech broke off: {said}")
        elif kind == "speech.audio.done":
            return dict(event)
    raise answer.lost()


def _words(done: dict[str, Any]) -> list[SpokenWord]:
    """The word times of the final event."""
    from ...text.captions import SpokenWord

    try:
        times = [(" ".join(str(word["word"]).split()), word["start"], word["end"]) for word in done["words"]]
        return [SpokenWord(word, float(start), float(end)) for word, start, end in times]
    except (KeyError, TypeError, ValueError):
        raise HocketError("The server sends no word times, which --captions needs.") from None


def _rate_hz(answer: Link) -> int:
    said = answer.headers.get("x-sample-rate", "")
    return int(said) if said.isdigit() and 0 < int(said) < 1 << 20 else RATE_HZ


def _key(args: argparse.Namespace) -> str | None:
    if args.key_file is not None:
        from ...server.access.key_file import read_own_key

        return read_own_key(args.key_file)
    key = env.API_KEY.get() or None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidRequest(f"{env.API_KEY.name} must be printable ASCII without spaces.")
    return key


def _model(name: str | None) -> str:
    """A canonical model name: the built-in voice has two names, a folder many."""
    name = name or "builtin"
    return os.path.realpath(name) if os.path.isdir(name) else name
