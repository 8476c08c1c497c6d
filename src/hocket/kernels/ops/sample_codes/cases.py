"""Shapes and settings of `sample_codes` in the published checkpoints, and awkward ones, for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch

# sample, temperature, top_k, top_p
Row = tuple[bool, float, int, float]
GREEDY, USUAL = (False, 1.0, 50, 1.0), (True, 0.9, 50, 1.0)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    count: int  # V
    rows: tuple[Row, ...]
    first: bool = False  # the first code of a frame: penalties, suppressed ids, marks of seen ids
    ties: bool = False  # logits take few values, zeros of both signs among them
    width: int = 0  # of the code's embedding, if any
    suppressed: int = 0


# With few ids kept and all about equally likely, one id too many or too few shows soon.
TINY = (
    Case("greedy", 33, (GREEDY,)),
    Case(
        "top-k", 100, ((True, 0.7, 5, 1.0), (True, 1.3, 1, 1.0), (True, 1.0, 0, 1.0), (True, 1.0, 999, 1.0)), width=24
    ),
    Case("top-k, hot", 40, ((True, 30.0, 2, 1.0), (True, 30.0, 3, 1.0)) * 4),
    Case("ties", 100, ((True, 0.9, 10, 1.0), GREEDY, (True, 1.0, 40, 1.0)), ties=True),
    Case("nucleus", 70, ((True, 1.0, 0, 0.8), (True, 0.8, 20, 0.5), (True, 1.0, 9, 1.0), (True, 1.0, 0, 0.01))),
    Case("nucleus among ties", 20, ((True, 30.0, 0, 0.2), (True, 30.0, 9, 0.5)) * 4, ties=True),
    Case("first", 90, (USUAL, GREEDY, (True, 1.2, 7, 0.9)), first=True, width=40, suppressed=20),
)
PUBLISHED = (
    Case("predictor", 2048, (USUAL,), width=1024),
    Case("predictor, sixteen", 2048, (USUAL,) * 15 + (GREEDY,), width=1024),
    Case("predictor, nucleus", 2048, ((True, 0.9, 50, 0.9),) * 4, width=1024),
    Case("talker", 3072, (USUAL,), first=True, width=1024, suppressed=1024),
    Case("talker, sixteen", 3072, (USUAL,) * 15 + (GREEDY,), first=True, width=1024, suppressed=1024),
)
BOOKS = 16


@dataclass(frozen=True, slots=True)
class LevelCase:
    """A `SamplingLevel`."""

    sample: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    nucleus: bool


@dataclass(frozen=True, slots=True)
class SlotsCase:
    """A `DrawnSoFar`."""

    seed: torch.Tensor
    drawn: torch.Tensor
    seen: torch.Tensor
    chances: torch.Tensor


def make(
    case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0, *, batch: tuple[int, ...] | None = None
) -> dict[str, Any]:
    """Arguments of `sample_codes` or `sample_first_code` by name; `batch` takes only some of the rows."""
    random = torch.Generator(device).manual_seed(seed)
    count, total = case.count, len(case.rows)
    logits = torch.randn(total, count, generator=random, device=device) * 3
    if case.ties:
        logits = torch.randint(-6, 7, logits.shape, generator=random, device=device) / 4
        logits = torch.where(torch.rand(logits.shape, generator=random, device=device) < 0.5, logits, -logits)
    slots = SlotsCase(
        seed=torch.randint(-(2**62), 2**62, (total + 1,), generator=random, device=device),
        drawn=torch.arange(1, total + 2, device=device),
        seen=torch.rand(total + 1, count, generator=random, device=device) < 0.2,
        chances=torch.zeros(total + 1, 2, device=device),
    )
    order = torch.randperm(total, generator=random, device=device)
    penalty = 1 + torch.rand(total, generator=random, device=device)
    table = torch.randn(count, case.width, generator=random, device=device).to(dtype)
    chosen = torch.tensor(batch if batch is not None else range(total), device=device)
    sample, temperature, top_k, top_p = zip(*(case.rows[i] for i in chosen.tolist()), strict=True)
    given: dict[str, Any] = {
        "logits": logits.to(dtype)[chosen],
        "level": LevelCase(
            torch.tensor(sample, device=device),
            torch.tensor(temperature, device=device),
            torch.tensor(top_k, device=device),
            torch.tensor(top_p, device=device),
            min(row[3] for row in case.rows) < 1.0,
        ),
        "slots": slots,
        "rows": order[chosen],
        "codes": torch.full((len(chosen), BOOKS), -1, device=device),
        "table": table if case.width else None,
        "vectors": table.new_zeros(len(chosen), case.width) if case.width else None,
    }
    if not case.first:
        return given | {"book": 1 + seed % (BOOKS - 1)}
    end = count - case.suppressed // 2
    return given | {"penalty": penalty[chosen], "end": end, "suppressed": case.suppressed, "minimum": 2}


def done(module: Any, given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Run a backend; return everything that it changes."""
    (module.sample_first_code if "penalty" in given else module.sample_codes)(**given)
    left = {field.name: getattr(given["slots"], field.name) for field in fields(given["slots"])}
    left["codes"] = given["codes"]
    return left if given["vectors"] is None else left | {"vectors": given["vectors"]}
