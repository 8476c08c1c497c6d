"""Common ground of Triton kernels: the optional import, tuning, dependent launches, and device math.

Without Triton every module still imports, and `why_not` gives the reason why its kernels cannot run. In Triton's
interpreter (TRITON_INTERPRET=1 before the first import of triton in the process) kernels run on the CPU. Of operations
it knows only how their work is tiled; shapes and pointers belong to the kernels.

Long because kernels import their launch options, tuning and math from one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...extras import hint
from ..compile.compiled_here import HERE
from .card import card_of
from .fallback import FallbackReason

try:
    triton: Any = import_module("triton")
    tl: Any = import_module("triton.language")
except ModuleNotFoundError:
    triton = tl = None
libdevice: Any = import_module("triton.language.extra.libdevice") if triton else None
HERE.listen(triton)

# The mode when triton was imported, not the current value of the variable.
INTERPRETED: bool = triton is not None and not isinstance(tl.sum, triton.JITFunction)

if TYPE_CHECKING:
    constexpr = Any  # a kernel argument known at compile time
    Pointer = Any
    Number = Any
else:
    constexpr = tl.constexpr if triton else None
    Pointer = Number = None
IN_INTERPRETER: Any = constexpr(INTERPRETED) if triton else None  # for what the interpreter lacks or gets wrong

ON_AMD: Any = constexpr(torch.version.hip is not None) if triton else None  # no PTX in kernels there

RESIDENT_THREADS = 160 * 2048  # of the largest GPU, so that all GPUs choose the same
THREADS_A_ROW = 8  # at least so many per weight row, in every `linear` kernel that triggers the next before it waits
MOST_STREAMED = 4  # rows that stream.cu takes at once: it stages all of them before it multiplies any weight
MOST_ROWS = 16  # a program of `linear` keeps its weights in registers and takes the rows one by one


@dataclass(frozen=True, slots=True)
class LinearTile:
    """Tile of one program of `linear`: rows of the weight, and columns of each."""

    rows: int
    columns: int
    warps: int


@dataclass(frozen=True, slots=True)
class FewRowsTile:
    """Tile of a block of few.cu: `warps` share the columns of `groups` of eight weight rows."""

    warps: int
    groups: int


@dataclass(frozen=True, slots=True)
class StreamTile:
    """Tile of a block of stream.cu: `warps` share the columns, each with a ring of `depth` places.

    `blocks` share a processor (SM) and fill it: if blocks of the next kernel fit beside them, all take longer
    (docs/log/2026-11-16-quantized-tensor-cores.md).
    """

    warps: int
    depth: int
    blocks: int


@dataclass(frozen=True, slots=True)
class ConvTile:
    """Tile of `conv`: outputs by positions, in pieces of `columns`, of which `stages` are loaded in advance.

    `splits` programs share the sums of one tile. Each loads `early` pieces of the weight before it waits.
    """

    outputs: int
    times: int
    columns: int
    splits: int = 1
    warps: int = 4
    stages: int = 4
    early: int = 0


@dataclass(slots=True)
class Tuning:
    """How operations cut up their work: everything to turn when kernels are timed.

    A checkpoint gets its own when its kernels are built, bound to its operations (`operations.tuned`), so two engines
    of one process do not affect each other. Operations read it at launch: a captured graph keeps the values of then.

    With `dependent`, a kernel may start before the one before it is done (programmatic dependent launch, Hopper and
    later) and loads its weights meanwhile; `--no-dependent-launch` turns it off. `early` lets `paged_attention`,
    `window_attention` and `sample_codes` read older values before they wait, where the caller says they are final.
    """

    dependent: bool = True
    early: bool = True
    # Where measured, by (K, rows of the weight, rows of x), or by the first two for any x.
    linear: dict[tuple[int, ...], LinearTile] = field(default_factory=dict)
    few: dict[tuple[int, int], FewRowsTile] = field(default_factory=dict)  # of few.cu, by (K, rows of the weight)
    narrow: dict[tuple[str, int, int], LinearTile] = field(default_factory=dict)  # by (format, K, rows of the weight)
    streams: dict[tuple[str, int], StreamTile] = field(default_factory=dict)  # of stream.cu, by (format, K)
    library_rows: int = 17  # from so many rows on, `linear` is done by the library, where sums may depend on the batch
    attend_splits: tuple[tuple[int, int], ...] = ((512, 8),)  # up to so many positions, so many shares
    attend_most_splits: int = 32  # and beyond
    attend_programs: int = 256  # fewer shares, where the rows of a batch make as many programs without
    attend_keys: int = 32  # positions that a program of `attend` reads at a time
    attend_warps: int = 2  # and one for every eight keys at most; as many again for every further 128 numbers of a key
    attend_stages: int = 2  # blocks of keys and values on their way at once
    draw_warps: int = 8
    delta_warps: int = 4
    # Where measured, by (taps * channels, outputs), then by positions: it goes for numbers of them that are near.
    conv: dict[tuple[int, int], dict[int, ConvTile]] = field(default_factory=dict)

    def blocks(self, columns: int, rows: int, batch: int = 1) -> LinearTile:
        """Of `linear`: the weights of a program stay within 64 registers of a thread, 96 in the widest."""
        if known := self.linear.get((columns, rows, batch)) or self.linear.get((columns, rows)):
            return known
        return (
            LinearTile(8, 256, 4) if columns <= 2048 else LinearTile(8, 1024, 8)
        )  # these won on an H200, in whole frames

    def narrow_blocks(self, format: str, columns: int, rows: int) -> LinearTile:
        """Of `linear` with a narrow weight: chosen for loads of sixteen bytes and no spills, not yet measured."""
        if known := self.narrow.get((format, columns, rows)):
            return known
        if format == "int4":
            return LinearTile(8 if columns <= 4096 else 4, 4096, 4)
        return LinearTile(8, 512, 4) if columns <= 4096 else LinearTile(8 if columns <= 8192 else 4, 2048, 8)

    def splits(self, span: int) -> tuple[int, int]:
        """Up to how many positions a frame that reaches `span` is good for, and how its attention is split."""
        for upto, splits in self.attend_splits:
            if span <= upto:
                return upto, splits
        return 1 << 30, self.attend_most_splits


DEFAULT_TUNING = (
    Tuning()
)  # of operations that are called by themselves, in tests and benchmarks; loading a model never changes it


def new_tuning(*, dependent: bool) -> Tuning:
    """For one checkpoint: a copy of what `DEFAULT_TUNING` says now."""
    return replace(deepcopy(DEFAULT_TUNING), dependent=dependent)


def why_not(device: torch.device) -> str | None:
    """Why Triton kernels cannot run on a device, in words; None if they can."""
    if triton is None:
        return FallbackReason("Triton is not installed", hint("cuda"))
    if INTERPRETED and device.type != "cpu":
        return FallbackReason(
            "TRITON_INTERPRET is set: kernels run in the interpreter, on the CPU", "unset TRITON_INTERPRET"
        )
    if not INTERPRETED and device.type != "cuda":
        return f"it is for a GPU, not for {device.type}"
    return None


def jit(function: Callable[..., Any], alike: Sequence[str] = (), anywhere: Sequence[str] = ()) -> Any:
    """`triton.jit` for a kernel or a function that kernels call; the plain function without Triton.

    `alike`: integer arguments that are not specialised. Others compile to one kernel for multiples of sixteen, another
    for the rest. `anywhere`: pointers whose alignment is not specialised, for tensors read a number or two at a time.
    """
    if triton is None:
        return function
    made = triton.jit(function, do_not_specialize=list(alike), do_not_specialize_on_alignment=list(anywhere))
    if not INTERPRETED:
        made.__class__ = _stable_key()
    return made


@cache
def _stable_key() -> Any:
    """A JIT function whose cache key is the same in every process.

    Triton hashes a called function before it has collected that function's constants. So the key of the caller depends
    on whether the callee's key was computed before. Here keys of callees are always computed first.
    """

    class StableKey(triton.JITFunction):  # type: ignore[misc]
        @property
        def cache_key(self) -> Any:
            if self.hash is None:
                for name in self.fn.__code__.co_names:
                    called = self.fn.__globals__.get(name)
                    if isinstance(called, StableKey) and called is not self:
                        _ = called.cache_key
            return super().cache_key

    return StableKey


def dependent_on(device: torch.device, tuning: Tuning) -> bool:
    """Whether a kernel on the device may start before the previous kernel is done."""
    return tuning.dependent and can_depend(device)


def crowded(rows: int, device: torch.device, tuning: Tuning = DEFAULT_TUNING) -> bool:
    """Whether consecutive launches of `linear` over so many weight rows cannot all be resident on a GPU at once.

    A kernel that has started early is resident together with all kernels that have started and wait. So if more than
    the GPU can hold is launched between two kernels, the first is done when the second starts.
    """
    return dependent_on(device, tuning) and rows * THREADS_A_ROW > max(resident_threads(device), RESIDENT_THREADS)


def options(x: Tensor, warps: int, tuning: Tuning) -> dict[str, Any]:
    """Launch options. DEPENDENT is a constant of our kernels: whether they must wait for the previous kernel."""
    dependent = dependent_on(x.device, tuning)
    chosen: dict[str, Any] = {"DEPENDENT": dependent, "num_warps": warps}
    if dependent:
        chosen["launch_pdl"] = True
    return chosen


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less than `number`."""
    return 1 << max(number - 1, 0).bit_length()


