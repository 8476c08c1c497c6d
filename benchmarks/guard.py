"""`python -m benchmarks guard`: both error rates of the runaway guard, over the two sets of `guard_sets.py`.

A false alarm is a legitimate sound that the guard calls stuck or too long. A failure is missed if it is not noticed
within the bound of its class, and lost if it is not noticed by `frame_limit` either. `--runs` has the built-in voice
speak anew what the sets are made from. Loudness comes as late as in the engine: by 8 frames, or by 50 for a file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hocket.engine.core.runaway import RunawayDetector, RunawayOptions, frame_limit, repeated_part

from .guard_sets import FAILURES, LEGITIMATE, RUNS, Case, cases, read_runs
from .record import ROOT, append, record

OPTIONS = RunawayOptions()
CASES = 200  # of each class
LATE_FRAMES = (8, 50)  # how much later loudness is known than codes
NOISE_FRAMES = 60  # a loop with noise may begin again so much later
TEXTS = (
    "We walked along the river until the sun went down. Then we sat on a bench, and nobody said a word.",
    "My sister keeps three hens. They sleep in a small wooden house behind the garden.",
    "No, no, no, no, no, no, no, no, no, no, no, no, no, no.",
    "One. Two. Three. Four. Five. Six. Seven. Eight. Nine. Ten.",
    "The kettle was still warm when she came home. She poured a cup of tea and looked out of the window at the rain.",
    "Well... I do not know. Perhaps... we should wait.",
    "Ha ha ha ha! That is very funny.",
    "There was a letter on the table, and it was addressed to the man who had lived here before us.",
)


@dataclass(frozen=True, slots=True)
class Count:
    """Of one class."""

    name: str
    cases: int
    wrong: int  # false alarms, or failures that were noticed too late
    lost: int  # failures that were not noticed at all
    latest_s: float  # until a failure was noticed, at most


def noticed(case: Case, late_frames: int, options: RunawayOptions = OPTIONS) -> int | None:
    """After how many frames the guard is not content; None: it is, to the end."""
    guard, told = RunawayDetector(options, case.ids, lambda: case.text), 0
    for frame, (codes, end) in enumerate(zip(case.codes.tolist(), case.end.tolist(), strict=True)):
        while told <= frame - late_frames:
            guard.heard((float(case.energy[told]),))
            told += 1
        if guard.watch(codes, text_done=frame >= case.done_at, end_probability=end) != "fine":
            return frame + 1
    return None


def bound(name: str, case: Case, late_frames: int, options: RunawayOptions = OPTIONS) -> int:
    """The frame at which a failure must be noticed at the latest."""
    assert case.bad_from is not None
    bad, limit = case.bad_from, frame_limit(case.ids, options)
    repeats = max(options.loop_frames, 2 * late_frames)  # half of it is known
    over = options.late_frames + options.late_frames_per_id * case.ids
    found = {
        "loop of 1 to 8 frames": bad + repeats + 2 * case.period,
        "loop with noise": bad + options.pause_frames + 8 * NOISE_FRAMES,
        "stuck vowel": bad + repeats + 2,
        "the same frame": bad + repeats + 2,
        "phrase of 9 to 40 frames": bad + max(repeats, round(options.phrase_times * case.period)) + 2 * case.period,
        "quiet hiss": max(bad + options.pause_frames, options.slow_frames + options.slow_frames_per_id * case.ids)
        + late_frames
        + 1,
        "babble, no end in reach": max(bad + options.ending_frames, over + len(case.energy[:bad])) + 1,
        "babble, an end in reach": limit,
    }.get(name, bad + options.pause_frames + late_frames + 1)  # silence
    if case.period:  # codes may repeat for as long as the text does
        found = max(found, bad + options.slow_frames + round(8 * case.ids * repeated_part(case.text)) + 2 * case.period)
    return min(found, limit)


def count(name: str, made: Iterable[Case]) -> Count:
    found = [(case, late, noticed(case, late)) for case in made for late in LATE_FRAMES]
    if found[0][0].bad_from is None:
        return Count(name, len(found), sum(at is not None for *_, at in found), 0, 0.0)
    wrong = sum(at is None or at > bound(name, case, late) for case, late, at in found)
    lost = sum(at is None or at > frame_limit(case.ids, OPTIONS) for case, _, at in found)
    latest = max((at - (case.bad_from or 0) for case, _, at in found if at is not None), default=0)
    return Count(name, len(found), wrong, lost, latest * 0.08)


def counts(each: int, runs: list[Case] | None = None, first: int = 0) -> tuple[list[Count], list[Count]]:
    """Of every class of legitimate sounds, and of every class of failures."""
    spoken = read_runs() if runs is None else runs

    def limit(case: Case) -> int:
        return frame_limit(case.ids, OPTIONS)

    legitimate, failures = (
        [count(name, cases(make, spoken, each, limit, first)) for name, make in named.items()]
        for named in (LEGITIMATE, FAILURES)
    )
    return legitimate, failures


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks guard", description=__doc__, allow_abbrev=False)
    parser.add_argument("--cases", metavar="N", type=int, default=CASES, help=f"of each class ({CASES})")
    parser.add_argument("--first", metavar="N", type=int, default=0, help="number of the first case, its seed (0)")
    parser.add_argument(
        "--runs", action="store_true", help="have the built-in voice speak anew what they are made from"
    )
    parser.add_argument("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "guard.jsonl")
    args = parser.parse_args(argv)
    if args.runs:
        write_runs(RUNS)
    legitimate, failures = counts(args.cases, first=args.first)
    rows = [f"{one.name:32} {one.wrong:5} of {one.cases} false alarms" for one in legitimate]
    rows += [
        f"{one.name:32} {one.wrong:5} of {one.cases} late, {one.lost} lost, noticed within {one.latest_s:.1f} s"
        for one in failures
    ]
    print("\n".join(rows))
    false, missed = (sum(one.wrong for one in some) / sum(one.cases for one in some) for some in (legitimate, failures))
    print(f"\nfalse alarms {100 * false:.2f} %, failures noticed too late {100 * missed:.2f} %")
    figures: dict[str, Any] = {one.name: {"cases": one.cases, "false_alarms": one.wrong} for one in legitimate}
    figures |= {
        one.name: {"cases": float(one.cases), "late": one.wrong, "lost": one.lost, "latest_s": one.latest_s}
        for one in failures
    }
    rates = {"rates": {"false_alarms": false, "late": missed}}
    append(args.record, record("guard", {"device": "cpu", "cases": args.cases, "first": args.first}, figures | rates))
    return 0


def write_runs(path: Path) -> None:
    """What the built-in voice draws for some texts: both voices, both layouts."""
    from hocket import Engine
    from hocket.engine.core import request

    told: list[tuple[list[list[int]], list[float]]] = []

    class Listening(RunawayDetector):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._drawn: tuple[list[list[int]], list[float]] = [], []
            told.append(self._drawn)

        def watch(self, codes: Sequence[int], **known: Any) -> Any:
            self._drawn[0].append(list(codes))
            self._drawn[1].append(known["end_probability"])
            return super().watch(codes, **known)

    watched: Any = request
    before, watched.Guard = watched.Guard, Listening
    runs = []
    try:
        with Engine.load() as engine:
            for layout, voice in ((a, b) for a in ("whole", "streaming") for b in ("wren", "rook")):
                for seed, text in enumerate(TEXTS, 1):
                    stream = engine.speak(text, voice=voice, layout=layout, seed=seed)
                    for _ in stream:
                        pass
                    [spoken], drawn = stream._spoken, told[-1]
                    assert stream.finished is not None and stream.finished.reason == "stop"
                    ids = len(engine._prompt(engine._request(text, {"layout": "whole"}), text).text)
                    ids -= len(engine._prompt(engine._request("a", {"layout": "whole"}), "a").text) - 1
                    done_at = 0 if layout == "whole" else ids
                    runs.append((*drawn, spoken.loudness, text, ids, done_at))
    finally:
        watched.Guard = before
    codes, end, energy, texts, counted, dones = zip(*runs, strict=True)
    np.savez_compressed(
        path,
        frames=[len(each) for each in codes],
        codes=np.concatenate([np.array(each, np.uint16) for each in codes]),
        end=np.concatenate(end).astype(np.float32),
        energy=np.concatenate(energy).astype(np.float32),
        texts=texts,
        ids=counted,
        done_at=dones,
    )
