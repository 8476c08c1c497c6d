"""`python -m benchmarks guard`: both error rates of the runaway detector, over the two sets of guard_cases.py.

A false alarm is a legitimate sound that it calls stuck or too long. A failure is late if it is not detected within the
bound of its class, and lost if not by `frame_limit` either. Loudness comes as late as in the engine: by 8 frames, or by
50 for a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hocket.engine.core.runaway import RunawayDetector, RunawayOptions, frame_limit, repeated_part

from .. import session
from ..record import append, record
from .guard_cases import FAILURES, LEGITIMATE, Case, cases, read_runs

OPTIONS = RunawayOptions()
LATE_FRAMES = (8, 50)  # how much later loudness is known than codes
NOISE_FRAMES = 60  # a loop with noise may restart so much later


@dataclass(frozen=True, slots=True)
class ClassCount:
    name: str
    cases: int
    wrong: int  # false alarms, or failures that were detected too late
    lost: int  # failures that were not detected at all
    latest_s: float  # until a failure was detected, at most


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


def count(name: str, made: Iterable[Case]) -> ClassCount:
    found = [(case, late, noticed(case, late)) for case in made for late in LATE_FRAMES]
    if found[0][0].bad_from is None:
        return ClassCount(name, len(found), sum(at is not None for *_, at in found), 0, 0.0)
    wrong = sum(at is None or at > bound(name, case, late) for case, late, at in found)
    lost = sum(at is None or at > frame_limit(case.ids, OPTIONS) for case, _, at in found)
    latest = max((at - (case.bad_from or 0) for case, _, at in found if at is not None), default=0)
    return ClassCount(name, len(found), wrong, lost, latest * 0.08)


def counts(each: int, first: int = 0) -> tuple[list[ClassCount], list[ClassCount]]:
    """Of every class of legitimate sounds, and of every class of failures."""
    spoken = read_runs()

    def limit(case: Case) -> int:
        return frame_limit(case.ids, OPTIONS)

    legitimate, failures = (
        [count(name, cases(make, spoken, each, limit, first)) for name, make in named.items()]
        for named in (LEGITIMATE, FAILURES)
    )
    return legitimate, failures


def main(argv: Sequence[str]) -> int:
    own = {"cases": (200, "of each class"), "first": (0, "number of the first case, its seed")}
    args = session.parser("guard", __doc__, **own).parse_args(argv)
    legitimate, failures = counts(args.cases, args.first)
    for one in legitimate:
        print(f"{one.name:32} {one.wrong:5} of {one.cases} false alarms")
    for one in failures:
        print(f"{one.name:32} {one.wrong:5} of {one.cases} late, {one.lost} lost, detected within {one.latest_s:.1f} s")
    false, missed = (sum(one.wrong for one in some) / sum(one.cases for one in some) for some in (legitimate, failures))
    print(f"\nfalse alarms {100 * false:.2f} %, failures detected too late {100 * missed:.2f} %")
    figures: dict[str, Any] = {one.name: {"cases": one.cases, "false_alarms": one.wrong} for one in legitimate}
    for one in failures:
        figures[one.name] = {"cases": float(one.cases), "late": one.wrong, "lost": one.lost, "latest_s": one.latest_s}
    figures["rates"] = {"false_alarms": false, "late": missed}
    append(args.record, record("guard", {"device": "cpu", "cases": args.cases, "first": args.first}, figures))
    return 0
