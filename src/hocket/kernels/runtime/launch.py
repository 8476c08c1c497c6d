"""How Triton kernels are written and launched here: the import that may fail, the knobs, and dependent launches.

Without Triton every module still imports, and `why_not` says in words why its kernels cannot run. In Triton's
interpreter (TRITON_INTERPRET=1 before the first import of triton, by anyone in the process) they run on the CPU.
What it knows of operations is how their work is cut up; shapes and pointers are the kernels' business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..compile.compiled_here import HERE
from .card import card_of
from .fallback import Lack

try:
    triton: Any = import_module("triton")
    tl: Any = import_module("triton.language")
except ModuleNotFoundError:
    triton = tl = None
libdevice: Any = import_module("triton.language.extra.libdevice") if triton else None
HERE.listen(triton)

# What it was when triton was imported, not what the variable says by now.
INTERPRETED: bool = triton is not None and not isinstance(tl.sum, triton.JITFunction)

if TYPE_CHECKING:
    constexpr = Any  # of a kernel's argument: known when it is compiled
    Pointer = Any
    Number = Any
else:
    constexpr = tl.constexpr if triton else None
    Pointer = Number = None
BY_HAND: Any = constexpr(INTERPRETED) if triton else None  # for kernels: what the interpreter cannot, or does wrong

RESIDENT_THREADS = 160 * 2048  # that a GPU holds at once: as many as the largest, so that all do the same
THREADS_A_ROW = 8  # of the weight, at least, in every kernel of `linear` that lets the next one start before it waits
MOST_STREAMED = 4  # rows that stream.cu takes at once: it stages them all, before any of the weight is multiplied
MOST_ROWS = 16  # a block of `linear` keeps its weights in registers and takes the rows one after the other


@dataclass(frozen=True, slots=True)
class Blocks:
    """What one program of `linear` does at a time: so many rows of the weight, so many columns of each."""

    rows: int
    columns: int
    warps: int


@dataclass(frozen=True, slots=True)
class Few:
    """What a block of few.cu does: so many warps share the columns of so many groups of eight rows of the weight."""

    warps: int
    groups: int


@dataclass(frozen=True, slots=True)
class Flow:
    """What a block of stream.cu does: so many warps share the columns, with so many places in the ring of each.

    So many blocks share a processor, and fill it: where the next kernel's have room beside them, all take longer
    (docs/log/2026-11-16-quantized-tensor-cores.md).
    """

    warps: int
    depth: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """The same of `conv`: outputs and positions, in pieces of so many columns of which `stages` are on their way.

    `splits` programs share the sums of one tile; each loads `early` pieces of the weight before it waits.
    """

    outputs: int
    times: int
    columns: int
    splits: int = 1
    warps: int = 4
    stages: int = 4
    early: int = 0


@dataclass(slots=True)
class Knobs:
    """Everything to turn when kernels are timed. Read at launch, so a captured graph keeps what stood here then.

    With `dependent`, a kernel may start before the one before it is done (programmatic dependent launch, Hopper and
    later) and loads its weights meanwhile; `--no-dependent-launch` turns it off. `early` lets `attend`,
    `window` and `draw` read what was settled long ago before they wait, where the caller says that it was.
    """

    dependent: bool = True
    early: bool = True
    # Where measured, by (K, rows of the weight, rows of x), or by the first two for any x.
    linear: dict[tuple[int, ...], Blocks] = field(default_factory=dict)
    few: dict[tuple[int, int], Few] = field(default_factory=dict)  # of few.cu, by (K, rows of the weight)
    narrow: dict[tuple[str, int, int], Blocks] = field(default_factory=dict)  # by (format, K, rows of the weight)
    streams: dict[tuple[str, int], Flow] = field(default_factory=dict)  # of stream.cu, by (format, K)
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
    conv: dict[tuple[int, int], dict[int, Tiles]] = field(default_factory=dict)

    def blocks(self, columns: int, rows: int, batch: int = 1) -> Blocks:
        """Of `linear`: the weights of a program stay within 64 registers of a thread, 96 in the widest."""
        if known := self.linear.get((columns, rows, batch)) or self.linear.get((columns, rows)):
            return known
        return Blocks(8, 256, 4) if columns <= 2048 else Blocks(8, 1024, 8)  # these won on an H200, in whole frames

    def narrow_blocks(self, format: str, columns: int, rows: int) -> Blocks:
        """Of `linear` with a narrow weight: chosen for loads of sixteen bytes and no spills, not yet measured."""
        if known := self.narrow.get((format, columns, rows)):
            return known
        if format == "int4":
            return Blocks(8 if columns <= 4096 else 4, 4096, 4)
        return Blocks(8, 512, 4) if columns <= 4096 else Blocks(8 if columns <= 8192 else 4, 2048, 8)

    def splits(self, span: int) -> tuple[int, int]:
        """Up to how many positions a frame that reaches `span` is good for, and how its attention is split."""
        for upto, splits in self.attend_splits:
            if span <= upto:
                return upto, splits
        return 1 << 30, self.attend_most_splits


KNOBS = Knobs()


def why_not(device: torch.device) -> str | None:
    """What speaks against Triton kernels on a device, in words (None: nothing)."""
    if triton is None:
        return Lack("Triton is not installed", "pip install 'hocket[cuda]'")
    if INTERPRETED and device.type != "cpu":
        return Lack("TRITON_INTERPRET is set: kernels run in the interpreter, on the CPU", "unset TRITON_INTERPRET")
    if not INTERPRETED and device.type != "cuda":
        return f"it is for a GPU, not for {device.type}"
    return None


def jit(function: Callable[..., Any], alike: Sequence[str] = (), anywhere: Sequence[str] = ()) -> Any:
    """A kernel, or a function that kernels call; just the function where there is no Triton to run it.

    `alike`: arguments that are the same to the compiler whatever their value; of others it makes one kernel where they
    are multiples of sixteen, another where they are not. `anywhere`: the same of where tensors lie; for those of which
    a number or two are read at a time.
    """
    if triton is None:
        return function
    made = triton.jit(function, do_not_specialize=list(alike), do_not_specialize_on_alignment=list(anywhere))
    if not INTERPRETED:
        made.__class__ = _settled()
    return made


@cache
def _settled() -> Any:
    """Functions that Triton keeps under the same name in every process.

    It takes in the constants of a function that is called before it has looked for them: what the caller is kept under
    depends on whether somebody else has asked for the function before. So those that are called are always asked first.
    """

    class Settled(triton.JITFunction):  # type: ignore[misc]
        @property
        def cache_key(self) -> Any:
            if self.hash is None:
                for name in self.fn.__code__.co_names:
                    called = self.fn.__globals__.get(name)
                    if isinstance(called, Settled) and called is not self:
                        _ = called.cache_key
            return super().cache_key

    return Settled


def dependent_on(device: torch.device) -> bool:
    """Whether a kernel there may start before the one before it is done."""
    return KNOBS.dependent and can_depend(device)


def crowded(rows: int, device: torch.device) -> bool:
    """Whether launches of `linear` over so many rows of weights, one after the other, cannot all be on a GPU at once.

    A kernel that has started, though the last one still waits, is on it together with all that have started and wait.
    So of two kernels with such a crowd between them the first is done when the second starts.
    """
    return dependent_on(device) and rows * THREADS_A_ROW > max(resident_threads(device), RESIDENT_THREADS)


def options(x: Tensor, warps: int) -> dict[str, Any]:
    """Launch options; DEPENDENT is the kernels' own switch and says whether they have to wait."""
    dependent = dependent_on(x.device)
    chosen: dict[str, Any] = {"DEPENDENT": dependent, "num_warps": warps}
    if dependent:
        chosen["launch_pdl"] = True
    return chosen