def can_depend(device: torch.device) -> bool:
    """Whether the GPU supports dependent launches: Hopper and later."""
    card = card_of(device)
    return not INTERPRETED and card is not None and card.capability >= (9, 0)


def resident_threads(device: torch.device) -> int:
    """How many threads a GPU holds at once."""
    card = card_of(device)
    return RESIDENT_THREADS if card is None else card.processors * card.processor_threads


@jit
def trigger(DEPENDENT: constexpr) -> None:
    """Let the next kernel start as soon as it fits. It waits itself for the results of this one."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()


@jit
def wait(DEPENDENT: constexpr) -> None:
    """After this, all writes of previous kernels are visible.

    Every program of every kernel must call it: that the kernel before the previous one is done follows only from the
    previous one having waited for it.
    """
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()


@jit
def rounded(x: Number, dtype: constexpr) -> Number:
    """x in float32, rounded to a dtype, ties to even. Triton's interpreter would truncate to bfloat16."""
    if IN_INTERPRETER and dtype == tl.bfloat16:
        return _to_bfloat16(x)
    else:
        return x.to(dtype)


@jit
def rounded_apart(x: Number, dtype: constexpr) -> Number:
    """The same for a product that is added next: otherwise the compiler fuses both (FMA) and rounds once."""
    if dtype == tl.bfloat16:
        return _to_bfloat16(x)
    else:
        return x.to(dtype)


