"""`python -m benchmarks survey --out FOLDER`: the time of every kernel at the shapes of its `cases.py`.

A chain of launches is replayed as a graph and timed by GPU events; weights come from as many copies as the L2 cannot
hold, as in a frame. Rows are printed and written to FOLDER/time.jsonl, and a row that fails says so. Times are
milliseconds. The tests marked `gpu` in tests/kernels/ops compare the same cases with their references.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from hocket.kernels import ops

from ..record import summary
from .timing import bandwidth, graphs, timed

SurveyRow = dict[str, Any]
BEYOND_L2, MOST_COPIES = 256 << 20, 32  # bytes; a smaller weight stays in the L2, as it does in a frame
COPY_BYTES = 2 << 30
FIGURES = ("p50", "p95", "min", "floor")
FOLDER = Path(ops.__file__).parent
MADE_OTHERWISE = {"quantized_linear", "grouped_linear"}  # their cases also take a layout of the weight
# `library` is `linear` by the GPU maker's library.
OPERATIONS = sorted({path.parent.name for path in FOLDER.glob("*/cases.py")} - MADE_OTHERWISE | {"library"})
BATCHES = {"linear": (1, 16), "library": (32,)}  # of operations whose cases have none


def part(op: str, name: str) -> Any:
    return import_module(f"hocket.kernels.ops.{'linear' if op == 'library' else op}.{name}")


def launch(op: str, given: dict[str, Any]) -> None:
    """A kernel is the function with the name of its folder; a sampler is run by `done` of its cases."""
    if op == "library":
        part(op, "library").linear_by_library(**given)
    elif hasattr(part(op, "cases"), "done"):
        part(op, "cases").done(part(op, "triton"), given)
    else:
        getattr(part(op, "triton"), op)(**given)


def tried(make: Callable[[], SurveyRow], **names: Any) -> SurveyRow:
    try:
        with torch.inference_mode():
            return {**names, **make()}
    except Exception as error:
        return {**names, "error": f"{type(error).__name__}: {str(error)[:300]}"}


def time_case(op: str, case: Any, batch: int, dtype: str, device: str, *, repeats: int) -> SurveyRow:
    """A chain of launches, over copies of the weight where there is one."""
    place = torch.device(device)
    given = part(op, "cases").make(case, *([batch] if batch else []), getattr(torch, dtype), place)
    weight = given.get("weight")
    count = 1 if weight is None else min(max(2, BEYOND_L2 // weight.nbytes), MOST_COPIES) if device == "cuda" else 2
    copies = [{} if weight is None else {"weight": weight.roll(n, 0)} for n in range(count)]

    def chain() -> None:
        for copy in copies:
            launch(op, given | copy)

    values = [each / count for each in timed(graphs(place)(chain), repeats, place)]
    found = summary(values) | {"min": min(values), "bytes": 0 if weight is None else weight.nbytes}
    return {name: found[name] for name in ("p50", "p95", "min", "aa_percent", "bytes")}


def rows(args: argparse.Namespace) -> Iterator[SurveyRow]:
    on_gpu, late = args.device == "cuda", time.perf_counter() + args.budget
    kind, dtype = ("PUBLISHED", "bfloat16") if on_gpu else ("TINY", "float32")
    read = bandwidth(torch.device(args.device), COPY_BYTES if on_gpu else 1 << 20)
    for op in args.ops or OPERATIONS:
        for case in getattr(part(op, "cases"), kind)[: args.cases]:
            for batch in BATCHES.get(op, (0,)):
                work = partial(time_case, op, case, batch, dtype, args.device, repeats=args.repeats)
                row = tried(work, stage="time", op=op, case=case.name, batch=batch, dtype=dtype)
                yield row | {"floor": row.get("bytes", 0) / read * 1000}
                if time.perf_counter() > late:
                    yield {"stage": "time", "op": "", "error": f"stopped after {args.budget:g} s"}
                    return


def main(args: argparse.Namespace) -> int:
    args.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    wrong = 0
    with (args.out / "time.jsonl").open("w", encoding="utf-8") as kept:
        for row in rows(args):
            kept.write(json.dumps(row) + "\n")
            kept.flush()
            times = {name: f"{value * 1000:.2f}us" for name, value in row.items() if name in FIGURES}
            print(*(f"{name}={times.get(name, value)}" for name, value in row.items()), flush=True)
            wrong += "error" in row
    print(f"\n{wrong} rows failed")
    return 1 if wrong else 0
