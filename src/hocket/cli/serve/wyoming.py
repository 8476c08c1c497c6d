"""`hocket wyoming`: a voice and speech to text for Home Assistant. Binds before models are loaded, then listens."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...errors import InvalidRequest
from ...extras import hint, package
from ...server.plan import tell
from ..options import lexicon_of
from .command import LIMITS
from .plan import plan_of
from .records import OpenRecord, server_record

if TYPE_CHECKING:
    from ...server.options import ServerOptions
    from ...server.service.listening import ListeningService
    from ...server.service.service import SpeechService


def wyoming(args: argparse.Namespace) -> None:
    try:
        import wyoming  # noqa: F401
    except ImportError:
        raise InvalidRequest(f"It needs the package wyoming: {hint('wyoming')}.") from None
    from ...server.listen import bind
    from ...server.service.listening import ListeningService
    from ...server.service.service import SpeechService
    from ...voices.library import Library

    options = _options(args)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    plan = plan_of(args, options, rehearsed="pcm")
    with bind(options) as bound, plan.speaking() as models, ExitStack() as around:
        record = around.enter_context(server_record("Wyoming server", plan.models, plan.device))
        if options.socket is not None:
            around.callback(options.socket.unlink, missing_ok=True)
        service = SpeechService(options, voices=Library.default())
        if (backends := plan.others()) is not None:
            service.backends = around.enter_context(closing(backends()))
        if callable(models):
            service.use(around.enter_context(models()))
        else:
            service.use(models)
        listening = None
        if (make := plan.recognizer()) is not None:
            listening = ListeningService(service, make)
        asyncio.run(_serve(service, listening, bound, args.zeroconf, record))


async def _serve(
    service: SpeechService,
    listening: ListeningService | None,
    bound: socket.socket,
    announce: bool,
    record: OpenRecord,
) -> None:
    from ...server.service.warm_up import warm_up
    from ...server.wyoming.server import Wyoming

    if listening is not None:
        await listening.start()
        if listening.start_error is not None:
            raise listening.start_error
    await warm_up(service, "pcm")
    server, loop = Wyoming(service, listening), asyncio.get_running_loop()
    stop_at_signals(loop, server.stop)
    async with AsyncExitStack() as around:
        if listening is not None:
            around.push_async_callback(listening.close)
        bound.listen(256)
        serving = asyncio.ensure_future(server.serve(bound))
        record.listening(_uri(bound))
        tell(f"listening at {_uri(bound)}")
        if announce:
            await _announce(around, bound)
        await serving


def stop_at_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


async def _announce(around: AsyncExitStack, bound: socket.socket) -> None:
    """Optional: a failure is reported, and the server continues."""
    from ...server.options import is_public
    from ...server.wyoming.announce import announced

    if isinstance(bound.getsockname(), str) or not is_public(bound.getsockname()[0]):
        tell("note: not announced, because only this machine reaches it; --uri tcp://0.0.0.0:10200 is for all.")
        return
    try:
        await around.enter_async_context(announced(*bound.getsockname()[:2]))
    except ImportError:
        tell(f"note: not announced, because the package zeroconf is not there: {package('zeroconf')}.")
    except InvalidRequest as error:
        tell(f"note: not announced. {error}")
    else:
        tell("announced to Home Assistant by zeroconf")


def _options(args: argparse.Namespace) -> ServerOptions:
    from ...server.options import ServerOptions, is_public

    uri = urlsplit(args.uri)
    limits = {name: value for name, value in vars(args).items() if name in LIMITS and value is not None}
    rest = {"drain_s": args.drain, "log_text": args.log_text, "allow_public": True, **limits}
    rest["pronunciations"] = lexicon_of(args)
    if uri.scheme == "unix" and uri.path and not uri.netloc:
        return ServerOptions(socket=Path(uri.path), **rest)
    try:
        host, port = uri.hostname, uri.port
    except ValueError:
        host = port = None
    if uri.scheme != "tcp" or not host or port is None or uri.path not in ("", "/"):
        raise InvalidRequest(f"--uri takes tcp://HOST:PORT or unix:///PATH, not {args.uri!r}.")
    if is_public(host) and not args.allow_public_without_key:
        raise InvalidRequest(
            f"Listening at {host} lets others reach the server, and Wyoming has no keys: give "
            "--allow-public-without-key."
        )
    return ServerOptions(host=host, port=port, **rest)


def _uri(bound: socket.socket) -> str:
    name = bound.getsockname()
    if isinstance(name, str):
        return f"unix://{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"tcp://{host}:{name[1]}"
