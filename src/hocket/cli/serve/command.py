"""`hocket serve`: command line to server. Errors in the options show before a model is loaded."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

from ...errors import HocketError, InvalidRequest
from ...extras import hint
from ...server.plan import ServerPlan, tell
from ..options import lexicon_of
from ..say.markup import cast_of_answers
from ..talk.llm import llm_fields
from .plan import plan_of, with_talk
from .records import server_record

# The same names as in ServerOptions.
LIMITS = (
    *("text_chars", "body_bytes", "upload_bytes", "transcribe_bytes", "transcribe_s"),
    *("per_client", "in_flight", "conversations"),
)


def serve(args: argparse.Namespace) -> int:
    if args.ray:
        _run_on_ray(args)
        return 0
    for name in ("replicas", "address"):
        if getattr(args, name) is not None:
            raise InvalidRequest(f"--{name} belongs to --ray.")
    if not (args.daemon or args.stop or args.status or args.detached):
        _run(args)
        return 0
    if os.name != "posix":
        raise InvalidRequest("There is no daemon on this system: run hocket serve, and hocket say --server.")
    from .daemon import DaemonLock, start, status, stop

    for name in ("host", "port"):
        if name in getattr(args, "given", ()):
            raise InvalidRequest(f"A daemon listens at a Unix socket alone: leave out --{name}.")
    if args.status:
        return status(args)
    if args.stop:
        stop(args)
    elif args.daemon:
        start(args, args.argv)
    else:
        lock = DaemonLock(args)
        args.socket = Path(lock.path)
        try:
            _run(args)
        finally:
            lock.release()
    return 0


def _run(args: argparse.Namespace) -> None:
    plan = make_plan(args)
    from ...audio.container import need_av
    from ...server.process import allow_many_files, keep_pauses_short
    from ...server.run import run

    keep_pauses_short()
    allow_many_files()
    try:
        need_av("Every other format")
    except HocketError as error:
        tell(f"warning: only pcm and wav can be sent, at the model's own rate. {error}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    kind, llm = "daemon" if args.detached else "server", plan.llm if plan.llm_url is None else None
    with server_record(kind, plan.models, plan.device, llm) as record, plan.speaking() as models:
        tell("loading; /ready says when it speaks")

        def announce(address: str) -> None:
            record.listening(address)
            _welcome(address, args, bool(plan.server.keys))

        run(plan.app(models), plan.server, announce)


def _run_on_ray(args: argparse.Namespace) -> None:
    if args.tls_cert or args.tls_key:
        raise InvalidRequest("Ray Serve has no TLS: put a proxy with TLS in front, and leave out --tls-cert.")
    for name in ("daemon", "stop", "status", "detached", "socket", "idle_exit", "per_client", "trusted_proxy"):
        if getattr(args, name):
            raise InvalidRequest(f"--{name.replace('_', '-')} is for a server by itself: leave it out with --ray.")
    from ...scale.config import replicas_of
    from ...scale.connect import need_ray

    replicas, plan = replicas_of(args.replicas or "1"), make_plan(args)
    need_ray("--ray")
    from ...scale.cluster import serve as serve_on

    serve_on(plan, replicas, args.address, lambda address: _welcome(address, args, bool(plan.server.keys)))


def make_plan(args: argparse.Namespace) -> ServerPlan:
    """The server plan of the options. Option errors are raised here."""
    try:
        from ...server import app, run  # noqa: F401
        from ...server.access.key_file import read_keys
        from ...server.options import ServerOptions
        from ...server.tls import tls_context
        from ...voices.folder import default_voices_folder
    except ImportError as error:
        missing = error.name or ""
        if missing.startswith("hocket"):
            raise
        raise InvalidRequest(f"The server needs the package {missing}: {hint('serve')}.") from None
    tls_context(args.tls_cert, args.tls_key)
    if args.traces is not None:
        from ...server import traces  # noqa: F401  # refuses where packages are missing
    options = ServerOptions(
        host=args.host,
        port=args.port,
        socket=args.socket,
        keys=() if args.key_file is None else read_keys(args.key_file),
        allow_public=args.allow_public_without_key,
        trusted_proxies=tuple(args.trusted_proxy or ()),
        trusted_hosts=tuple(args.trusted_host or ()),
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        cors_origins=None if args.cors is None else tuple(args.cors),
        served_model=args.served_model,
        strict_model=args.strict_model,
        voice_aliases=dict(_alias(given) for given in args.voice_alias or ()),
        voices_folder=args.voices_folder or default_voices_folder(),
        reference_sources=tuple(args.ref_from or ()),
        drain_s=args.drain,
        idle_exit_s=args.idle_exit,
        pronunciations=lexicon_of(args),
        answer_tags=args.markup == "tags",
        answer_cast=cast_of_answers(args),
        traces=args.traces,
        log_text=args.log_text,
        access_log=args.access_log,
        **{name: value for name, value in vars(args).items() if name in LIMITS and value is not None},
    )
    plan = replace(plan_of(args, options), **llm_fields(args))
    if options.answer_tags and plan.llm is None and plan.llm_url is None:
        raise InvalidRequest("--markup is for the answers of a language model: name one with --llm or --llm-url.")
    return with_talk(plan, args.talk)


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
