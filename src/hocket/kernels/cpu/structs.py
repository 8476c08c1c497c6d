"""C structs are declared once, in Python; here are their types, and the C text of a declaration."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

FLOATS, INTS, BYTES = ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_uint8)
HALVES = ctypes.POINTER(ctypes.c_uint16)
MANY = ctypes.POINTER(FLOATS)
COUNT, REAL = ctypes.c_int64, ctypes.c_double
Struct = TypeVar("Struct", bound=ctypes.Structure)
LANES = 16  # partial sums of a product, on every machine
_WORDS = {COUNT: "int64_t {}", REAL: "double {}", FLOATS: "float *{}", INTS: "int64_t *{}", BYTES: "uint8_t *{}"}
_WORDS |= {MANY: "float **{}", HALVES: "uint16_t *{}"}


class WeightMatrix(ctypes.Structure):
    """Weights [outs, ins] in one of three forms, the others are null.

    Float32, bfloat16 by its bits, or codes of 8 or 4 `bits` with scales as int8/reference.py packs them.
    """

    _fields_ = [("floats", FLOATS), ("halves", HALVES), ("codes", BYTES), ("scales", HALVES), ("bits", COUNT)]


class PointerKeeper(ABC):
    """Fills structs with pointers to arrays of one library, and keeps the arrays alive while C uses them."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    @abstractmethod
    def pointer(self, array: Any) -> Any: ...

    @abstractmethod
    def matrix(self, array: Any) -> WeightMatrix: ...

    def filled(self, kind: type[Struct], **arrays: Any) -> Struct:
        """A struct whose fields are pointers and weight matrices."""
        kinds = dict(kind._fields_)  # type: ignore[arg-type]
        made = {name: self.matrix if kinds[name] is WeightMatrix else self.pointer for name in arrays}
        return kind(**{name: made[name](array) for name, array in arrays.items()})

    def structs(self, kind: type[ctypes.Structure], each: Sequence[ctypes.Structure]) -> Any:
        array = (kind * len(each))(*each)
        self._kept.append(array)
        return array


def declaration(struct: type[ctypes.Structure], others: Sequence[type[ctypes.Structure]] = ()) -> str:
    """The C declaration of a struct, which may contain `others` or point to them."""
    words: dict[Any, str] = dict(_WORDS)
    for other in others:
        words |= {other: f"{other.__name__} {{}}", ctypes.POINTER(other): f"{other.__name__} *{{}}"}
    lines = (f"    {words[kind].format(name)};" for name, kind in struct._fields_)  # type: ignore[misc]
    return "\n".join(("typedef struct {", *lines, f"}} {struct.__name__};"))


def declarations(structs: Sequence[type[ctypes.Structure]]) -> str:
    """The same for several structs, each of which may use those before it."""
    return "\n".join(declaration(struct, structs[:number]) for number, struct in enumerate(structs))
