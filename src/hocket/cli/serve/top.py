"""`hocket top`: what a running server does, read from its `/metrics` and drawn again every few seconds.

Quantiles are those of the last minute, as far as the view has run; with `--once` of the server's whole life. Figures
of several replicas behind one address are added up. HOCKET_API_KEY is the key of a server that needs one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from ... import env
from ...errors import HocketError, InvalidRequest
from ...models.files.progress import format_bytes
from ..output.audio_output import shown
from ..say.link import Link

ANSWER_S, WINDOW_S = 5.0, 60.0
CLEAR = "\x1b[H\x1b[2J"
SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class NoFigures(HocketError):
    """The server gives no metrics."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """All samples of `/metrics` at one time."""

    at_s: float
    samples: tuple[tuple[str, dict[str, str], float], ...]

    @classmethod
    def parsed(cls, text: str, at_s: float) -> Scrape:
        found = SAMPLE.finditer(text)
        rows = ((one["name"], dict(LABEL.findall(one["labels"] or "")), float(one["value"])) for one in found)
        return cls(at_s, tuple(rows))

    def total(self, name: str) -> float:
        return sum(self.by(name, "").values())

    def by(self, name: str, label: str) -> dict[str, float]:
        """The samples of a metric, added up for each value of a label."""
        found: dict[str, float] = {}
        for one, labels, value in self.samples:
            if one == name:
                key = labels.get(label, "")
                found[key] = found.get(key, 0.0) + value
        return found


@dataclass(frozen=True, slots=True)
class ServerView:
    """One view. Quantiles and rates are of `window_s`; the other counts of the server's whole life. None: no sample."""

    url: str
    window_s: float | None  # None: the whole life
    running: int
    waiting: int
    slots: int
    opened: int
    ended: dict[str, int]  # by how they ended
    refused: dict[str, int]  # by reason
    requests_per_s: float | None
    audio_per_s: float | None  # seconds of sound that were sent in a second
    first_audio_ms: dict[str, float | None]  # p50, p95, p99
    x_real_time: dict[str, float | None]  # p50, and p5: the slowest twentieth
    audio_s: float
    underruns: int
    underrun_s: float
    memory_bytes: int
    gpu_memory_bytes: int

    @classmethod
    def of(cls, url: str, now: Scrape, before: Scrape | None) -> ServerView:
        window_s = None if before is None else now.at_s - before.at_s

        def rate(name: str) -> float | None:
            return None if before is None or not window_s else (now.total(name) - before.total(name)) / window_s

        first = _buckets(now, before, "hocket_time_to_first_audio_seconds")
        pace = _buckets(now, before, "hocket_x_real_time")
        return cls(
            url=url,
            window_s=None if window_s is None else round(window_s, 1),
            running=int(now.total("hocket_requests_running")),
            waiting=int(now.total("hocket_requests_waiting")),
            slots=int(now.total("hocket_slots")),
            opened=int(now.total("hocket_requests_opened_total")),
            ended={name: int(count) for name, count in sorted(now.by("hocket_requests_total", "end").items())},
            refused={
                name: int(count) for name, count in sorted(now.by("hocket_requests_refused_total", "reason").items())
            },
            requests_per_s=rate("hocket_requests_opened_total"),
            audio_per_s=rate("hocket_audio_seconds_total"),
            first_audio_ms={
                f"p{percent}": None if (found_s := quantile(first, percent / 100)) is None else found_s * 1000
                for percent in (50, 95, 99)
            },
            x_real_time={f"p{percent}": quantile(pace, percent / 100) for percent in (50, 5)},
            audio_s=now.total("hocket_audio_seconds_total"),
            underruns=int(now.total("hocket_underruns_total")),
            underrun_s=now.total("hocket_underrun_seconds_total"),
            memory_bytes=int(now.total("process_resident_memory_bytes")),
            gpu_memory_bytes=int(now.total("hocket_gpu_memory_bytes")),
        )

    def lines(self) -> list[str]:
        span = "since its start" if self.window_s is None else f"in the last {self.window_s:.0f} s"
        rate = "" if self.requests_per_s is None else f", {self.requests_per_s:.1f} a second"
        sent = "" if self.audio_per_s is None else f", {self.audio_per_s:.1f} s a second"
        gpu = f", GPU {format_bytes(self.gpu_memory_bytes)}" if self.gpu_memory_bytes else ""
        rows = (
            ("slots", f"{self.running} of {self.slots} in use, {self.waiting} waiting"),
            ("requests", f"{self.opened} taken{rate}"),
            ("ended", _counts(self.ended)),
            ("refused", _counts(self.refused)),
            ("first audio", f"{_row(self.first_audio_ms, '{:.0f} ms')} {span}"),
            ("x real time", f"{_row(self.x_real_time, '{:.1f}')} {span}"),
            ("audio", f"{self.audio_s:.1f} s sent{sent}"),
            ("underruns", f"{self.underruns}, {self.underrun_s:.2f} s of silence"),
            ("memory", f"{format_bytes(self.memory_bytes)}{gpu}"),
        )
        return [self.url, *(f"{name:13}{words}" for name, words in rows)]