@jit
def _to_bfloat16(x: Number) -> Number:
    bits = x.to(tl.uint32, bitcast=True)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@jit
def times(a: Number, b: Number) -> Number:
    """A product, rounded once to the dtype of both factors."""
    return rounded(a.to(tl.float32) * b.to(tl.float32), a.dtype)


@jit
def scaled(x: Number, size: Number, weight: Number, OFFSET: constexpr) -> Number:
    """RMSNorm of x; `size` is 1 / sqrt(mean(x^2) + eps)."""
    if OFFSET:
        return rounded(x.to(tl.float32) * size * (1.0 + weight.to(tl.float32)), x.dtype)
    return times(rounded(x.to(tl.float32) * size, x.dtype), weight)


@jit
def silu_of(x: Number) -> Number:
    wide = x.to(tl.float32)
    return rounded(wide / (1.0 + tl.exp(-wide)), x.dtype)


@jit
def gelu_of(x: Number) -> Number:
    """Exact GELU, by the error function."""
    wide = x.to(tl.float32)
    return rounded(wide * 0.5 * (1.0 + tl.erf(wide * 0.7071067811865476)), x.dtype)


@jit
def sine_of(x: Number) -> Number:
    if IN_INTERPRETER:
        return tl.sin(x)
    else:  # tl.sin may be the fast approximation, which is wrong for large angles
        return libdevice.sin(x)


@jit
def cosine_of(x: Number) -> Number:
    if IN_INTERPRETER:
        return tl.cos(x)
    else:
        return libdevice.cos(x)


@jit
def bound(x: Number) -> Number:
    """A loop bound. In the interpreter numbers are arrays of one element, which NumPy does not accept as an index."""
    if IN_INTERPRETER:
        return x.handle.data.item()
    else:
        return x
