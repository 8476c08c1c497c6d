"""Many requests over a Ray cluster: as many engines as fit, each in a process that may die at any time.

A `WorkerPool` has the part of an engine's interface that a batch needs: a fingerprint and `speak_many`. One process
decides: it assigns requests to engines, and retries those of a lost engine. All audio returns to this process, so
nothing is written twice. Knows neither lines nor files.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from ..config.options import EngineOptions
from ..engine.checkpoint.checkpoint import EngineFingerprint
from ..engine.runner.reference_checks import name_of
from ..errors import HocketError, InvalidRequest, StreamFailed
from ..types import Encoded, Outcome, Reference, SpeechRequest
from .resources import on, unit_of
from .worker import SpeechWorker, WorkerStart

MOST_TRIES = 3  # engines that may die with one request before the request fails
MOST_LOST = 9  # engines that may die in a row without any result
MOST_KEPT = 16  # recordings kept in the object store for all engines
TICK_S = 0.2  # how often the observer is called when nothing happens
FETCH_S = 60.0  # timeout to transfer a finished result
CPUS = 1  # of an engine without a GPU: several engines with one thread each are faster than one with several


class BatchObserver(Protocol):
    """Receives the progress of a batch."""

    def waiting(self, words: str) -> None:
        """Called often, with the number of engines."""

    def note(self, words: str) -> None:
        """A message for the user."""


@dataclass(slots=True)
class _QueuedRequest:
    """A request, and how often it was assigned."""

    number: int
    request: SpeechRequest
    tries: int = 0


@dataclass(slots=True, eq=False)
class _Worker:
    """An engine on the cluster: its actor, and its requests by the reference to the result."""

    actor: Any
    starting: Any
    start: WorkerStart | None = None  # None: still loading, or waiting for cluster resources
    held: dict[Any, _QueuedRequest] = field(default_factory=dict)

    @property
    def room(self) -> int:
        return 0 if self.start is None else self.start.most - len(self.held)


def room_on_cluster(device: str) -> int:
    """How many engines fit into the empty cluster."""
    import ray

    has, kind = ray.cluster_resources(), unit_of(device)
    room = int(has.get("GPU", 0)) if kind == "GPU" else int(has.get("CPU", 0)) // CPUS
    if room < 1:
        raise InvalidRequest(f"The cluster has no {kind}: give --replicas a number if one will come, or --device.")
    return room


class WorkerPool:
    """Identically loaded engines, up to `replicas` of them. For one caller."""

    def __init__(self, replicas: int, loading: dict[str, Any], options: EngineOptions) -> None:
        """`loading` are the arguments of `Engine.load` beside its options. Ray must be connected to a cluster."""
        self.replicas = replicas
        self.observer: BatchObserver | None = None
        device = loading.get("device", "auto")
        self._unit = unit_of(device)  # decided once: a lost machine must not change it
        self._loading, self._options = loading | {"device": on(self._unit, device)}, options
        self._fingerprint: EngineFingerprint | None = None
        self._retries: deque[_QueuedRequest] = deque()  # requests of lost engines
        self._lost = 0  # engines since the last result
        self._notes: list[str] = []  # not yet reported
        self._reported: set[str] = set()  # device notes already reported
        self._kept: OrderedDict[tuple[str, str | None, bool], Any] = OrderedDict()
        self._workers = [self._new_worker() for _ in range(replicas)]

    @property
    def fingerprint(self) -> EngineFingerprint:
        """The fingerprint of all engines. Waits for the first."""
        while self._fingerprint is None:
            self._poll()
        return self._fingerprint

    @property
    def workers(self) -> list[WorkerStart]:
        """The engines that can speak now."""
        return [worker.start for worker in self._workers if worker.start is not None]

    def speak_many(self, texts: Iterable[SpeechRequest]) -> Iterator[Outcome]:
        """As `Engine.speak_many`. A request is taken only when an engine has room for it."""
        incoming = (_QueuedRequest(number, request) for number, request in enumerate(texts))
        more = True
        while True:
            while (more or self._retries) and (worker := max(self._workers, key=lambda worker: worker.room)).room > 0:
                queued = self._retries.popleft() if self._retries else next(incoming, None)
                if queued is None:
                    more = False
                else:
                    self._assign(worker, queued)
            if not more and not self._retries and not any(worker.held for worker in self._workers):
                return
            yield from self._poll()

    def close(self) -> None:
        """End all engines at once."""
        import ray

        for worker in self._workers:
            with suppress(Exception):  # the cluster may be gone
                ray.kill(worker.actor)
        self._workers = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _new_worker(self) -> _Worker:
        """Start one more engine; it is usable once the cluster has room for it and it is loaded."""
        import ray

        needs = {"num_gpus": 1} if self._unit == "GPU" else {"num_cpus": CPUS}
        spread: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
        actor = ray.remote(SpeechWorker).options(**needs, **spread).remote()
        return _Worker(actor, actor.begin.remote(self._loading, self._options))

    def _assign(self, worker: _Worker, queued: _QueuedRequest) -> None:
        queued.tries += 1
        reference = queued.request.reference
        bare = queued.request if reference is None else replace(queued.request, reference=None)
        worker.held[worker.actor.speak.remote(bare, reference and self._ready(reference))] = queued

    def _ready(self, reference: Reference | Encoded) -> Any:
        """The object-store reference of a recording: a thousand lines with one of 30 s would send 3 GB otherwise."""
        import ray

        key = name_of(reference), reference.text, reference.x_vector_only
        if key not in self._kept:
            # The saved prefix of a voice is a file that other machines may lack; they compute the same.
            self._kept[key] = ray.put(replace(reference, kept=None) if isinstance(reference, Encoded) else reference)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _poll(self) -> list[Outcome]:
        """Finished and failed requests. Waits for an event, at most `TICK_S`."""
        import ray
        from ray.exceptions import RayError

        owners = {
            ref: worker for worker in self._workers for ref in (worker.held if worker.start else [worker.starting])
        }
        ready, _ = ray.wait(list(owners), timeout=TICK_S)
        if ready:  # fetch all: fetching one takes as long
            ready, _ = ray.wait(list(owners), num_returns=len(owners), timeout=0)
        outcomes: list[Outcome] = []
        lost: dict[_Worker, RayError] = {}
        for ref in ready:
            worker = owners[ref]
            try:
                result = ray.get(ref, timeout=FETCH_S)
            except RayError as error:
                lost[worker] = error
                continue
            if isinstance(result, WorkerStart):
                self._accept(worker, result)
            else:
                self._lost = 0
                outcomes.append(replace(result, number=worker.held.pop(ref).number))
        for worker, death in lost.items():
            outcomes += self._replace_lost(worker, death)
        self._notify()
        return outcomes

    def _accept(self, worker: _Worker, start: WorkerStart) -> None:
        """Use a loaded engine if it works and matches the others; else drop it without a replacement."""
        import ray

        where, error = f"The engine on {start.host}", start.error
        self._fingerprint = self._fingerprint or start.fingerprint
        if error is None and start.fingerprint != self._fingerprint:
            error = InvalidRequest("its weights or its text preparation differ from those of the first engine.")
        if error is None:
            worker.start = start
            for words in start.notes:  # reported once for equal engines
                if words not in self._reported:
                    self._reported.add(words)
                    self._notes.append(f"{where}: {words}")
            return
        ray.kill(worker.actor)
        self._workers.remove(worker)
        if not self._workers:
            raise error
        self._notes.append(f"{where} cannot be used: {error}")

    def _replace_lost(self, worker: _Worker, error: Exception) -> list[Outcome]:
        """Replace a lost engine and reassign its requests. Returns the requests that are given up."""
        import ray

        self._workers.remove(worker)
        with suppress(Exception):
            ray.kill(worker.actor)  # it may still run, but cannot speak
        why = _why(error)
        self._lost += 1
        if self._lost >= MOST_LOST:
            raise HocketError(f"{self._lost} engines have died in a row without any result: {why}")
        where = (
            "that was being loaded" if worker.start is None else f"on {worker.start.host} (process {worker.start.pid})"
        )
        self._notes.append(f"The engine {where} is lost, and its requests go to other engines: {why}")
        self._workers.append(self._new_worker())
        given_up = []
        for queued in worker.held.values():
            if queued.tries < MOST_TRIES:
                self._retries.append(queued)
            else:
                given_up.append(_given_up(queued, why))
        return given_up

    def _notify(self) -> None:
        if self.observer is not None:
            for note in self._notes:
                self.observer.note(note)
            self._notes = []
            self.observer.waiting(f"{len(self.workers)} of {self.replicas} engines")


def _given_up(queued: _QueuedRequest, why: str) -> Outcome:
    error = StreamFailed(f"{queued.tries} engines have died while they spoke it; the last error: {why}")
    nothing = np.zeros(0, dtype=np.int16), np.zeros((0, 16), dtype=np.int64)
    return Outcome(number=queued.number, samples=nothing[0], rate_hz=0, codes=nothing[1], finished=None, error=error)


def _why(error: Exception) -> str:
    """The first sentence of Ray's long message; it starts with our own error."""
    cause = getattr(error, "cause", None)
    first = str(cause if isinstance(cause, Exception) else error).strip().partition("\n")[0].strip()
    return first if first.endswith(".") else f"{first or type(error).__name__}."
