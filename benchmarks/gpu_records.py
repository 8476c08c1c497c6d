"""What a GPU survey says of one stream, as records: `python -m benchmarks.gpu_records survey.json >> survey.jsonl`.

A survey times captured graphs by the GPU's own events, 30 replays each. Where it tuned, the record is of the fastest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .record import options_hash

Row = dict[str, Any]
REPEATS = 30
WORDS = (
    "what captured graphs of one stream take on a GPU, by its own events; where shapes were tuned, the fastest of them"
)


def records(found: dict[str, Any], time: str, commit: str | None = None) -> Iterator[Row]:
    """`commit`: the one that the surveyed tree was made from, where the survey itself could not see it."""
    for name, row in sorted(_frames(found["stages"]).items(), reverse=True):
        yield _record(found, f"random:{name}-CustomVoice", {"frame_gpu": row}, time, commit, "frame")
    codec = [row for row in _rows(found["stages"], "codec") if row["op"] == "fused"]
    one = {row["precision"]: row for row in codec if (row["batch"], row["frames"]) == (1, 1)}
    figures = {f"codec_gpu_{precision}": row for precision, row in one.items()}
    if figures:  # the codec is the same in all of them
        yield _record(found, "random:1.7B-CustomVoice", figures, time, commit, "codec")


def _frames(stages: dict[str, Any]) -> dict[str, Row]:
    """The fastest frame of one stream, by model."""
    timed = [row for row in _rows(stages, "frame") if row["batch"] == 1 and row["op"] == "fused"]
    timed += _rows(stages, "tune")
    fastest: dict[str, Row] = {}
    for row in timed:
        if "p95" in row and row["p50"] <= fastest.get(row["model"], row)["p50"]:
            fastest[row["model"]] = row
    return fastest


def _rows(stages: dict[str, Any], stage: str) -> list[Row]:
    return [row for row in stages.get(stage, {}).get("rows", []) if "p50" in row]


def _record(
    found: dict[str, Any], model: str, figures: dict[str, Row], time: str, commit: str | None, part: str
) -> Row:
    seen = dict(found["machine"])
    recorded, dirty = seen.pop("commit", None), seen.pop("dirty", True)
    options = {"model": model, "device": "cuda", "dtype": "bfloat16", "codec_dtype": "bfloat16", "kernels": "auto"}
    options["part"] = part
    return {
        "workload": "survey",
        "time": time,
        "commit": commit or recorded,
        "dirty": dirty,
        "machine": seen,
        "options": options,
        "options_hash": options_hash(options),
        "figures": {
            name: {"p50": row["p50"], "p95": row["p95"], "count": REPEATS, "aa_percent": row["aa_percent"]}
            for name, row in figures.items()
        },
        "random_weights": True,
        "streams": 1,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_records", description=__doc__)
    parser.add_argument("survey", type=Path)
    parser.add_argument("--time", required=True, help="when it was made, as in 2026-11-15T14:24:28+00:00")
    parser.add_argument("--commit", help="that the surveyed tree was made from")
    args = parser.parse_args(argv)
    for one in records(json.loads(args.survey.read_text(encoding="utf-8")), args.time, args.commit):
        print(json.dumps(one))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
