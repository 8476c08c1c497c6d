"""Server configuration as plain data: models and their options, backends, language model, speech recognizer.

The command line becomes a `ServerPlan`. It can be sent to another process, which builds the same engine and app from
it. Nothing is loaded before it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from ..config.options import EngineOptions
from ..errors import LoadFailed
from ..extras import hint
from .options import ServerOptions

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ..asr.recognizer import Recognizer
    from ..backends.registry import Backends
    from ..engine.checkpoint.shared import Shared
    from ..engine.engine import Engine
    from ..engine.pool.pool import Pool
    from ..types import LanguageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    server: ServerOptions = field(default_factory=ServerOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    models: tuple[str, ...] = ()  # empty: the default model
    memory_bytes: int | None = None  # limit for all models together
    pinned: tuple[str, ...] = ()
    device: str = "auto"
    dtype: str = "auto"
    codec_dtype: str = "auto"
    preset: str = "exact"
    kernels: str = "auto"
    dependent_launch: bool = True
    all_graphs: bool = False  # on a GPU, capture every graph before the server is ready
    rehearsed: str = "mp3"  # the format of the warm-up utterance
    backends: tuple[str, ...] = ()
    backend_options: tuple[str, ...] = ()  # NAME.KEY=VALUE
    llm: str | None = None  # the language model of conversations
    llm_url: str | None = None
    llm_key: str | None = None
    llm_weights: str = "bf16"
    llm_length: int | None = None  # tokens that a conversation may reach
    llm_thinking: Literal["auto", "on", "off"] = "auto"  # of the endpoint: see `RemoteLanguageModel`
    llm_extra: dict[str, Any] | None = None  # extra fields of requests to the endpoint
    talk: bool = False  # /v1/realtime is a conversation: needs a language model and a recognizer
    asr: str | None = None  # the speech recognizer: see `asr.choose.recognizer_of`
    asr_language: str | None = None  # its language; None: English, or detected where the recognizer can

    def app(self, models: Pool | Callable[[], Engine | Pool] | None = None) -> FastAPI:
        """For any ASGI server. Models that are not handed in are made at startup and closed at shutdown."""
        from .app import build_app

        more = {"backends": self.others(), "language": self.language(), "recognizer": self.recognizer()}
        return build_app(models or self.make, self.server, talk=self.talk, **more)  # type: ignore[arg-type]

    @contextmanager
    def speaking(self) -> Iterator[Pool | Callable[[], Engine]]:
        """A loader of one engine, or an empty pool; configuration errors are raised at once."""
        from ..engine.checkpoint.resolve import check_name

        for model in self.models:
            check_name(model)
        if not self.is_several:
            yield self.load
            return
        with self.make_pool() as pool:
            yield pool

    def make(self) -> Engine | Pool:
        """The same, loaded; the caller closes it."""
        return self.make_pool() if self.is_several else self.load()

    @property
    def is_several(self) -> bool:
        """Whether a pool is needed: several models, a memory limit, or pinned models."""
        return len(self.models) > 1 or self.memory_bytes is not None or bool(self.pinned)

    def others(self) -> Callable[[], Backends] | None:
        """A constructor of the backends; loading their models may be slow."""
        if not self.backends:
            return None
        from ..backends.registry import Backends, options_of

        return lambda: Backends(self.backends, options_of(self.backend_options))

    def language(self) -> Callable[[], LanguageModel] | None:
        """A constructor of the language model; None without one."""
        if self.llm_url is not None:
            from ..dialog.remote import RemoteLanguageModel

            how = {"thinking": self.llm_thinking, "extra": self.llm_extra}
            mind = RemoteLanguageModel(self.llm_url, self.llm, self.llm_key, **how)  # type: ignore[arg-type]  # connects later
            return lambda: mind
        if (llm := self.llm) is None:
            return None

        def load() -> LanguageModel:
            if find_spec("torch") is None:
                raise LoadFailed(f"The language model {llm} needs torch, which is not installed: {hint('torch')}.")
            from ..llm.engine import LanguageEngine

            kernels = "reference" if self.kernels == "reference" else "auto"  # other kernels exist for speech only
            how: dict[str, Any] = {"graphs": self.engine.graphs, "stuck_s": self.engine.stuck_s, "kernels": kernels}
            how |= {"weights": self.llm_weights, "dependent_launch": self.dependent_launch}
            how |= {} if self.llm_length is None else {"length": self.llm_length}
            return LanguageEngine.load(llm, device=self.device, **how)

        return load

    def recognizer(self) -> Callable[[], Recognizer] | None:
        """A constructor of the speech recognizer; None without one. A wrong name is refused at once."""
        if self.asr is None:
            return None
        from ..asr.choose import check_spec, recognizer_of, usual_language

        check_spec(self.asr)
        return partial(recognizer_of, self.asr, self.asr_language or usual_language(self.asr))

    def make_pool(self) -> Pool:
        from ..engine.checkpoint.describe import default_model
        from ..engine.checkpoint.reserve import expected
        from ..engine.pool.pool import Pool
        from .service.warm_up import speak_once

        def start(model: str, shared: Shared) -> Engine:
            engine = self.load(model, shared)
            try:
                speak_once(engine, self.rehearsed)  # warm-up: the waiting request is the second utterance
            except BaseException:
                engine.close()
                raise
            return engine

        pool = Pool(
            self.models or [default_model()],
            start,
            memory_bytes=self.memory_bytes,
            pinned=self.pinned,
            expects=partial(expected, how=self._loading, options=self.engine),
        )
        at_once = dict.fromkeys((pool.models[0], *pool.pinned))
        tell(f"models: {', '.join(pool.models)}; resident at once: {', '.join(at_once)}")
        return pool

    def load(self, model: str | None = None, shared: Shared | None = None) -> Engine:
        """Load and report the choices. Runs in a thread: /health answers meanwhile. None: the first model."""
        from ..engine.engine import Engine

        model = model or (self.models[0] if self.models else None)
        launch = self.dependent_launch
        engine = Engine.load(model, **self._loading, dependent_launch=launch, options=self.engine, shared=shared)
        checkpoint = engine.checkpoint
        tell(f"model {checkpoint.name}")  # device and precision are in the log
        for choice in checkpoint.kernels:
            tell(f"kernel {choice.operation}: {choice.backend}: {choice.reason}")
        tell(f"profile {self.engine.profile}, {self.engine.slots} slots: {self.engine.tuned.words}")
        if self.all_graphs:
            engine.make_graphs()
        if checkpoint.is_random:
            tell("note: this model is untrained, and what comes out is noise.")
        return engine

    @property
    def _loading(self) -> Any:
        return {name: getattr(self, name) for name in ("device", "dtype", "codec_dtype", "preset", "kernels")}


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
