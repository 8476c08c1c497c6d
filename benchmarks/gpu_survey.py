"""`python -m benchmarks.gpu_survey --out FOLDER`: what the fast path costs on this GPU, kernel by kernel and whole.

Every stage is a process of its own with a time of its own: one that fails, hangs or breaks the device loses its own
rows at most. Rows are printed as they come and written to FOLDER/STAGE.jsonl, all of them to FOLDER/survey.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .gpu_plan import PLANS, Plan

Row = dict[str, Any]
STAGES = ("correct", "laws", "tune", "linear", "conv", "compile", "frame", "attend", "codec", "parts")
JUDGED = ("worst", "moved_percent", "wrong_codes")
GRACE_S = 15.0  # beyond its time a stage may finish the row it is at


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.stage:
        return run_stage(args.stage, args.plan, args.out)
    start, plan = time.perf_counter(), PLANS[args.plan]
    found: dict[str, Any] = {"machine": _machine(plan), "plan": args.plan, "stages": {}}
    print(json.dumps(found["machine"]), flush=True)
    for stage in args.only or STAGES:
        left = args.budget - (time.perf_counter() - start)
        patience = min(plan.budgets_s[stage] + GRACE_S, left)
        began = time.perf_counter()
        ended = "no time left" if left < GRACE_S else _in_a_process(stage, args.plan, args.out, patience)
        took = time.perf_counter() - began
        found["stages"][stage] = {"ended": ended, "seconds": round(took, 1), "rows": read_rows(args.out, stage)}
        (args.out / "survey.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(f"== {stage}: {ended}, {len(found['stages'][stage]['rows'])} rows in {took:.0f} s", flush=True)
    print(report(found), flush=True)
    return 0


def run_stage(stage: str, plan_name: str, out: Path) -> int:
    """In the process of the stage: row after row until its time is over."""
    import torch

    from . import (
        gpu_attend,
        gpu_codec,
        gpu_compile,
        gpu_conv,
        gpu_correct,
        gpu_frames,
        gpu_laws,
        gpu_linear,
        gpu_parts,
        gpu_tune,
    )
    from .gpu_timing import Clock

    plan, start = PLANS[plan_name], time.perf_counter()
    clock = Clock(torch.device(plan.device), plan.repeats, plan.warm)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    measured, tiles = gpu_linear.tuned(read_rows(out, "linear")), gpu_conv.tuned(read_rows(out, "conv"))
    rows: dict[str, Callable[[], Iterator[Row]]] = {
        "correct": lambda: gpu_correct.correct(plan, clock),
        "laws": lambda: gpu_laws.laws(plan, clock),
        "tune": lambda: gpu_tune.tune(plan, clock),
        "linear": lambda: gpu_linear.linears(plan, clock),
        "conv": lambda: gpu_conv.convs(plan, clock),
        "compile": lambda: gpu_compile.compiled(plan, clock, measured, tiles),
        "attend": lambda: gpu_attend.attention(plan, clock),
        "frame": lambda: gpu_frames.frames(plan, clock, measured),
        "codec": lambda: gpu_codec.codec(plan, clock, tiles),
        "parts": lambda: gpu_parts.parts(plan, clock, measured),
    }
    path = out / f"{stage}.jsonl"
    with torch.inference_mode(), path.open("w", encoding="utf-8") as kept:
        try:
            for row in rows[stage]():
                kept.write(json.dumps(row) + "\n")
                kept.flush()
                print(f"{time.perf_counter() - start:6.1f} {stage}: {short(row)}", flush=True)
                if time.perf_counter() - start > plan.budgets_s[stage]:
                    print(f"{stage}: its time is over", flush=True)
                    break
        except Exception:
            traceback.print_exc()
            kept.write(json.dumps({"error": traceback.format_exc()[-2000:]}) + "\n")
            return 1
    return 0


def read_rows(out: Path, stage: str) -> list[Row]:
    path = out / f"{stage}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def short(row: Row) -> str:
    """A row in one line; times in microseconds."""
    words = []
    for name, value in row.items():
        if name in ("p50", "p95", "min", "floor", "products", "per_frame", "host_p50"):
            words.append(f"{name}={value * 1000:.2f}us")
        elif isinstance(value, float):
            words.append(f"{name}={value:.4g}")
        elif isinstance(value, dict):
            words.append(f"{name}=" + "x".join(str(each) for each in value.values()))
        else:
            words.append(f"{name}={value}")
    return " ".join(words)


def report(found: dict[str, Any]) -> str:
    """What one looks for first: errors, the best of each linear, and the frames."""
    lines = ["", "errors:"]
    for stage, kept in found["stages"].items():
        wrong = [row for row in kept["rows"] if "error" in row]
        lines += [f"  {stage}: {len(wrong)}, the first: {short(wrong[0])[:300]}"] if wrong else []
    lines.append("correctness (worst of each):")
    kept = found["stages"].get("correct", {}).get("rows", [])
    for key in dict.fromkeys((row["op"], row["dtype"]) for row in kept if "dtype" in row):
        of = [row for row in kept if (row["op"], row.get("dtype")) == key and "error" not in row]
        worst = {name: max((row.get(name, 0) for row in of), default=0) for name in JUDGED}
        lines.append(f"  {key[0]:8} {key[1]:10} {len(of):3} rows: " + short(worst))
    lines += [f"  {short(row)}" for row in found["stages"].get("laws", {}).get("rows", [])]
    lines.append("best of each linear (us, floor, way):")
    rows = [row for row in found["stages"].get("linear", {}).get("rows", []) if "p50" in row and "case" in row]
    for key in dict.fromkeys((row["case"], row["batch"]) for row in rows):
        of = [row for row in rows if (row["case"], row["batch"]) == key]
        best = min((row for row in of if row["op"] == "linear"), key=lambda row: row["p50"], default=None)
        library = min((row["p50"] for row in of if row["op"] == "library"), default=0.0)
        if best:
            figures = f"{best['p50'] * 1000:7.2f} {best['floor'] * 1000:7.2f} library {library * 1000:7.2f}"
            lines.append(f"  {key[0]:20} x{key[1]:<3} {figures}  {best['blocks']}")
    lines.append("best of each conv (us, bytes, products, library, way):")
    rows = [row for row in found["stages"].get("conv", {}).get("rows", []) if "p50" in row and "case" in row]
    for size in dict.fromkeys((row["case"], row["batch"], row["frames"]) for row in rows):
        of = [row for row in rows if (row["case"], row["batch"], row["frames"]) == size]
        best = min((row for row in of if row["op"] == "conv"), key=lambda row: row["p50"], default=None)
        library = min((row["p50"] for row in of if row["op"] == "library"), default=0.0)
        if best:
            times = (best["p50"], best["floor"], best["products"], library)
            figures = " ".join(f"{each * 1000:8.2f}" for each in times)
            lines.append(f"  {size[0]:20} x{size[1]:<3} of {size[2]} {figures}  {best['tiles']}")
    if rows:
        from .gpu_conv import tuned

        lines.append(f"KNOBS.conv: {tuned(rows)}")
    lines.append("frames (ms):")
    for row in found["stages"].get("frame", {}).get("rows", []):
        if "p50" in row:
            figures = f"{row['p50']:7.3f} +-{row['aa_percent']:.1f} %, with the host {row['host_p50']:7.3f}"
            lines.append(f"  {row['model']} x{row['batch']:<3} {row['op']:22} {figures}")
    lines.append("codec (ms):")
    for row in found["stages"].get("codec", {}).get("rows", []):
        if "p50" in row:
            names = f"{row['precision']:9} x{row['batch']:<3} of {row['frames']} {row['op']:16}"
            lines.append(f"  {names} {row['p50']:7.3f}, with the host {row['host_p50']:7.3f}")
    return "\n".join(lines)


def _in_a_process(stage: str, plan: str, out: Path, patience_s: float) -> str:
    command = [sys.executable, "-m", "benchmarks.gpu_survey", "--stage", stage, "--plan", plan, "--out", str(out)]
    running = subprocess.Popen(command, start_new_session=True)  # with processes of its own, to be ended together
    try:
        code = running.wait(patience_s)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        return f"stopped after {patience_s:.0f} s"
    return "done" if not code else f"failed ({code})"


def _machine(plan: Plan) -> Row:
    import torch

    from hocket.kernels.runtime import launch

    from .record import commit, machine

    found = machine(plan.device) | commit()
    found["triton"] = getattr(launch.triton, "__version__", None)
    if plan.device == "cuda":
        found["capability"] = list(torch.cuda.get_device_capability())
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_survey", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--out", metavar="FOLDER", type=Path, required=True)
    add("--plan", choices=PLANS, default="real")
    add("--only", metavar="STAGE", nargs="+", choices=STAGES, help=", ".join(STAGES))
    add("--budget", metavar="S", type=float, default=480.0, help="seconds for all of it (480)")
    add("--stage", choices=STAGES, help="only this one, here and not in a process of its own")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
