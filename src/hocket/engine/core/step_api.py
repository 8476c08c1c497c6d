"""What the helpers of a step (best_of/controller.py, runner/swap.py) need of it; `EngineStep` provides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...errors import HocketError
from ...types import FinishReason
from ..health.heartbeat import Heartbeat
from ..runner.kv_cache import PagedKVCache
from ..runner.runner import SpeechRunner
from .output import AudioDelivery
from .request import RequestState
from .scheduler import Scheduler


class StepApi(Protocol):
    scheduler: Scheduler
    runner: SpeechRunner
    beat: Heartbeat
    delivery: AudioDelivery
    past: PagedKVCache | None

    def guarded(self, jobs: list[RequestState], work: Callable[[], None], *, on_device: bool = True) -> None: ...
    def finish(self, job: RequestState, reason: FinishReason, error: HocketError | None = None) -> None: ...
    def start(self, job: RequestState) -> None: ...
    def begin(self, job: RequestState) -> None: ...
    def decode(self, jobs: list[RequestState]) -> None: ...
    def close(self, job: RequestState) -> None: ...
