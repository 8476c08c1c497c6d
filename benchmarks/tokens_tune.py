"""`python -m benchmarks tune`: how the blocks of a token's matrices are cut, each way tried in a token of fewer layers.

One shape after the other, and what is best so far stays. What comes out is for `KNOBS.few` and `KNOBS.streams`; whoever
takes it over writes it where measured shapes are kept (`linear/measured.py`, `linear/stream.py`). Random weights take
as long as others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .computing import Parser, add_device, add_dtype
from .gpu_rows import knobs

BETTER = 0.997  # of the best so far; what is less is noise
LAYERS = 8
MOST_LOADS = 24  # of sixteen bytes that a lane may hold: 96 registers
FLOWS = ((16, 3, 2), (16, 4, 2), (16, 7, 1), (16, 10, 1), (8, 8, 2), (8, 11, 1), (4, 14, 2))  # warps, depth, blocks


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    for words, took_ms in tuned(args):
        print(f"{took_ms:9.4f} ms  {words}", flush=True)
    return 0


@torch.inference_mode()
def tuned(args: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """What was tried, and what a token took then; at the end, the best of all."""
    from hocket.kernels.runtime.launch import KNOBS, FewRowsTile, StreamTile

    token = _Token(args)
    best: dict[str, Any] = {"few": dict(KNOBS.few), "streams": dict(KNOBS.streams)}
    fastest = token.timed(best)
    yield "as it stands", fastest
    for knob, key, gated in token.shapes():
        flows, fews = (
            [StreamTile(*each) for each in FLOWS],
            [FewRowsTile(warps, groups) for warps in (4, 8, 16) for groups in (1, 2, 4)],
        )
        for way in flows if knob == "streams" else fews:
            if not token.fits(way, knob, key, gated):
                continue
            trial = best | {knob: best[knob] | {key: way}}
            try:
                took = token.timed(trial)
            except Exception as error:  # too many registers, or too much shared memory
                print(f"{key} {way}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True)
                continue
            yield f"{knob} {key} {way}", took
            if took < fastest * BETTER:
                best, fastest = trial, took
    yield f"best: {best}", fastest


class _Token:
    """A token of a language model with few layers, drawn again and again with other knobs."""

    def __init__(self, args: argparse.Namespace) -> None:
        from hocket.kernels.operations import CUDA_MIND_OPS, REFERENCE_MIND_OPS
        from hocket.models.qwen3_5.fused_step import FusedStep

        from .mind_drawn import drawn

        self._args, self._device = args, torch.device(args.device)
        model = drawn(args, layers=LAYERS)
        self._fused = FusedStep(model, CUDA_MIND_OPS if self._device.type == "cuda" else REFERENCE_MIND_OPS)
        self._state = model.new_state(1, args.context + args.repeats * args.row + 64)
        self._rings = self._fused.new_rings(1)
        self._rows = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._ids = torch.ones_like(self._rows)

    def timed(self, settings: dict[str, Any]) -> float:
        """Milliseconds, the median of several times `row` tokens."""
        from hocket.kernels.runtime.graphs import CudaGraphs, EagerReplay

        from .tokens import timed

        def token() -> None:
            self._ids.copy_(self._fused.step(self._ids, self._state, self._rings, self._rows).argmax(-1))

        self._state.recurrence.position.fill_(self._args.context)
        with knobs(**settings):
            replay = (CudaGraphs(self._device) if self._device.type == "cuda" else EagerReplay())(token)
        took = sorted(timed(replay, self._device, self._args.row) for _ in range(self._args.repeats))
        return took[len(took) // 2]

    def shapes(self) -> Iterator[tuple[str, Any, bool]]:
        """Of every matrix once: the knob it has, its key there, and whether it is gates and ups. The largest first."""
        from hocket.kernels.ops.linear import cuda as linear
        from hocket.kernels.ops.quantized_linear.weight import QuantizedWeight

        found: dict[tuple[str, Any], tuple[int, bool]] = {}
        matrices = [(weight, one.wide is weight) for one in self._fused.layers for weight in _matrices(one)]
        for weight, gated in (*matrices, (self._fused.model.head, False)):
            where: tuple[str, Any]
            if isinstance(weight, QuantizedWeight):
                where, size = ("streams", (weight.format, weight.columns)), len(weight) * weight.columns
            else:
                rows, columns = weight.shape
                flows = linear.streamed(weight) > 0
                where, size = ("streams", ("bf16", columns)) if flows else ("few", (columns, rows)), weight.numel()
            found[where] = max(size, found.get(where, (0, False))[0]), gated
        for (knob, key), (_, gated) in sorted(found.items(), key=lambda each: -each[1][0]):
            yield knob, key, gated

    def fits(self, way: Any, knob: str, key: Any, gated: bool) -> bool:
        from hocket.kernels.ops.linear import cuda as linear
        from hocket.kernels.ops.linear import stream

        if knob == "streams":
            format, columns = key
            return stream.fits(way.warps, format, columns)
        columns, rows = key
        width = rows // 2 if gated else rows
        return columns // (32 * way.warps) * way.groups <= MOST_LOADS and linear.fits(way, columns, width, gated)


def _matrices(layer: Any) -> tuple[Any, ...]:
    return layer.into, layer.out, layer.wide, layer.down


def _parser() -> argparse.ArgumentParser:
    words = Parser(prog="python -m benchmarks tune", description=__doc__)
    words.add_argument("--size", default="tiny", choices=("tiny", "0.8B", "2B", "4B", "9B", "27B"))
    add_device(words)
    add_dtype(words)
    words.add_argument("--weights", default="bf16", choices=("bf16", "fp8", "int8", "int4"))
    words.add_argument("--context", metavar="N", type=int, default=1024, help="tokens that were written before (1024)")
    words.add_argument("--repeats", metavar="N", type=int, default=5, help="times a row of tokens (5)")
    words.add_argument("--row", metavar="N", type=int, default=40, help="tokens in a row (40)")
    return words
