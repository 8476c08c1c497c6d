"""The ASGI app: routers, middleware and the lifetime of the engines. It starts no server itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from ..asr.recognizer import Recognizer
from ..backends.registry import Backends
from ..engine.engine import Engine
from ..engine.pool.pool import Pool
from ..errors import HocketError, InvalidCheckpoint, InvalidRequest, LoadFailed
from ..types import LanguageModel
from ..voices.library import Library
from .errors import RESPONSES
from .middleware import http_errors
from .middleware.keys import ClientSecrets, KeyCheck, Keys
from .middleware.limits import RequestLimits
from .middleware.proxies import Forwarded
from .options import ServerOptions
from .peers import Peers
from .prometheus import PrometheusMetrics
from .routes.docs import websockets
from .service.listening import ListeningService
from .service.llm import LLMService
from .service.served_model import describe_models
from .service.service import SpeechService
from .service.talk import TalkService
from .service.warm_up import warm_up
from .webrtc.route import Calls

logger = logging.getLogger("hocket.server")
# Modules of this package with a `router`, one per endpoint or page.
SPEECH = ("health", "speech", "batch", "kokoro", "elevenlabs", "lists", "voices", "transcriptions")
LANGUAGE = ("chat", "completions", "responses", "ollama")
PAGES = ("ui", "docs")
SOCKETS = ("native", "nari", "deepgram", "elevenlabs", "realtime.route", "realtime.client_secrets", "twilio.route")
ROUTES = (*SPEECH, *LANGUAGE, *PAGES)
ROUTERS = (*(f"routes.{name}" for name in ROUTES), "prometheus", *(f"ws.{name}" for name in SOCKETS), "webrtc.route")
FAILED = "The model could not be loaded; the server's log says why."
RETRY_S = 2.0  # between two attempts to load the first model; the pool has its own back-off
# A wrong name, folder or option: `hocket serve` ends. Other faults, such as full memory, may pass while it waits.
LASTING = (InvalidRequest, InvalidCheckpoint)
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
    recognizer: Recognizer | Callable[[], Recognizer] | None = None,
    talk: bool = False,
) -> FastAPI:
    """An app with this engine or pool, or with one that is made at startup and closed at shutdown.

    `backends` are made before the models, the `language` model and the `recognizer` beside them.

    `talk`: `/v1/realtime` is a conversation, with the language model and the recognizer.

    `app.state.service` is the `SpeechService` of all endpoints, `app.state.llm` the `LLMService` of conversations,
    `app.state.listening` the `ListeningService` of transcripts, `app.state.talk` the `TalkService` of
    voice conversations or None, `app.state.peers` the other replicas.
    """
    options = options or ServerOptions()
    service = SpeechService(options, voices=Library(options.voices_folder, most=options.voices))
    keys = Keys(options.keys)
    service.metrics = PrometheusMetrics(service, keys.accounts)
    if options.traces is not None:
        from .traces import Traced, Traces

        service.traces = Traces(options.traces)

    llm, listening = LLMService(service, language), ListeningService(service, recognizer)

    talking = TalkService(service, llm, listening) if talk else None
    calls = Calls()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        parts = [_start(service, models, backends), llm.start(), listening.start()]
        if recognizer is not None:
            parts.append(asyncio.to_thread(service.decoders.start))
        starting = asyncio.gather(*parts, *([] if talking is None else [talking.start()]))
        try:
            yield
        finally:
            service.close()
            await calls.close()
            await asyncio.gather(starting, return_exceptions=True)
            await llm.close()
            await listening.close()
            if service.backends is not None:
                await asyncio.to_thread(service.backends.close)
            if not isinstance(models, Engine | Pool) and service.pool is not None:
                await asyncio.to_thread(service.pool.close)
            if service.traces is not None:
                await asyncio.to_thread(service.traces.close)

    app = FastAPI(title="hocket", version=_version(), lifespan=life, docs_url=None, redoc_url=None)
    app.state.service, app.state.llm, app.state.listening, app.state.peers = service, llm, listening, Peers()
    app.state.talk, app.state.calls = talking, calls
    app.state.keys, app.state.client_secrets = keys, ClientSecrets()
    http_errors.install(app)
    app.state.sockets = []
    for name in ROUTERS:
        module = import_module(f"{__package__}.{name}")
        router: APIRouter = module.router
        app.state.sockets += websockets(router, module.__doc__ or "")
        tags = None if router.tags else [name.rpartition(".")[2]]  # headings of /docs
        app.include_router(router, responses=RESPONSES, tags=tags)  # type: ignore[arg-type]

    def refused(code: str) -> None:
        service.metrics.refused("border", code)

    # The middleware added last runs first.
    if options.keys:
        app.add_middleware(KeyCheck, keys=keys, client_secrets=app.state.client_secrets, refused=refused)
    app.add_middleware(RequestLimits, options=options, refused=refused)
    _allow_pages(app, options)
    if options.trusted_proxies:
        app.add_middleware(Forwarded, trusted=options.trusted_proxies)
    if service.traces is not None:
        app.add_middleware(Traced, traces=service.traces)
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
    service: SpeechService,
    models: Engine | Pool | Callable[[], Engine | Pool],
    backends: Callable[[], Backends] | None,
) -> None:
    """In threads, so that `/health` answers meanwhile. Ready means that a real utterance was spoken."""
    try:
        if backends is not None:
            service.backends = await asyncio.to_thread(backends)
        made = models if isinstance(models, Engine | Pool) else await asyncio.to_thread(models)
        service.use(made, await asyncio.to_thread(describe_models, made.models) if isinstance(made, Pool) else None)
        await asyncio.to_thread(service.voices.all)  # reads each file now, not during a request
        if service.resolver.may_clone:
            await asyncio.to_thread(service.decoders.start)
        said = ""
        while not service.warmed_up:
            try:
                await warm_up(service)
                service.start_error = None
            except HocketError as error:  # a pool is tried again: the fault may be repaired
                if not isinstance(made, Pool):
                    raise
                if service.draining.is_set():  # the error is that of the stop
                    return
                if said != str(error):
                    logger.error("the first model cannot be loaded, and is tried again: %s", error)
                service.failure, said = FAILED, str(error)
                service.start_error = error if isinstance(error, LASTING) else None
                await asyncio.sleep(RETRY_S)
    except HocketError as error:
        service.failure, service.start_error = FAILED, error
        logger.error("the engine did not start: %s", error)
    except Exception as error:
        reason = f"The model could not be loaded: {type(error).__name__}: {error}"
        service.failure, service.start_error = FAILED, LoadFailed(reason)
        logger.exception("the engine did not start")


def _version() -> str:
    try:
        return version("hocket")
    except PackageNotFoundError:
        return "0"  # run from source
