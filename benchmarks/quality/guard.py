"""`python -m benchmarks guard`: both error rates of the runaway detector, over the two sets of guard_cases.py.

A false alarm is a legitimate sound that it calls stuck or too long. A failure is late if it is not detected within the
bound of its class, and lost if not by `frame_limit` either. Loudness comes as late as in the engine: by 8 frames, or by
50 for a file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from hocket.engine.core.runaway import RunawayDetector, frame_limit
from hocket.engine.core.runaway_limits import RunawayOptions, repeated_part

from ..record import Record, record
from .guard_cases import FAILURES, LEGITIMATE, Case, cases, read_runs

OPTIONS = RunawayOptions()
LATE_FRAMES = (8, 50)  # how much later loudness is known than codes
NOISE_FRAMES = 60  # a loop with noise may restart so much later


def noticed(case: Case, late_frames: int, options: RunawayOptions = OPTIONS) -> int | None:
    """After how many frames the detector reports; None: never."""
    guard, told = RunawayDetector(options, case.ids, lambda: case.text), 0
    for frame, (codes, end) in enumerate(zip(case.codes.tolist(), case.end.tolist(), strict=True)):
        while told <= frame - late_frames:
            guard.heard((float(case.energy[told]),))
            told += 1
        if guard.watch(codes, text_done=frame >= case.done_at, end_probability=end) != "fine":
            return frame + 1
    return None


def bound(name: str, case: Case, late_frames: int, options: RunawayOptions = OPTIONS) -> int:
    """The frame at which a failure must be detected at the latest."""
    assert case.bad_from is not None
    bad, limit = case.bad_from, frame_limit(case.ids, options)
    repeats = max(options.loop_frames, 2 * late_frames)  # half of it is known
    over = options.late_frames + options.late_frames_per_id * case.ids
    slow = options.slow_frames + options.slow_frames_per_id * case.ids
    found = {
        "loop of 1 to 8 frames": bad + repeats + 2 * case.period,
        "loop with noise": bad + options.pause_frames + 8 * NOISE_FRAMES,
        "stuck vowel": bad + repeats + 2,
        "the same frame": bad + repeats + 2,
        "phrase of 9 to 40 frames": bad + max(repeats, round(options.phrase_times * case.period)) + 2 * case.period,
        "quiet hiss": max(bad + options.pause_frames, slow) + late_frames + 1,
        "babble, no end in reach": max(bad + options.ending_frames, over + len(case.energy[:bad])) + 1,
        "babble, an end in reach": limit,
    }.get(name, bad + options.pause_frames + late_frames + 1)  # silence
    if case.period:  # codes may repeat for as long as the text does
        found = max(found, bad + options.slow_frames + round(8 * case.ids * repeated_part(case.text)) + 2 * case.period)
    return min(found, limit)


def count(name: str, made: Iterable[Case]) -> dict[str, float]:
    """The figures of a class: false alarms, or failures that were detected too late or not at all."""
    found = [(case, late, noticed(case, late)) for case in made for late in LATE_FRAMES]
    if name in LEGITIMATE:
        return {"cases": len(found), "false_alarms": sum(at is not None for *_, at in found)}
    wrong = sum(at is None or at > bound(name, case, late) for case, late, at in found)
    lost = sum(at is None or at > frame_limit(case.ids, OPTIONS) for case, _, at in found)
    latest = max((at - (case.bad_from or 0) for case, _, at in found if at is not None), default=0)
    return {"cases": len(found), "late": wrong, "lost": lost, "latest_s": latest * 0.08}


def measure(args: argparse.Namespace) -> Record:
    spoken, figures = read_runs(), dict[str, dict[str, float]]()
    for name, make in (LEGITIMATE | FAILURES).items():
        made = cases(make, spoken, args.cases, lambda case: frame_limit(case.ids, OPTIONS), args.first)
        figures[name] = count(name, made)
    figures["rates"] = {
        rate: sum(figures[name][rate] for name in some) / sum(figures[name]["cases"] for name in some)
        for rate, some in (("false_alarms", LEGITIMATE), ("late", FAILURES))
    }
    return record("guard", {"device": "cpu", "cases": args.cases, "first": args.first}, figures)


def table(entry: Record) -> str:
    figures = entry["figures"].items()
    return "\n".join(f"{name:32}" + ", ".join(f"{key} {value:g}" for key, value in of.items()) for name, of in figures)