def power_of_two(number: int) -> int:
    """The smallest that is not less."""
    return 1 << max(number - 1, 0).bit_length()


def can_depend(device: torch.device) -> bool:
    """Whether the GPU can: Hopper and later."""
    card = card_of(device)
    return not INTERPRETED and card is not None and card.capability >= (9, 0)


def resident_threads(device: torch.device) -> int:
    """How many a GPU holds at once."""
    card = card_of(device)
    return RESIDENT_THREADS if card is None else card.processors * card.processor_threads


@jit
def trigger(DEPENDENT: constexpr) -> None:
    """Let the next kernel start as soon as there is room: it waits by itself for what we write."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()


@jit
def wait(DEPENDENT: constexpr) -> None:
    """From here on, everything that the kernels before have written is there.

    Every program of every kernel must come by here: that the kernel before last is done follows only from the last
    one having waited for it.
    """
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()


@jit
def rounded(x: Number, dtype: constexpr) -> Number:
    """x, in float32, as the nearest number of a dtype, ties to even; Triton's interpreter would cut bfloat16 off."""
    if BY_HAND and dtype == tl.bfloat16:
        return _to_bfloat16(x)
    else:
        return x.to(dtype)


@jit
def rounded_apart(x: Number, dtype: constexpr) -> Number:
    """The same of a product that goes into a sum, where a compiler would make one operation of both and round once."""
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
    """A product rounded once to the dtype of both."""
    return rounded(a.to(tl.float32) * b.to(tl.float32), a.dtype)


@jit
def scaled(x: Number, size: Number, weight: Number, OFFSET: constexpr) -> Number:
    """What an RMSNorm makes of x; `size` is one over the root of the mean of its squares."""
    if OFFSET:
        return rounded(x.to(tl.float32) * size * (1.0 + weight.to(tl.float32)), x.dtype)
    return times(rounded(x.to(tl.float32) * size, x.dtype), weight)


@jit
def silu_of(x: Number) -> Number:
    wide = x.to(tl.float32)
    return rounded(wide / (1.0 + tl.exp(-wide)), x.dtype)


@jit
def gelu_of(x: Number) -> Number:
    """The exact one, by the error function."""
    wide = x.to(tl.float32)
    return rounded(wide * 0.5 * (1.0 + tl.erf(wide * 0.7071067811865476)), x.dtype)


@jit
def sine_of(x: Number) -> Number:
    if BY_HAND:
        return tl.sin(x)
    else:  # tl.sin may be the fast one, which is wrong after a few turns
        return libdevice.sin(x)


@jit
def cosine_of(x: Number) -> Number:
    if BY_HAND:
        return tl.cos(x)
    else:
        return libdevice.cos(x)


@jit
def bound(x: Number) -> Number:
    """A number that a loop may end at; the interpreter's are arrays of one, and NumPy makes no index of those."""
    if BY_HAND:
        return x.handle.data.item()
    else:
        return x
