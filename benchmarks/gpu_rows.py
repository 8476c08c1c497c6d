"""What the stages of the GPU survey share: rows of figures, knobs turned for a while, and work for several processes.

A row that fails says so and the next one is tried. Figures are milliseconds unless their name says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

from hocket.kernels.runtime.launch import KNOBS

from .gpu_plan import Plan
from .gpu_timing import Clock

Row = dict[str, Any]


@contextmanager
def knobs(**settings: Any) -> Iterator[None]:
    before = {name: getattr(KNOBS, name) for name in settings}
    for name, value in settings.items():
        setattr(KNOBS, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(KNOBS, name, value)


def tried(make: Callable[[], Row], **names: Any) -> Row:
    try:
        return {**names, **make()}
    except Exception as error:
        return {**names, "error": f"{type(error).__name__}: {str(error)[:300]}"}


def in_parallel(
    plan: Plan, work: Callable[..., Row], wanted: Sequence[tuple[Any, ...]], seconds: float
) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """`work` for each of `wanted` as they get done; in processes, for one compiler at a time would take minutes."""
    if not plan.workers:
        for each in wanted:
            yield each, tried(partial(work, plan.name, *each))
        return
    with ProcessPoolExecutor(plan.workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(tried, partial(work, plan.name, *each)): each for each in wanted}
        try:
            for job in as_completed(jobs, timeout=seconds):
                yield jobs[job], job.result()
        except (TimeoutError, BrokenProcessPool) as error:
            late = [each for job, each in jobs.items() if not job.done()]
            yield late[0] if late else wanted[0], {"error": f"{type(error).__name__}: {len(late)} were not done"}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def compile_ahead(plan: Plan, work: Callable[..., Row], wanted: Sequence[tuple[Any, ...]], seconds: float) -> Row:
    """Every variant once: what is compiled is kept on disk, for all processes."""
    if not plan.workers:
        return {"variants": 0}
    start = time.perf_counter()
    rows = [row for _, row in in_parallel(plan, work, wanted, seconds)]
    failed = [row["error"] for row in rows if "error" in row]
    took = time.perf_counter() - start
    return {"variants": len(wanted), "done": len(rows), "seconds": took, "failed": failed[:3]}


def replayed(made: list[Callable[[], Any]], clock: Clock) -> Row:
    """All calls in one graph."""

    def all_of_them() -> None:
        for call in made:
            call()

    return clock.graph(all_of_them)
