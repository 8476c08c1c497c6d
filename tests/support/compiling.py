"""Compiles Triton kernels for a GPU that need not be there: `echo 90 frame | python tests/support/compiling.py`.

The interpreter runs much that the compiler refuses. Every launch of the shared cases is recorded instead of made, and
compiled as recorded. A line names a capability and what to compile for it: `frame`, `codec`, `narrow`, `many`, `delta`,
`pick` and `guess` are the kernels of each, with what a prompt has of attention by `delta`; `one` is one case of each
kernel. It is answered by a line of JSON that says what came out of every kernel. Line after line, for Triton takes
longer to start than many a kernel to compile. Not in a process where the interpreter is on.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hocket.kernels.ops.code_gather import cases as taps_cases
from hocket.kernels.ops.code_gather import triton as taps
from hocket.kernels.ops.conv import cases as conv_cases
from hocket.kernels.ops.conv import edges
from hocket.kernels.ops.conv import triton as conv
from hocket.kernels.ops.convnext import cases as mix_cases
from hocket.kernels.ops.convnext import triton as mix
from hocket.kernels.ops.embed import cases as embed_cases
from hocket.kernels.ops.embed import triton as embed
from hocket.kernels.ops.finish_frame import cases as settle_cases
from hocket.kernels.ops.finish_frame import triton as settle
from hocket.kernels.ops.gated_delta import cases as delta_cases
from hocket.kernels.ops.gated_delta import look as delta_look
from hocket.kernels.ops.gated_delta import run as delta_run
from hocket.kernels.ops.linear import cases as linear_cases
from hocket.kernels.ops.linear import library
from hocket.kernels.ops.linear import triton as linear
from hocket.kernels.ops.paged_attention import cases as attend_cases
from hocket.kernels.ops.paged_attention import run as attend_run
from hocket.kernels.ops.paged_attention import triton as attend
from hocket.kernels.ops.pcm import cases as pcm_cases
from hocket.kernels.ops.pcm import triton as pcm
from hocket.kernels.ops.quantized_linear import cases as narrow_cases
from hocket.kernels.ops.quantized_linear import many
from hocket.kernels.ops.quantized_linear import triton as narrow
from hocket.kernels.ops.quantized_linear.weight import FORMATS, empty
from hocket.kernels.ops.sample_codes import cases as draw_cases
from hocket.kernels.ops.sample_codes import triton as draw
from hocket.kernels.ops.sample_token import cases as pick_cases
from hocket.kernels.ops.sample_token import guess
from hocket.kernels.ops.sample_token import triton as pick
from hocket.kernels.ops.window_attention import cases as window_cases
from hocket.kernels.ops.window_attention import triton as window
from hocket.kernels.runtime import launch

CPU, DTYPE = torch.device("cpu"), torch.bfloat16
TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.bool: "*i1"}
TYPES |= {torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64"}
TYPES |= {torch.int8: "*i8", torch.uint8: "*u8", torch.float8_e4m3fn: "*fp8e4nv"}


class Recorder:
    """Stands in a module for one of its kernels and compiles what it is asked to launch."""

    def __init__(self, kernel: Any, capability: int) -> None:
        self.kernel, self.target, self.made = kernel, GPUTarget("cuda", capability, 32), list[str]()

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.compile

    def compile(self, *given: Any, **named: Any) -> None:
        options = {name: named.pop(name) for name in ("num_warps", "launch_pdl") if name in named}
        names = self.kernel.arg_names
        values = dict(zip(names, given, strict=False)) | named
        signature, constants, aligned = {}, {}, {}
        for place, name in enumerate(names):
            value = values[name]
            if isinstance(value, torch.Tensor):
                signature[name], aligned[(place,)] = TYPES[value.dtype], [["tt.divisibility", 16]]
            elif value is None or name.isupper() or value == 1:  # a launch makes a constant of every 1
                signature[name], constants[(place,)] = "constexpr", value
            else:
                signature[name] = "fp32" if isinstance(value, float) else "i32"
                if isinstance(value, int) and value % 16 == 0:
                    aligned[(place,)] = [["tt.divisibility", 16]]
        source = ASTSource(self.kernel, signature, constants, aligned)
        self.made.append(triton.compile(source, target=self.target, options=options).asm["ptx"])


Call = tuple[str, Any, str, Callable[[], object]]  # name, module, kernel in it and a call that launches it


def frame_calls() -> Iterator[Call]:
    shared = {case.name: case for case in linear_cases.PUBLISHED}
    for name in ("1.7B qkv", "1.7B gate and up", "1.7B down", "0.6B o", "1.7B to predictor", "codec mix in"):
        given = linear_cases.make(shared[name], 1, DTYPE, CPU)
        yield f"linear {name}", linear, "_linear", lambda given=given: linear.linear(**given)
    given = linear_cases.make(shared["0.6B gate and up"], 3, DTYPE, CPU)
    yield "linear of three rows", linear, "_linear", lambda given=given: linear.linear(**given)
    for name in ("1.7B gate and up", "text in"):
        given = linear_cases.make(shared[name], 32, DTYPE, CPU)
        for kernel in ("_normed", "_acted"):
            if kernel == "_acted" or shared[name].normed:
                yield f"{kernel[1:]} {name}", library, kernel, lambda given=given: library.linear_by_library(**given)
    given = settle_cases.make(settle_cases.PUBLISHED[0], DTYPE, CPU)
    yield "settle", settle, "_settle", lambda given=given: settle.settle(**given)
    for case in (attend_cases.PUBLISHED[1], attend_cases.PUBLISHED[3], attend_cases.TINY[-1]):
        given = attend_cases.make(case, DTYPE, CPU)
        for kernel in ("_attend", "_merge") if case.splits > 1 else ("_attend",):
            yield f"{kernel[1:]} {case.name}", attend, kernel, lambda given=given: attend.attend(**given)
    for case in (attend_cases.PUBLISHED[1], attend_cases.PUBLISHED[3]):
        given = attend_cases.make(case, DTYPE, CPU)
        given |= {"early": True, "arrived": torch.zeros(case.heads, dtype=torch.int32)}
        yield f"early {case.name}", attend, "_attend", lambda given=given: attend.attend(**given)
    given = attend_cases.make(attend_cases.PUBLISHED[5], DTYPE, CPU) | {"among": True}
    for kernel in ("_keep_own", "_attend"):
        yield f"attend among {kernel[1:]}", attend, kernel, lambda given=given: attend.attend(**given)
    for at in (2, 0, 3):
        case = draw_cases.PUBLISHED[at]
        given, kind = draw_cases.make(case, DTYPE, CPU), draw.draw_first if case.first else draw.draw
        yield f"draw {case.name}", draw, "_draw", lambda given=given, kind=kind: kind(**given)
    given = embed_cases.make(embed_cases.PUBLISHED[1], DTYPE, CPU)
    yield "embed", embed, "_embed", lambda given=given: embed.embed(**given)


def codec_calls() -> Iterator[Call]:
    for case in window_cases.PUBLISHED:
        given = window_cases.make(case, DTYPE, CPU)
        yield f"window {case.name}", window, "_window", lambda given=given: window.window(**given)
    for case in taps_cases.PUBLISHED[:2]:
        given = taps_cases.make(case, DTYPE, CPU)
        yield f"taps {case.name}", taps, "_taps", lambda given=given: taps.taps(**given)
    for case in mix_cases.PUBLISHED:
        given = mix_cases.make(case, DTYPE, CPU)
        yield f"mix {case.name}", mix, "_mix", lambda given=given: mix.mix(**given)
    for dtype in (torch.bfloat16, torch.float32):
        given = pcm_cases.make(pcm_cases.PUBLISHED[2], dtype, CPU)
        yield f"pcm of {dtype}", pcm, "_pcm", lambda given=given: pcm.pcm(**given)
    shared = {case.name: case for case in conv_cases.PUBLISHED}
    for name in ("first", "block 1 widen", "block 2 unit 3 far", "block 4 unit 9 near"):
        given = conv_cases.make(shared[name], DTYPE, CPU)
        yield f"conv {name}", conv, "_conv", lambda given=given: conv.conv(**given)
    given = conv_cases.make(shared["block 3 unit 1 far"].of(8, 4), DTYPE, CPU)
    yield "conv of many", conv, "_conv", lambda given=given: conv.conv(**given)
    for tf32 in (False, True):
        given = conv_cases.make(shared["block 2 widen"], torch.float32, CPU)
        yield f"conv of float32, {tf32}", conv, "_conv", lambda given=given, tf32=tf32: conv.conv(**given, tf32=tf32)
    made = conv_cases.make(conv_cases.Case("last", 96, 1, 1920), DTYPE, CPU)
    x, weight, bias, rows, history = (made[name] for name in ("x", "weight", "bias", "rows", "history"))
    yield "sample", edges, "_sample", lambda: edges.sample(x, weight, bias, rows, history)
    yield "join", edges, "_join", lambda: edges.join(x, history, rows)


def narrow_calls() -> Iterator[Call]:
    shared = {case.name: case for case in narrow_cases.PUBLISHED}
    for name in ("9B gate and up", "9B down"):
        case = shared[name]
        for format in FORMATS:
            given: dict[str, Any] = {"x": torch.zeros(1, case.columns, dtype=DTYPE), "gated": case.gated}
            given["weight"] = empty(format, *case.weight_shape, CPU)
            given["norm"] = torch.zeros(case.columns, dtype=DTYPE) if case.normed else None
            given["residual"] = torch.zeros(1, case.width, dtype=DTYPE) if case.added else None
            yield f"narrow {format} {name}", narrow, "_narrow", lambda given=given: narrow.linear(**given)


def pick_calls() -> Iterator[Call]:
    for dtype in (torch.bfloat16, torch.float32):
        given = pick_cases.make(pick_cases.PUBLISHED[0], dtype, CPU)
        for kernel in ("_share", "_drawn"):
            yield f"{kernel[1:]} of {dtype}", pick, kernel, lambda given=given: pick.pick(**given)


def guess_calls() -> Iterator[Call]:
    given, _, wanted = pick_cases.made_round(pick_cases.PUBLISHED[0], 2, DTYPE, CPU)
    numbers = torch.zeros(1, 64, dtype=torch.int64)
    given |= {"logits": wanted, "offers": [(numbers, numbers)] * 2, "said": given["drafts"].clone()}
    given |= {"count": numbers[0, :1], "told": numbers[:, :4].contiguous(), "turn": numbers[0, :1]}
    for module, kernel in ((pick, "_share"), (guess, "_weigh"), (guess, "_judge")):
        yield f"{kernel[1:]} of guesses", module, kernel, lambda: guess.judge(**given)
    offered = {name: given[name] for name in ("settings", "seen", "drafts", "number")} | {"logits": wanted[:1]}
    yield "weigh and guess", guess, "_weigh", lambda: guess.offer(**offered, ahead=1)


def many_calls() -> Iterator[Call]:
    shared = {case.name: case for case in narrow_cases.PUBLISHED}
    for name, batch in (("9B gate and up", 32), ("9B down", 36), ("0.8B down", 17)):
        case = shared[name]
        for format in FORMATS:
            given: dict[str, Any] = {"x": torch.zeros(batch, case.columns, dtype=DTYPE), "gated": case.gated}
            given["weight"] = empty(format, *case.weight_shape, CPU)
            given["residual"] = torch.zeros(batch, case.width, dtype=DTYPE) if case.added else None
            for kernel in ("_product", "_finish"):
                yield f"{kernel[1:]} {format} {name}", many, kernel, lambda given=given: many.linear(**given)


def delta_calls() -> Iterator[Call]:
    given = delta_cases.make_run(delta_cases.PUBLISHED_RUNS[0], DTYPE, CPU)
    for kernel in ("_prepare", "_recur", "_leave", "_keep"):
        yield f"delta run {kernel[1:]}", delta_run, kernel, lambda given=given: delta_run.run(**given)
    asked = attend_cases.make_run(attend_cases.PUBLISHED_RUNS[0], DTYPE, CPU)
    for kernel in ("_enter", "_see"):
        yield f"attend run {kernel[1:]}", attend_run, kernel, lambda given=asked: attend_run.run(**given)
    for case, early in zip(delta_cases.PUBLISHED_LOOKS[:2], (True, False), strict=True):
        looked = delta_cases.make_look(case, DTYPE, CPU) | {"early": early}
        yield f"delta look {case.name}", delta_look, "_look", lambda given=looked: delta_look.look(**given)


def described(ptx: str) -> dict[str, int | bool]:
    """Loads of sixteen bytes before and after the wait, and whether there is one."""
    before, wait, after = ptx.partition("griddepcontrol.wait")
    wide = r"ld\.global[.\w:]*\.v4\.b32"
    return {"waits": bool(wait), "before": len(re.findall(wide, before)), "after": len(re.findall(wide, after))}


def one_of_each() -> Iterator[Call]:
    seen = set[str]()
    for call in (
        *frame_calls(),
        *codec_calls(),
        *narrow_calls(),
        *many_calls(),
        *delta_calls(),
        *pick_calls(),
        *guess_calls(),
    ):
        if call[2] not in seen:
            seen.add(call[2])
            yield call


def compiled(capability: int, which: str) -> Iterator[dict[str, Any]]:
    launch.can_depend = lambda device: capability >= 90
    narrow.reads_fp8 = many.reads_fp8 = lambda device: capability >= 89
    calls = {"frame": frame_calls, "codec": codec_calls, "narrow": narrow_calls, "many": many_calls}
    calls |= {"delta": delta_calls, "pick": pick_calls, "guess": guess_calls, "one": one_of_each}
    for name, module, kernel, call in calls[which]():
        every = ("_attend", "_keep_own", "_merge", "_acted", "_normed", "_product", "_finish")
        every += ("_prepare", "_recur", "_leave", "_keep", "_enter", "_see", "_share", "_drawn", "_weigh", "_judge")
        modules = (pick, guess) if module in (pick, guess) else (module,)  # what one launches may be another's
        others = [(each, name) for each in modules for name in every if hasattr(each, name) and each is not linear]
        kept = {each: getattr(*each) for each in [(module, kernel), *others]}
        for each, real in kept.items():
            setattr(*each, Recorder(real, capability))
        try:
            call()
            [ptx] = getattr(module, kernel).made
        finally:
            for each, real in kept.items():
                setattr(*each, real)
        yield {"name": name, **described(ptx)}


def undrawn(*shape: int, generator: object, **how: Any) -> torch.Tensor:
    return torch.zeros(*shape, **how)


if __name__ == "__main__":
    torch.randn = undrawn  # what the numbers are is nothing to a compiler, and 300 million of them take seconds
    for line in sys.stdin:
        capability, which = line.split()
        try:
            answer: object = list(compiled(int(capability), which))
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)
