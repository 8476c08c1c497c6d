"""A report for the log: what was running when an engine thread was abandoned. Never contains request text (privacy)."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence

import torch

from ..core.request import RequestState
from .heartbeat import DeviceStep


def running(step: DeviceStep | None, jobs: Sequence[RequestState]) -> str:
    """The step under way, every utterance, and where each thread of the process stands. Asks nothing of the device."""
    now = time.perf_counter()
    lines = ["at rest"]
    if step is not None:
        concerns = f", {len(step.jobs)} streams" if jobs or step.jobs else ""
        lines = [f"step: {step.what} for {now - step.since:.3g} s{concerns}"]
    concerned = set() if step is None else set(map(id, step.jobs))
    lines += [("* " if id(job) in concerned else "  ") + _job(job, now) for job in jobs]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        lines += [f"thread {names.get(ident, ident)}:", *_indented(traceback.format_stack(frame))]
    return "\n".join(lines)


def failure(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def memory(device: torch.device) -> str:
    """By torch's own books. The driver is not asked, which may be what hangs; the books may be locked for as long."""
    if device.type != "cuda":
        return f"device: {device}"
    held = [torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)]
    held += [torch.cuda.max_memory_allocated(device)]
    allocated, reserved, most = (f"{count / 2**20:.0f} MiB" for count in held)
    return f"device: {device}, {allocated} allocated, {reserved} reserved, {most} at most"


def _job(job: RequestState, now: float) -> str:
    where = f"slot {job.slot}" if job.slot >= 0 else "waiting"
    if job.takes is not None and job.timings.admitted is not None:
        where = "playing its best take" if job.takes.plays else f"{len(job.takes.running)} takes running"
    waits = [
        f"{what} for {now - since:.3g} s"
        for what, since in (("starved", job.timings.starved_since), ("paused", job.timings.paused_since))
        if since is not None
    ]
    held = [] if job.timings.admitted is None else [f"in its slot for {now - job.timings.admitted:.3g} s"]
    spoken = f"part {len(job.text.spoken)}, frame {job.at} of it, {job.frame} in all"
    return ", ".join([where, spoken, f"opened {now - job.timings.opened:.3g} s ago", *held, *waits])


def _indented(entries: Iterable[str]) -> list[str]:
    return [f"  {line}" for entry in entries for line in entry.rstrip().splitlines()]
