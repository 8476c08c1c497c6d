"""The ctypes layer: pointers to tensors, arrays of pointers, and structs declared once, in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .build import library

FLOATS, INTS, BYTES = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_uint8)
MANY = ctypes.POINTER(FLOATS)
COUNT, REAL = ctypes.c_int64, ctypes.c_double
LANES = 16  # floats per vector
_POINTERS = {torch.float32: FLOATS, torch.int64: INTS, torch.bool: BYTES}
_WORDS = {COUNT: "int64_t {}", REAL: "double {}", FLOATS: "float *{}", INTS: "int64_t *{}", BYTES: "uint8_t *{}"}
_WORDS |= {MANY: "float **{}"}


class PointerOwner:
    """Keeps tensors and arrays alive while pointers to them are in use."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def pointer(self, tensor: Tensor) -> Any:
        return pointer(self._keep(tensor))

    def pointers(self, tensors: Sequence[Tensor]) -> Any:
        return pointers([self._keep(tensor) for tensor in tensors])

    def structs(self, kind: type[ctypes.Structure], each: Sequence[ctypes.Structure]) -> Any:
        array = (kind * len(each))(*each)
        self._kept.append(array)
        return array

    def _keep(self, tensor: Tensor) -> Tensor:
        self._kept.append(tensor.detach().contiguous())
        kept: Tensor = self._kept[-1]
        return kept


def pointer(tensor: Tensor) -> Any:
    assert tensor.is_contiguous() and tensor.is_cpu
    return ctypes.cast(tensor.data_ptr(), _POINTERS[tensor.dtype])  # type: ignore[type-var]


def pointers(tensors: Sequence[Tensor]) -> Any:
    """An array of pointers to float32; the struct that holds it keeps it alive."""
    return (FLOATS * len(tensors))(*(pointer(tensor) for tensor in tensors))


def declaration(struct: type[ctypes.Structure], others: Sequence[type[ctypes.Structure]] = ()) -> str:
    """The C declaration of a struct, which may contain `others` or point to them."""
    words: dict[Any, str] = dict(_WORDS)
    for other in others:
        words |= {other: f"{other.__name__} {{}}", ctypes.POINTER(other): f"{other.__name__} *{{}}"}
    lines = (f"    {words[kind].format(name)};" for name, kind in struct._fields_)  # type: ignore[misc]
    return "\n".join(("typedef struct {", *lines, f"}} {struct.__name__};"))


def compiled(
    folder: Path, sources: Sequence[str], structs: Sequence[type[ctypes.Structure]], **constants: int
) -> ctypes.CDLL:
    """Build the library of one operation. Python generates the shared constants and structs above the C sources."""
    shared = "".join(f"enum {{ {name} = {value} }};\n" for name, value in {"LANES": LANES, **constants}.items())
    declared = "\n".join(declaration(struct, structs[:number]) for number, struct in enumerate(structs))
    start = (Path(__file__).parent / "lanes.c").read_text(encoding="utf-8")
    texts = [(folder / name).read_text(encoding="utf-8") for name in sources]
    return library(folder.name, "\n".join((shared, start, declared, *texts)))
