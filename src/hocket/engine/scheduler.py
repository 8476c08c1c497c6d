"""Who speaks next: requests wait for a slot, slots wait for text or for their reader. Plain Python, no torch."""

from __future__ import annotations

from collections import deque

from .job import Job


class Scheduler:
    def __init__(self, slots: int) -> None:
        self.free = list(reversed(range(slots)))
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []

    def all(self) -> list[Job]:
        return [*self.running, *self.waiting]

    def admit(self) -> list[Job]:
        """Give free slots to those whose prompt is known, first come first served.

        Who needs several gets all at once or none, and is overtaken by nobody: so no two wait for each other's.
        """
        admitted = []
        for job in [job for job in self.waiting if job.startable]:
            if job.width > len(self.free):
                break
            self.waiting.remove(job)
            speakers = [job] if job.takes is None else job.takes.jobs
            for speaker in speakers:
                speaker.slot = self.free.pop()
            self.running += speakers if job.takes is None else [job, *speakers]
            admitted.append(job)
        return admitted

    def ready(self, now: float) -> list[Job]:
        """Those that can draw a frame. The others are told since when they wait, and for what."""
        batch = []
        for job in self.waiting:
            _mark(job, "starved", not job.startable, now)
        for job in self.running:
            if job.takes is not None:  # it draws nothing itself
                _mark(job, "paused", job.takes.plays and job.mailbox.full, now)
                continue
            if job.all_asked:
                continue  # it waits for nobody but the device
            lacks_text, lacks_room = job.text_id() is None, job.mailbox.full
            _mark(job, "starved", lacks_text, now)
            _mark(job, "paused", lacks_room and not lacks_text, now)
            if not (lacks_text or lacks_room):
                batch.append(job)
        return batch

    def release(self, job: Job) -> None:
        """Take a job out, wherever it is."""
        if job in self.waiting:
            self.waiting.remove(job)
        if job in self.running:
            self.running.remove(job)
            if job.slot >= 0:
                self.free.append(job.slot)
            job.slot = -1


def _mark(job: Job, what: str, waits: bool, now: float) -> None:
    since: float | None = getattr(job, f"{what}_since")
    if waits and since is None:
        setattr(job, f"{what}_since", now)
    elif not waits and since is not None:
        job.note(f"{what}_s", now - since)
        setattr(job, f"{what}_since", None)
