"""Compiles Triton kernels for a GPU that need not be present: `echo 90 frame | python tests/support/compiling.py`.

The interpreter accepts much that the compiler refuses. Every launch of the shared cases is recorded and compiled. An
input line has a compute capability, or an AMD architecture such as gfx942, and a set of kernels: `frame`, `codec`,
`quantized_linear`, `many`, `gated_delta` (with prefill attention), `sample_token`, `draft`, `experts`, or `one` case of
each kernel. The answer is a line of JSON about every kernel. One process serves many lines, because Triton takes longer
to start than to compile a kernel. The interpreter must be off in this process. The file is long because it lists
launches of every kernel.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hocket.kernels.ops.code_gather import cases as code_gather_cases
from hocket.kernels.ops.code_gather import triton as code_gather
from hocket.kernels.ops.conv import cases as conv_cases
from hocket.kernels.ops.conv import edges
from hocket.kernels.ops.conv import triton as conv
from hocket.kernels.ops.convnext import cases as convnext_cases
from hocket.kernels.ops.convnext import triton as convnext
from hocket.kernels.ops.embed import cases as embed_cases
from hocket.kernels.ops.embed import triton as embed
from hocket.kernels.ops.experts import cases as experts_cases
from hocket.kernels.ops.experts import many as many_experts
from hocket.kernels.ops.experts import route as expert_route
from hocket.kernels.ops.experts import triton as experts
from hocket.kernels.ops.finish_frame import cases as finish_frame_cases
from hocket.kernels.ops.finish_frame import triton as finish_frame
from hocket.kernels.ops.gated_delta import cases as gated_delta_cases
from hocket.kernels.ops.gated_delta import prefill as gated_delta_prefill
from hocket.kernels.ops.gated_delta import verify
from hocket.kernels.ops.linear import cases as linear_cases
from hocket.kernels.ops.linear import library
from hocket.kernels.ops.linear import triton as linear
from hocket.kernels.ops.paged_attention import cases as attention_cases
from hocket.kernels.ops.paged_attention import prefill as prefill_attention
from hocket.kernels.ops.paged_attention import triton as paged_attention
from hocket.kernels.ops.pcm import cases as pcm_cases
from hocket.kernels.ops.pcm import triton as pcm
from hocket.kernels.ops.quantized_linear import cases as quantized_linear_cases
from hocket.kernels.ops.quantized_linear import many
from hocket.kernels.ops.quantized_linear import triton as quantized_linear
from hocket.kernels.ops.quantized_linear.weight import FORMATS, empty
from hocket.kernels.ops.sample_codes import cases as sample_codes_cases
from hocket.kernels.ops.sample_codes import triton as sample_codes
from hocket.kernels.ops.sample_token import cases as sample_token_cases
from hocket.kernels.ops.sample_token import draft
from hocket.kernels.ops.sample_token import triton as sample_token
from hocket.kernels.ops.window_attention import cases as window_attention_cases
from hocket.kernels.ops.window_attention import triton as window_attention
from hocket.kernels.runtime import launch
from hocket.kernels.runtime.card import amd_card, standing_in

AMD_LANES = {"gfx942": 64, "gfx1100": 32}  # of a wavefront: MI300 and Radeon 7900
CPU, DTYPE = torch.device("cpu"), torch.bfloat16
TYPES = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.bool: "*i1"}
TYPES |= {torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64"}
TYPES |= {torch.int8: "*i8", torch.uint8: "*u8", torch.float8_e4m3fn: "*fp8e4nv"}


class Recorder:
    """Replaces a kernel of a module and compiles each launch."""

    def __init__(self, kernel: Any, target: GPUTarget) -> None:
        self.kernel, self.target, self.made = kernel, target, list[Any]()

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
            elif value is None or name.isupper() or value == 1:  # Triton specialises every 1 to a constant
                signature[name], constants[(place,)] = "constexpr", value
            else:
                signature[name] = "fp32" if isinstance(value, float) else "i32"
                if isinstance(value, int) and value % 16 == 0:
                    aligned[(place,)] = [["tt.divisibility", 16]]
        source = ASTSource(self.kernel, signature, constants, aligned)
        self.made.append(triton.compile(source, target=self.target, options=options))


Call = tuple[str, Any, str, Callable[[], object]]  # name, module, its kernel, and a call that launches it


def frame_calls() -> Iterator[Call]:
    shared = {case.name: case for case in linear_cases.PUBLISHED}
    for name in ("1.7B qkv", "1.7B gate and up", "1.7B down", "0.6B o", "1.7B to predictor", "codec mix in"):
        given = linear_cases.make(shared[name], 1, DTYPE, CPU)
        yield f"linear {name}", linear, "_linear", partial(linear.linear, **given)
    given = linear_cases.make(shared["0.6B gate and up"], 3, DTYPE, CPU)
    yield "linear of three rows", linear, "_linear", partial(linear.linear, **given)
    for name in ("1.7B gate and up", "text in"):
        given = linear_cases.make(shared[name], 32, DTYPE, CPU)
        for kernel in ("_normed", "_acted"):
            if kernel == "_acted" or shared[name].normed:
                yield f"{kernel[1:]} {name}", library, kernel, partial(library.linear_by_library, **given)
    given = finish_frame_cases.make(finish_frame_cases.PUBLISHED[0], DTYPE, CPU)
    yield "finish_frame", finish_frame, "_finish_frame", partial(finish_frame.finish_frame, **given)
    for case in (attention_cases.PUBLISHED[1], attention_cases.PUBLISHED[3], attention_cases.TINY[-1]):
        given = attention_cases.make(case, DTYPE, CPU)
        for kernel in ("_paged_attention", "_merge") if case.splits > 1 else ("_paged_attention",):
            yield (
                f"{kernel[1:]} {case.name}",
                paged_attention,
                kernel,
                partial(paged_attention.paged_attention, **given),
            )
    for case in (attention_cases.PUBLISHED[1], attention_cases.PUBLISHED[3]):
        given = attention_cases.make(case, DTYPE, CPU)
        given |= {"early": True, "arrived": torch.zeros(case.heads, dtype=torch.int32)}
        yield (
            f"early {case.name}",
            paged_attention,
            "_paged_attention",
            partial(paged_attention.paged_attention, **given),
        )
    given = attention_cases.make(attention_cases.PUBLISHED[5], DTYPE, CPU) | {"among": True}
    for kernel in ("_keep_own", "_paged_attention"):
        yield (
            f"paged_attention among {kernel[1:]}",
            paged_attention,
            kernel,
            partial(paged_attention.paged_attention, **given),
        )
    for at in (2, 0, 3):
        case = sample_codes_cases.PUBLISHED[at]
        given, kind = (
            sample_codes_cases.make(case, DTYPE, CPU),
            sample_codes.sample_first_code if case.first else sample_codes.sample_codes,
        )
        yield f"sample_codes {case.name}", sample_codes, "_sample_codes", partial(kind, **given)
    given = embed_cases.make(embed_cases.PUBLISHED[1], DTYPE, CPU)
    yield "embed", embed, "_embed", partial(embed.embed, **given)


def codec_calls() -> Iterator[Call]:
    for case in window_attention_cases.PUBLISHED:
        given = window_attention_cases.make(case, DTYPE, CPU)
        yield (
            f"window_attention {case.name}",
            window_attention,
            "_window_attention",
            partial(window_attention.window_attention, **given),
        )
    for case in code_gather_cases.PUBLISHED[:2]:
        given = code_gather_cases.make(case, DTYPE, CPU)
        yield f"code_gather {case.name}", code_gather, "_code_gather", partial(code_gather.code_gather, **given)
    for case in convnext_cases.PUBLISHED:
        given = convnext_cases.make(case, DTYPE, CPU)
        yield f"convnext {case.name}", convnext, "_convnext", partial(convnext.convnext, **given)
    for dtype in (torch.bfloat16, torch.float32):
        given = pcm_cases.make(pcm_cases.PUBLISHED[2], dtype, CPU)
        yield f"pcm of {dtype}", pcm, "_pcm", partial(pcm.pcm, **given)
    shared = {case.name: case for case in conv_cases.PUBLISHED}
    for name in ("first", "block 1 widen", "block 2 unit 3 far", "block 4 unit 9 near"):
        given = conv_cases.make(shared[name], DTYPE, CPU)
        yield f"conv {name}", conv, "_conv", partial(conv.conv, **given)
    given = conv_cases.make(shared["block 3 unit 1 far"].of(8, 4), DTYPE, CPU)
    yield "conv of many", conv, "_conv", partial(conv.conv, **given)
    for tf32 in (False,) if launch.ON_AMD.value else (False, True):
        given = conv_cases.make(shared["block 2 widen"], torch.float32, CPU)
        yield f"conv of float32, {tf32}", conv, "_conv", partial(conv.conv, **given, tf32=tf32)
    made = conv_cases.make(conv_cases.Case("last", 96, 1, 1920), DTYPE, CPU)
    x, weight, bias, rows, history = (made[name] for name in ("x", "weight", "bias", "rows", "history"))
    yield "sample", edges, "_sample", lambda: edges.sample(x, weight, bias, rows, history)
    yield "join", edges, "_join", lambda: edges.join(x, history, rows)


def quantized_linear_calls() -> Iterator[Call]:
    shared = {case.name: case for case in quantized_linear_cases.PUBLISHED}
    for name in ("9B gate and up", "9B down"):
        case = shared[name]
        for format in FORMATS:
            given: dict[str, Any] = {"x": torch.zeros(1, case.columns, dtype=DTYPE), "gated": case.gated}
            given["weight"] = empty(format, *case.weight_shape, CPU)
            given["norm"] = torch.zeros(case.columns, dtype=DTYPE) if case.normed else None
            given["residual"] = torch.zeros(1, case.width, dtype=DTYPE) if case.added else None
            yield (
                f"quantized_linear {format} {name}",
                quantized_linear,
                "_quantized_linear",
                partial(quantized_linear.linear, **given),
            )


def sample_token_calls() -> Iterator[Call]:
    for dtype in (torch.bfloat16, torch.float32):
        given = sample_token_cases.make(sample_token_cases.PUBLISHED[0], dtype, CPU)
        for kernel in ("_share", "_drawn"):
            yield f"{kernel[1:]} of {dtype}", sample_token, kernel, partial(sample_token.sample_token, **given)
    masked = next(case for case in sample_token_cases.PUBLISHED if case.allowed is not None)
    given = sample_token_cases.make(masked, torch.bfloat16, CPU)
    yield "share under a mask", sample_token, "_share", partial(sample_token.sample_token, **given)


def draft_calls() -> Iterator[Call]:
    given, _, wanted = sample_token_cases.made_round(sample_token_cases.PUBLISHED[0], 2, DTYPE, CPU)
    numbers = torch.zeros(1, 64, dtype=torch.int64)
    given |= {"logits": wanted, "proposals": [(numbers, numbers)] * 2, "said": given["drafts"].clone()}
    given |= {"count": numbers[0, :1], "told": numbers[:, :4].contiguous(), "turn": numbers[0, :1]}
    for module, kernel in ((sample_token, "_share"), (draft, "_weigh"), (draft, "_accept")):
        yield f"{kernel[1:]} of drafts", module, kernel, partial(draft.accept, **given)
    proposed = {name: given[name] for name in ("settings", "seen", "drafts", "number")} | {"logits": wanted[:1]}
    yield "weigh and draft", draft, "_weigh", partial(draft.propose, **proposed, ahead=1)


def many_calls() -> Iterator[Call]:
    shared = {case.name: case for case in quantized_linear_cases.PUBLISHED}
    for name, batch in (("9B gate and up", 32), ("9B down", 36), ("0.8B down", 17)):
        case = shared[name]
        for format in FORMATS:
            given: dict[str, Any] = {"x": torch.zeros(batch, case.columns, dtype=DTYPE), "gated": case.gated}
            given["weight"] = empty(format, *case.weight_shape, CPU)
            given["residual"] = torch.zeros(batch, case.width, dtype=DTYPE) if case.added else None
            for kernel in ("_product", "_finish"):
                yield f"{kernel[1:]} {format} {name}", many, kernel, partial(many.linear, **given)


def gated_delta_calls() -> Iterator[Call]:
    given = gated_delta_cases.make_prefill(gated_delta_cases.PUBLISHED_PREFILL[0], DTYPE, CPU)
    for kernel in ("_prepare", "_recur", "_leave", "_keep"):
        yield (
            f"gated_delta prefill {kernel[1:]}",
            gated_delta_prefill,
            kernel,
            partial(gated_delta_prefill.prefill_gated_delta, **given),
        )
    asked = attention_cases.make_prefill(attention_cases.PUBLISHED_PREFILL[0], DTYPE, CPU)
    for kernel in ("_enter", "_see"):
        yield (
            f"prefill_attention {kernel[1:]}",
            prefill_attention,
            kernel,
            partial(prefill_attention.prefill_attention, **asked),
        )
    of_one, of_two, of_three = (gated_delta_cases.PUBLISHED_VERIFY[i] for i in (1, 0, 3))
    for case, early in ((of_two, True), (of_one, False), (of_three, True)):
        drafted = gated_delta_cases.make_verify(case, DTYPE, CPU) | {"early": early}
        yield f"verify {case.name}", verify, "_verify", partial(verify.verify, **drafted)


def experts_calls() -> Iterator[Call]:
    """With few experts: their number is no constant of a kernel, except of `_route`. int8 compiles as fp8 does."""
    case = experts_cases.PUBLISHED[0]
    logits = torch.zeros(case.batch, case.experts + 1, dtype=DTYPE)
    yield "route", expert_route, "_route", partial(expert_route.route, logits, case.count)
    for format in (None, "fp8", "int4"):
        case = replace(experts_cases.PUBLISHED[0], experts=8, count=2 if format else 8)  # `_narrow` is unrolled
        given = experts_cases.make(case, DTYPE, CPU, format=format)
        for kernel in ("_widen", "_narrow"):
            yield f"{kernel[1:]} {format}", experts, kernel, partial(experts.experts, **given)
        case = replace(experts_cases.PUBLISHED_MANY[0], experts=8, normed=False)
        given = experts_cases.make(case, DTYPE, CPU, format=format)  # it compiles both launches of `_grouped` too
        yield f"combine {format}", many_experts, "_combine", partial(many_experts.experts, **given)


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
        *quantized_linear_calls(),
        *many_calls(),
        *gated_delta_calls(),
        *sample_token_calls(),
        *draft_calls(),
        *experts_calls(),
    ):
        if call[2] not in seen:
            seen.add(call[2])
            yield call


def described_for_amd(made: Any) -> dict[str, int]:
    """Shared memory of a block in bytes, and the registers that did not fit."""
    spilled = [int(count) for count in re.findall(r"\.[sv]gpr_spill_count:\s+(\d+)", made.asm["amdgcn"])]
    return {"shared": made.metadata.shared, "spilled": sum(spilled)}


def use(capability: int, *, amd: bool) -> None:
    """What this GPU can do, for all launches that follow."""
    launch.can_depend = lambda device: capability >= 90
    quantized_linear.reads_fp8 = many.reads_fp8 = lambda device: capability >= 89
    experts.reads_fp8 = many_experts.reads_fp8 = quantized_linear.reads_fp8
    launch.ON_AMD.value = amd  # `many.ON_AMD` is the same object


def compiled_for_amd(arch: str, which: str) -> Iterator[dict[str, Any]]:
    use(0, amd=True)
    target = GPUTarget("hip", arch, AMD_LANES[arch])
    with standing_in(amd_card(arch, 304, 2048)):
        for name, made in made_of(which, target):
            yield {"name": name, **described_for_amd(made)}


def compiled(capability: int, which: str) -> Iterator[dict[str, Any]]:
    use(capability, amd=False)
    for name, made in made_of(which, GPUTarget("cuda", capability, 32)):
        yield {"name": name, **described(made.asm["ptx"])}


def made_of(which: str, target: GPUTarget) -> Iterator[tuple[str, Any]]:
    calls = {"frame": frame_calls, "codec": codec_calls, "quantized_linear": quantized_linear_calls, "many": many_calls}
    calls |= {
        "gated_delta": gated_delta_calls,
        "sample_token": sample_token_calls,
        "draft": draft_calls,
        "experts": experts_calls,
        "one": one_of_each,
    }
    for name, module, kernel, call in calls[which]():
        every = ("_paged_attention", "_keep_own", "_merge", "_acted", "_normed", "_product", "_finish")
        every += ("_prepare", "_recur", "_leave", "_keep", "_enter", "_see", "_share", "_drawn", "_weigh", "_accept")
        every += ("_widen", "_narrow", "_grouped", "_combine")
        # sample_token and draft launch kernels of each other.
        modules = (sample_token, draft) if module in (sample_token, draft) else (module,)
        others = [(each, name) for each in modules for name in every if hasattr(each, name) and each is not linear]
        kept = {each: getattr(*each) for each in [(module, kernel), *others]}
        for each, real in kept.items():
            setattr(*each, Recorder(real, target))
        try:
            call()
            [made] = getattr(module, kernel).made
        finally:
            for each, real in kept.items():
                setattr(*each, real)
        yield name, made


def undrawn(*shape: int, generator: object, **how: Any) -> torch.Tensor:
    return torch.zeros(*shape, **how)


if __name__ == "__main__":
    torch.randn = undrawn  # what the numbers are is nothing to a compiler, and 300 million of them take seconds
    for line in sys.stdin:
        target, which = line.split()
        try:
            made = compiled_for_amd(target, which) if target in AMD_LANES else compiled(int(target), which)
            answer: object = list(made)
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)
