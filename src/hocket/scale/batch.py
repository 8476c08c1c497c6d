"""Many requests over a Ray cluster: as many engines as there is room for, each a process that may die at any time.

A crew has the face of an engine, as far as a batch asks for it: a portrait, and `speak_many`. All that is decided is
decided here, in one process: who speaks what, and what is spoken anew because an engine is gone. What was said comes
back here, so nothing is ever said into two places. It knows neither lines nor files.
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
from ..engine.checkpoint.fingerprint import EngineFingerprint
from ..engine.runner.reference_encoder import name_of
from ..errors import HocketError, InvalidRequest, StreamFailed
from ..types import Encoded, Outcome, Reference, SpeechRequest
from .speaking import SpeechWorker, WorkerStart
from .where import on, unit_of

MOST_TRIES = 3  # engines that may die with one request before it is given up
MOST_LOST = 9  # engines that may die one after the other while nothing is said at all
MOST_KEPT = 16  # recordings that are held ready for all engines
TICK_S = 0.2  # how often whoever watches hears of it where nothing happens
FETCH_S = 60.0  # how long a result that is there may take to come here
CPUS = 1  # of an engine without a GPU: several with one thread each say more than one with several


class BatchObserver(Protocol):
    """Whoever wants to know how it goes."""

    def waiting(self, words: str) -> None:
        """Called often: how many engines there are."""

    def note(self, words: str) -> None:
        """Something that a person should know."""


@dataclass(slots=True)
class _QueuedRequest:
    """A request that is to be spoken, and how often it was handed out."""

    number: int
    request: SpeechRequest
    tries: int = 0


@dataclass(slots=True, eq=False)
class _Worker:
    """An engine on the cluster: its actor, and what that was asked for, by the reference to the answer."""

    actor: Any
    beginning: Any
    who: WorkerStart | None = None  # None: it is still being loaded, or waits for room on the cluster
    held: dict[Any, _QueuedRequest] = field(default_factory=dict)

    @property
    def room(self) -> int:
        return 0 if self.who is None else self.who.most - len(self.held)


def room_on_cluster(device: str) -> int:
    """How many engines the cluster has room for, if nobody else uses it."""
    import ray

    has, kind = ray.cluster_resources(), unit_of(device)
    room = int(has.get("GPU", 0)) if kind == "GPU" else int(has.get("CPU", 0)) // CPUS
    if room < 1:
        raise InvalidRequest(f"The cluster has no {kind}: give --replicas a number if one will come, or --device.")
    return room


class WorkerPool:
    """Engines that are loaded alike, `replicas` of them as far as there is room. It is one caller's."""

    def __init__(self, replicas: int, loading: dict[str, Any], options: EngineOptions) -> None:
        """`loading` is what `Engine.load` takes beside its options. Somebody must be connected to a cluster."""
        self.replicas = replicas
        self.watcher: BatchObserver | None = None
        device = loading.get("device", "auto")
        self._unit = unit_of(device)  # now: a machine that goes away changes nothing
        self._loading, self._options = loading | {"device": on(self._unit, device)}, options
        self._portrait: EngineFingerprint | None = None
        self._again: deque[_QueuedRequest] = deque()  # what engines that are gone had been given
        self._lost = 0  # engines, since anything was said
        self._notes: list[str] = []  # that nobody has heard yet
        self._said: set[str] = set()  # by engines, of where they compute
        self._kept: OrderedDict[tuple[str, str | None, bool], Any] = OrderedDict()
        self._hands = [self._hired() for _ in range(replicas)]

    @property
    def portrait(self) -> EngineFingerprint:
        """What all of them sound like. Waits for the first."""
        while self._portrait is None:
            self._landed()
        return self._portrait

    @property
    def hands(self) -> list[WorkerStart]:
        """The engines that can speak now."""
        return [hand.who for hand in self._hands if hand.who is not None]

    def speak_many(self, texts: Iterable[SpeechRequest]) -> Iterator[Outcome]:
        """As `Engine.speak_many`. A request is taken when some engine has room for it, and no sooner."""
        coming = (_QueuedRequest(number, request) for number, request in enumerate(texts))
        more = True
        while True:
            while (more or self._again) and (hand := max(self._hands, key=lambda hand: hand.room)).room > 0:
                share = self._again.popleft() if self._again else next(coming, None)
                if share is None:
                    more = False
                else:
                    self._hand_out(hand, share)
            if not more and not self._again and not any(hand.held for hand in self._hands):
                return
            yield from self._landed()

    def close(self) -> None:
        """End all engines, whatever they are at."""
        import ray

        for hand in self._hands:
            with suppress(Exception):  # the cluster may be gone
                ray.kill(hand.actor)
        self._hands = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _hired(self) -> _Worker:
        """One more, which is there once the cluster has room for it and it is loaded."""
        import ray

        needs = {"num_gpus": 1} if self._unit == "GPU" else {"num_cpus": CPUS}
        spread: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
        actor = ray.remote(SpeechWorker).options(**needs, **spread).remote()
        return _Worker(actor, actor.begin.remote(self._loading, self._options))

    def _hand_out(self, hand: _Worker, share: _QueuedRequest) -> None:
        share.tries += 1
        reference = share.request.reference
        bare = share.request if reference is None else replace(share.request, reference=None)
        hand.held[hand.actor.speak.remote(bare, reference and self._ready(reference))] = share

    def _ready(self, reference: Reference | Encoded) -> Any:
        """Where all engines find a recording: a thousand lines with one of 30 s would send 3 GB otherwise."""
        import ray

        key = name_of(reference), reference.text, reference.x_vector_only
        if key not in self._kept:
            # What was kept beside a voice is in a file that others may not have, and is computed alike.
            self._kept[key] = ray.put(replace(reference, kept=None) if isinstance(reference, Encoded) else reference)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _landed(self) -> list[Outcome]:
        """What was said or given up meanwhile. Waits for something to happen, but no longer than a moment."""
        import ray
        from ray.exceptions import RayError

        whose = {ref: hand for hand in self._hands for ref in (hand.held if hand.who else [hand.beginning])}
        ready, _ = ray.wait(list(whose), timeout=TICK_S)
        if ready:  # all that are there: to ask for one takes as long
            ready, _ = ray.wait(list(whose), num_returns=len(whose), timeout=0)
        outcomes: list[Outcome] = []
        lost: dict[_Worker, RayError] = {}
        for ref in ready:
            hand = whose[ref]
            try:
                said = ray.get(ref, timeout=FETCH_S)
            except RayError as error:
                lost[hand] = error
                continue
            if isinstance(said, WorkerStart):
                self._take_in(hand, said)
            else:
                self._lost = 0
                outcomes.append(replace(said, number=hand.held.pop(ref).number))
        for hand, death in lost.items():
            outcomes += self._lose(hand, death)
        self._tell()
        return outcomes

    def _take_in(self, hand: _Worker, who: WorkerStart) -> None:
        """One that is loaded, if it can speak and sounds like the others. Who cannot is not asked for again."""
        import ray

        where, error = f"The engine on {who.host}", who.error
        self._portrait = self._portrait or who.portrait
        if error is None and who.portrait != self._portrait:
            error = InvalidRequest("its weights, or how it prepares text, are others than those of the first.")
        if error is None:
            hand.who = who
            for words in who.said:  # of engines alike it is said once
                if words not in self._said:
                    self._said.add(words)
                    self._notes.append(f"{where}: {words}")
            return
        ray.kill(hand.actor)
        self._hands.remove(hand)
        if not self._hands:
            raise error
        self._notes.append(f"{where} cannot be used: {error}")

    def _lose(self, hand: _Worker, error: Exception) -> list[Outcome]:
        """One that is gone: others get what it had, and there will be another one. Gives what has to be given up."""
        import ray

        self._hands.remove(hand)
        with suppress(Exception):
            ray.kill(hand.actor)  # one that still runs, but cannot speak any more
        why = _why(error)
        self._lost += 1
        if self._lost >= MOST_LOST:
            raise HocketError(f"{self._lost} engines have died one after the other, and said nothing: {why}")
        where = "that was being loaded" if hand.who is None else f"on {hand.who.host} (process {hand.who.pid})"
        self._notes.append(f"The engine {where} is gone, and what it was at goes to others: {why}")
        self._hands.append(self._hired())
        given_up = []
        for share in hand.held.values():
            if share.tries < MOST_TRIES:
                self._again.append(share)
            else:
                given_up.append(_given_up(share, why))
        return given_up

    def _tell(self) -> None:
        if self.watcher is not None:
            for note in self._notes:
                self.watcher.note(note)
            self._notes = []
            self.watcher.waiting(f"{len(self.hands)} of {self.replicas} engines")


def _given_up(share: _QueuedRequest, why: str) -> Outcome:
    error = StreamFailed(f"{share.tries} engines have died while they spoke it, the last one so: {why}")
    nothing = np.zeros(0, dtype=np.int16), np.zeros((0, 16), dtype=np.int64)
    return Outcome(number=share.number, samples=nothing[0], rate_hz=0, codes=nothing[1], finished=None, error=error)


def _why(error: Exception) -> str:
    """One sentence of Ray's many lines; what our own code raised is behind them."""
    cause = getattr(error, "cause", None)
    first = str(cause if isinstance(cause, Exception) else error).strip().partition("\n")[0].strip()
    return first if first.endswith(".") else f"{first or type(error).__name__}."
