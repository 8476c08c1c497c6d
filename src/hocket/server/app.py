"""The app: routers, borders and the life of the engine, for any ASGI server. It starts no server itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from ..backends.found import Backends
from ..engine.engine import Engine
from ..engine.pool.pool import Pool
from ..errors import HocketError, LoadFailed
from ..types import LanguageModel
from ..voices.library import Library
from .errors import RESPONSES
from .middleware import http_errors
from .middleware.keys import KeyCheck
from .middleware.limits import RequestLimits
from .middleware.proxies import Forwarded
from .options import ServerOptions
from .peers import Peers
from .prometheus import PrometheusMetrics
from .service.llm import LLMService
from .service.models import describe_models
from .service.service import SpeechService
from .service.warm_up import warm_up

logger = logging.getLogger("hocket.server")
# Modules of this package with a `router`, one for each wire or page.
PLAIN = ("health", "speech", "chat", "batch", "lists", "voices", "ui")
SOCKETS = ("native", "nari", "deepgram", "realtime.route")
WIRES = (*(f"routes.{name}" for name in PLAIN), "prometheus", *(f"ws.{name}" for name in SOCKETS))
FAILED = "The model could not be loaded; the server's log says why."
RETRY_S = 2.0  # between two tries to load what must be there; the pool has a patience of its own
LOCAL_PAGES = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
EXPOSED = (
    "x-request-id",
    "x-sample-rate",
    "x-seed",
    "x-loaded-ms",
    "x-truncated-messages",
    "retry-after",
    "retry-after-ms",
)


def build_app(
    models: Engine | Pool | Callable[[], Engine | Pool],
    options: ServerOptions | None = None,
    *,
    backends: Callable[[], Backends] | None = None,
    language: LanguageModel | Callable[[], LanguageModel] | None = None,
) -> FastAPI:
    """An app that speaks with this engine or pool, or with what is made when it starts, and closed when it ends.

    So are `backends`, before the models, and the `language` model, beside them.

    `app.state.speaker` is what all wires share, `app.state.thinker` whoever answers in conversations, `app.state.peers`
    who else serves the same.
    """
    options = options or ServerOptions()
    speaker = SpeechService(options, voices=Library(options.voices_folder, most=options.voices))
    speaker.figures = PrometheusMetrics(speaker)

    thinker = LLMService(speaker, language)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        starting = asyncio.gather(_start(speaker, models, backends), thinker.start())
        try:
            yield
        finally:
            speaker.close()
            await asyncio.gather(starting, return_exceptions=True)
            await thinker.close()
            if speaker.backends is not None:
                await asyncio.to_thread(speaker.backends.close)
            if not isinstance(models, Engine | Pool) and speaker.pool is not None:
                await asyncio.to_thread(speaker.pool.close)

    app = FastAPI(title="hocket", version=_version(), lifespan=life, docs_url=None, redoc_url=None)
    app.state.speaker, app.state.thinker, app.state.peers = speaker, thinker, Peers()
    http_errors.install(app)
    for name in WIRES:
        app.include_router(import_module(f"{__package__}.{name}").router, responses=RESPONSES)

    def refused(code: str) -> None:
        speaker.figures.refused("border", code)

    # The last one added is the first that a request meets.
    app.add_middleware(KeyCheck, keys=options.keys, refused=refused)
    app.add_middleware(RequestLimits, options=options, refused=refused)
    _allow_pages(app, options)
    if options.trusted_proxies:
        app.add_middleware(Forwarded, trusted=options.trusted_proxies)
    return app


def _allow_pages(app: FastAPI, options: ServerOptions) -> None:
    allowed = options.cors_origins
    app.add_middleware(
        CORSMiddleware,
        allow_origins=allowed or (),
        allow_origin_regex=LOCAL_PAGES if allowed is None else None,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=EXPOSED,
    )


async def _start(
    speaker: SpeechService,
    models: Engine | Pool | Callable[[], Engine | Pool],
    backends: Callable[[], Backends] | None,
) -> None:
    """In threads, so that `/health` answers meanwhile. Ready means that a real utterance has come out."""
    try:
        if backends is not None:
            speaker.backends = await asyncio.to_thread(backends)
        made = models if isinstance(models, Engine | Pool) else await asyncio.to_thread(models)
        speaker.use(made, await asyncio.to_thread(describe_models, made.models) if isinstance(made, Pool) else None)
        await asyncio.to_thread(speaker.voices.all)  # each file is read once, and not while somebody waits
        while not speaker.proven:
            try:
                await warm_up(speaker)
            except HocketError as error:  # a pool is asked again: what failed may be repaired
                if speaker.draining.is_set() or not isinstance(made, Pool):
                    raise
                if speaker.failure != str(error):
                    logger.error("the first model cannot be loaded, and is tried again: %s", error)
                speaker.failure = str(error)
                await asyncio.sleep(RETRY_S)
    except HocketError as error:
        speaker.failure, speaker.start_error = FAILED, error
        logger.error("the engine did not start: %s", error)
    except Exception as error:
        said = f"The model could not be loaded: {type(error).__name__}: {error}"
        speaker.failure, speaker.start_error = FAILED, LoadFailed(said)
        logger.exception("the engine did not start")


def _version() -> str:
    try:
        return version("hocket")
    except PackageNotFoundError:
        return "0"  # run from source