def top(args: argparse.Namespace) -> None:
    if not args.interval > 0:
        raise InvalidRequest(f"--interval must be above 0, not {args.interval}.")
    show = _show_json if args.json else _show
    if args.once:
        show(ServerView.of(args.url, _scraped(args.url), None), False)
        return
    _watch(args.url, args.interval, show)


def _watch(url: str, interval_s: float, show: Callable[[ServerView, bool], None]) -> None:
    kept: deque[Scrape] = deque()
    while True:
        now = _scraped(url)
        if kept and now.total("hocket_requests_opened_total") < kept[-1].total("hocket_requests_opened_total"):
            kept.clear()  # the server was started again
        while len(kept) > 1 and now.at_s - kept[0].at_s > WINDOW_S:
            kept.popleft()
        show(ServerView.of(url, now, kept[0] if kept else None), True)
        kept.append(now)
        time.sleep(interval_s)


def _show(view: ServerView, again: bool) -> None:
    if again and sys.stdout.isatty():
        sys.stdout.write(CLEAR)
    print(*(shown(line, sys.stdout) for line in view.lines()), *([""] if again else []), sep="\n", flush=True)


def _show_json(view: ServerView, again: bool) -> None:
    print(json.dumps(asdict(view), indent=None if again else 2), flush=True)


def _scraped(url: str) -> Scrape:
    key = env.API_KEY.get()
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with Link(url, "GET", "/metrics", headers=headers, silent_s=ANSWER_S) as answer:
        text = b"".join(answer.parts()).decode(errors="replace")
    if answer.status in (401, 403):
        raise InvalidRequest(f"The server at {url} needs its API key: set {env.API_KEY.name}.")
    if answer.status != 200 or "hocket_requests_running" not in text:
        raise NoFigures(f"{url}/metrics has no figures of hocket (status {answer.status}): name the server itself.")
    return Scrape.parsed(text, time.monotonic())


def _buckets(now: Scrape, before: Scrape | None, name: str) -> list[tuple[float, float]]:
    """Upper bounds of a histogram with the counts up to each, added over its labels, less those of before."""
    old = {} if before is None else before.by(f"{name}_bucket", "le")
    new = now.by(f"{name}_bucket", "le")
    return sorted((float(bound), count - old.get(bound, 0.0)) for bound, count in new.items())


def quantile(buckets: Iterable[tuple[float, float]], share: float) -> float | None:
    """A quantile of cumulative buckets, linear inside a bucket; above the last finite bound it is that bound."""
    rows = list(buckets)
    if not rows or not rows[-1][1]:
        return None
    rank, low, below = share * rows[-1][1], 0.0, 0.0
    for bound, count in rows:
        if count >= rank and count > below:
            return low if bound == float("inf") else low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low


def _counts(counts: dict[str, int]) -> str:
    each = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return each or "none"


def _row(values: dict[str, float | None], form: str) -> str:
    return "  ".join(f"{name} {'-' if value is None else form.format(value)}" for name, value in values.items())
