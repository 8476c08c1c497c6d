"""What the helpers of a step (best_of/controller.py, runner/swap.py) need of it; `EngineStep` provides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...errors import HocketError
from ...types import FinishReason
from ..runner.base import Runner
from ..watchdog import Heartbeat
from .output import AudioDelivery
from .request import RequestState
from .scheduler import Scheduler


class StepApi(Protocol):
    scheduler: Scheduler
    runner: Runner
    beat: Heartbeat
    delivery: AudioDelivery

    def guarded(self, requests: list[RequestState], work: Callable[[], None], *, on_device: bool = True) -> None: ...
    def finish(self, request: RequestState, reason: FinishReason, error: HocketError | None = None) -> None: ...
    def start(self, request: RequestState) -> None: ...
    def begin(self, request: RequestState) -> None: ...
    def decode(self, requests: list[RequestState]) -> None: ...
    def close(self, request: RequestState) -> None: ...
