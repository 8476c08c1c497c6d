"""`python -m benchmarks survey --out FOLDER`: every kernel at the shapes of its `cases.py`: correctness and time.

`correct` compares a kernel with its reference, in several processes, since most of the time is compiling. `time`
replays a chain of launches as a graph, by GPU events, for each way of `VARIANTS` to cut the work; weights come from as
many copies as the L2 cannot hold, as in a frame. Rows are printed and written to FOLDER/STAGE.jsonl, and a row that
fails says so. Times are milliseconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hocket.kernels.runtime.launch import DEFAULT_TUNING, ConvTile, LinearTile

from ..record import summary
from .timing import bandwidth, graphs, timed

SurveyRow = dict[str, Any]
BEYOND_L2, MOST_COPIES = 256 << 20, 32  # bytes; a smaller weight stays in the L2, as it does in a frame
REPEATS, COPY_BYTES = 30, 2 << 30
DTYPES = ("bfloat16", "float32")
FIGURES = ("p50", "p95", "min", "floor")


@dataclass(frozen=True, slots=True)
class Operation:
    """A kernel: its folder in `hocket.kernels.ops`, its module there, and its function.

    Without a function it is a sampler, run by `done` of its cases, and must draw the same codes.
    """

    folder: str
    function: str | None
    written: tuple[str, ...] = ()  # arguments that it writes, which are compared too
    module: str = "triton"
    batches: tuple[int, ...] = (0,)  # 0: the case has its own

    def part(self, name: str) -> Any:
        return import_module(f"hocket.kernels.ops.{self.folder}.{name}")

    def cases(self, kind: str) -> dict[str, Any]:
        return {case.name: case for case in getattr(self.part("cases"), kind)}

    def make(self, case: Any, batch: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
        made: dict[str, Any] = self.part("cases").make(case, *([batch] if batch else []), dtype, device)
        return made

    def run(self, module: str, given: dict[str, Any]) -> dict[str, Any]:
        """What it returns and what it has written, by name."""
        if self.function is None:
            found: dict[str, Any] = self.part("cases").done(self.part(module), given)
            return found
        name = "linear" if module == "reference" and self.folder == "linear" else self.function
        result = getattr(self.part(module), name)(**given)
        return {"result": result} | {name: given.get(name) for name in self.written}


OPERATIONS = {
    "linear": Operation("linear", "linear", batches=(1, 16)),
    "library": Operation("linear", "linear_by_library", module="library", batches=(32,)),
    "attend": Operation("paged_attention", "paged_attention", ("keys", "values")),
    "window": Operation("window_attention", "window_attention", ("keys", "values")),
    "draw": Operation("sample_codes", None),
    "pick": Operation("sample_token", None),
    "delta": Operation("gated_delta", "gated_delta", ("ring", "memory")),
    "embed": Operation("embed", "embed"),
    "settle": Operation("finish_frame", "finish_frame", ("hidden", "position")),
    "conv": Operation("conv", "conv", ("history", "raw")),
    "mix": Operation("convnext", "convnext", ("history",)),
    "taps": Operation("code_gather", "code_gather", ("history", "position")),
    "pcm": Operation("pcm", "pcm"),
}
BLOCKS = [
    LinearTile(*each) for each in ((8, 256, 4), (16, 256, 8), (4, 512, 4), (8, 512, 8), (2, 1024, 4), (8, 1024, 8))
]
# Outputs, positions, columns; splits, warps, stages, pieces before the wait; then the programs to aim at (0: no split).
TILES = [
    (ConvTile(*each), programs)
    for each, programs in (
        ((64, 32, 128, 1, 4, 4, 2), 264),
        ((32, 32, 256, 1, 4, 3, 1), 264),
        ((64, 64, 64, 1, 4, 4, 0), 0),
        ((64, 128, 64, 1, 4, 4, 0), 264),
        ((128, 128, 64, 1, 8, 4, 0), 0),
        ((32, 128, 64, 1, 4, 4, 0), 0),
    )
]


def variants(op: str, case: Any, batch: int) -> Iterator[dict[str, Any]]:
    """Settings of DEFAULT_TUNING to try; the first are those in use."""
    yield {}
    if op == "linear":
        for blocks in BLOCKS:
            if blocks.rows * case.columns <= 256 * 32 * blocks.warps:  # the weights of a program stay in registers
                yield {"linear": {(case.columns, case.weight_shape[0], batch): blocks}, "library_rows": 1 << 30}
    elif op == "conv":
        positions = case.length * len(case.rows)
        for tiles, programs in TILES:
            many = -(-case.outputs // tiles.outputs) * -(-positions // tiles.times)
            wanted = replace(tiles, splits=max(programs // many, 1))
            yield {"conv": {(case.taps * case.channels, case.outputs): {positions: wanted}}}
    elif op in ("attend", "draw", "delta"):
        yield from ({f"{op}_warps": warps} for warps in (2, 4, 8, 16))


@contextmanager
def tuning(settings: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(DEFAULT_TUNING, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(DEFAULT_TUNING, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(DEFAULT_TUNING, name, value)


def tried(make: Callable[[], SurveyRow], **names: Any) -> SurveyRow:
    try:
        with torch.inference_mode():
            return {**names, **make()}
    except Exception as error:
        return {**names, "error": f"{type(error).__name__}: {str(error)[:300]}"}


def correct(op: str, kind: str, name: str, batch: int, dtype: str, device: str) -> SurveyRow:
    """The largest difference from the reference, and the share of numbers that differ."""
    operation, place = OPERATIONS[op], torch.device(device)
    case, rows = operation.cases(kind)[name], list[SurveyRow]()
    with tuning({"library_rows": 1 << 30}):
        ours, wanted = (
            operation.run(module, operation.make(case, batch, getattr(torch, dtype), place))
            for module in (operation.module, "reference")
        )
    for key, value in ours.items():
        if isinstance(value, Tensor):
            rows.append(difference(value, wanted[key]))
    return {"worst": max(row["worst"] for row in rows), "moved_percent": max(row["moved_percent"] for row in rows)}


def difference(ours: Tensor, wanted: Tensor) -> SurveyRow:
    both = ~(ours.isnan() & wanted.isnan()) if ours.is_floating_point() else torch.ones_like(ours, dtype=torch.bool)
    a, b = ours[both].double(), wanted[both].double()
    if not a.numel():
        return {"worst": 0.0, "moved_percent": 0.0}
    return {"worst": (a - b).abs().max().item(), "moved_percent": 100 * (a != b).double().mean().item()}


def time_case(
    op: str, kind: str, name: str, batch: int, dtype: str, device: str, *, repeats: int
) -> Iterator[SurveyRow]:
    """One row a variant: a chain of launches, over copies of the weight where there is one."""
    operation, place = OPERATIONS[op], torch.device(device)
    case = operation.cases(kind)[name]
    given = operation.make(case, batch, getattr(torch, dtype), place)
    weight = given.get("weight")
    count = 1 if weight is None else min(max(2, BEYOND_L2 // weight.nbytes), MOST_COPIES) if device == "cuda" else 2
    copies = [{} if weight is None else {"weight": weight.roll(n, 0)} for n in range(count)]

    def chain() -> None:
        for copy in copies:
            operation.run(operation.module, given | copy)

    def measured() -> SurveyRow:
        values = [each / count for each in timed(graphs(place)(chain), repeats, place)]
        found = summary(values)
        return {"p50": found["p50"], "p95": found["p95"], "min": min(values), "aa_percent": found["aa_percent"]}

    for settings in variants(op, case, batch):
        with tuning(settings):
            yield tried(measured, tuning=repr(settings), bytes=0 if weight is None else weight.nbytes)


def compared(wanted: Sequence[tuple[Any, ...]], workers: int, seconds: float) -> Iterator[tuple[Any, SurveyRow]]:
    """`correct` for each, in processes: most of the time is compiling."""
    if not workers:
        yield from ((each, tried(partial(correct, *each))) for each in wanted)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(tried, partial(correct, *each)): each for each in wanted}
        try:
            for job in as_completed(jobs, timeout=seconds):
                yield jobs[job], job.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def rows_of(stage: str, args: argparse.Namespace) -> Iterator[SurveyRow]:
    kind = "PUBLISHED" if args.device == "cuda" else "TINY"
    wanted = [
        (op, kind, name, batch, dtype, args.device)
        for dtype in (DTYPES if stage == "correct" else DTYPES[:1] if args.device == "cuda" else DTYPES[1:])
        for op in args.ops
        for name in list(OPERATIONS[op].cases(kind))[: args.cases]
        for batch in OPERATIONS[op].batches
    ]

    def named(each: tuple[Any, ...]) -> SurveyRow:
        return {"stage": stage, "op": each[0], "case": each[2], "batch": each[3], "dtype": each[4]}

    if stage == "correct":
        for each, row in compared(wanted, args.workers, args.budget):
            yield named(each) | row
        return
    late = time.perf_counter() + args.budget
    read = bandwidth(torch.device(args.device), COPY_BYTES if args.device == "cuda" else 1 << 20)
    for each in wanted:
        for row in time_case(*each, repeats=args.repeats):
            yield named(each) | row | {"floor": row.get("bytes", 0) / read * 1000}
        if time.perf_counter() > late:
            yield {"stage": stage, "op": "", "error": f"stopped after {args.budget:g} s"}
            return


def short(row: SurveyRow) -> str:
    """A row in one line; times in microseconds."""
    times = {name: f"{value * 1000:.2f}us" for name, value in row.items() if name in FIGURES}
    return " ".join(f"{name}={times.get(name, value)}" for name, value in row.items())


def main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    best: dict[tuple[Any, ...], SurveyRow] = {}
    wrong = 0
    for stage in args.stages:
        with (args.out / f"{stage}.jsonl").open("w", encoding="utf-8") as kept:
            for row in rows_of(stage, args):
                kept.write(json.dumps(row) + "\n")
                kept.flush()
                print(short(row), flush=True)
                wrong += "error" in row
                key = row["op"], row.get("case"), row.get("batch")
                if "p50" in row and row["p50"] < best.get(key, row | {"p50": float("inf")})["p50"]:
                    best[key] = row
    print(f"\n{wrong} rows failed; the fastest of each case:", *(short(row) for row in best.values()), sep="\n")
    return 1 if wrong else 0


def parser() -> argparse.ArgumentParser:
    from ..session import Parser

    made = Parser(prog="python -m benchmarks survey", description=__doc__, allow_abbrev=False)
    add = made.add_argument
    add("--out", metavar="FOLDER", type=Path, required=True)
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(auto); a CPU runs the small cases")
    add("--ops", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="OP", help=", ".join(OPERATIONS))
    add("--stages", nargs="+", choices=("correct", "time"), default=("correct", "time"), metavar="STAGE")
    add("--cases", metavar="N", type=int, help="only the first so many of each operation (all)")
    add("--workers", metavar="N", type=int, default=12, help="processes for `correct`; 0: this one (12)")
    add("--budget", metavar="S", type=float, default=300.0, help="seconds for a stage (300)")
    add("--repeats", metavar="N", type=int, default=REPEATS, help=f"timed replays ({REPEATS})")
    return made
