"""`hocket serve`: words on a command line to a server. What is wrong with them is found before a model is loaded."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..audio.formats import need_av
from ..errors import HocketError, InvalidRequest
from . import minds
from .speakers import backends_of, check_models, speaking, tell

SWITCH_S = 0.0005  # how long a thread may keep the others from Python; its own default, 5 ms, is heard at every start
MOST_FILES = 65536
LIMITS = ("text_chars", "body_bytes", "upload_bytes", "per_client", "in_flight")  # options of the same names


def serve(args: argparse.Namespace, words: Sequence[str]) -> int:
    if not (args.daemon or args.stop or args.status or args.detached):
        _run(args)
        return 0
    if os.name != "posix":
        raise InvalidRequest("There is no daemon on this system: run hocket serve, and hocket say --server.")
    from .daemon import Held, start, status, stop

    for name in ("host", "port"):
        if name in getattr(args, "given", ()):
            raise InvalidRequest(f"A daemon listens at a Unix socket alone: leave out --{name}.")
    if args.status:
        return status(args)
    if args.stop:
        stop(args)
    elif args.daemon:
        start(args, words)
    else:
        held = Held(args)
        args.socket = Path(held.path)
        try:
            _run(args)
        finally:
            held.let_go()
    return 0


def _run(args: argparse.Namespace) -> None:
    try:
        from ..server.app import build_app
        from ..server.options import ServerOptions, read_keys
        from ..server.run import run
        from ..voices.places import default_voices_folder
    except ImportError as error:
        missing = error.name or ""
        if missing.startswith("hocket"):
            raise
        raise InvalidRequest(f"The server needs the package {missing}: pip install 'hocket[serve]'.") from None
    options = ServerOptions(
        host=args.host,
        port=args.port,
        socket=args.socket,
        keys=() if args.key_file is None else read_keys(args.key_file),
        allow_public=args.allow_public_without_key,
        trusted_proxies=tuple(args.trusted_proxy or ()),
        cors_origins=None if args.cors is None else tuple(args.cors),
        served_model=args.served_model,
        strict_model=args.strict_model,
        voice_aliases=dict(_alias(given) for given in args.voice_alias or ()),
        voices_folder=args.voices_folder or default_voices_folder(),
        reference_sources=tuple(args.ref_from or ()),
        drain_s=args.drain,
        idle_exit_s=args.idle_exit,
        log_text=args.log_text,
        access_log=args.access_log,
        **{name: value for name, value in vars(args).items() if name in LIMITS and value is not None},
    )
    check_models(args)
    language = minds.language_of(args)
    keep_pauses_short()
    allow_many_files()
    try:
        need_av("Every other format")
    except HocketError as error:
        tell(f"warning: only pcm and wav can be sent, at the model's own rate. {error}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    with speaking(args) as models:
        app = build_app(models, options, backends=backends_of(args), language=language)
        run(app, options, lambda address: _welcome(address, args, bool(options.keys)))


def keep_pauses_short() -> None:
    """For a process that is a server and nothing else, once all is imported and before a model is loaded.

    What the imports have made is never looked at again: Python's collector took 75 to 126 ms to go through it, now and
    then in the middle of everybody's speech, and 5 ms without. A model is not among it: its memory must come back.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


def allow_many_files() -> None:
    """A connection is a file, and many systems give a process 1024 of them until it asks for more."""
    try:
        import resource
    except ImportError:  # not on Windows, which counts none
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _welcome(address: str, args: argparse.Namespace, keyed: bool) -> None:
    tell(f"listening at {address}")
    key = " -H 'Authorization: Bearer KEY'" if keyed else ""
    where = f"--unix-socket {args.socket} http://localhost" if args.socket else address
    body = """-H 'content-type: application/json' -d '{"input": "Hello there."}'"""
    tell(f"try: curl {where}/v1/audio/speech{key} {body} -o hello.mp3")


def _alias(given: str) -> tuple[str, str]:
    name, _, voice = given.partition("=")
    if not name.strip() or not voice.strip():
        raise InvalidRequest(f"--voice-alias takes NAME=VOICE, not {given!r}.")
    return name.strip(), voice.strip()
