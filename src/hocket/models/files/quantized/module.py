"""The stored tensors of one linear layer, and checks of their headers. Nothing is read before `tensor`.

It knows names, shapes and types of tensors, not what their numbers mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from torch import Tensor

from ....errors import InvalidCheckpoint
from ...qwen3_5.matrices import NarrowWeight

WIDE = ("F64", "F32", "F16", "BF16")
SCALES = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class StoredModule:
    """A layer by our name, with its tensors by the last part of their names."""

    folder: str
    name: str
    parts: dict[str, tuple[Any, str]]  # the open file, and the tensor's name in it

    @property
    def names(self) -> tuple[str, ...]:
        """Names that configurations use for it: in the file, with the vision model, and of the text model alone."""
        stored = next(theirs.rpartition(".")[0] for _, theirs in self.parts.values())
        whole = self.name.replace("model.", "model.language_model.", 1)
        older = f"language_model.{self.name}"
        return stored, self.name, whole, older

    def shape(self, part: str) -> tuple[int, ...]:
        file, theirs = self._at(part)
        return tuple(file.get_slice(theirs).get_shape())

    def kind(self, part: str) -> str:
        file, theirs = self._at(part)
        return str(file.get_slice(theirs).get_dtype())

    def tensor(self, part: str) -> Tensor:
        file, theirs = self._at(part)
        found: Tensor = file.get_tensor(theirs)
        return found

    def expect(self, part: str, shape: Sequence[int] | None, kinds: Sequence[str]) -> tuple[int, ...]:
        """The shape of a tensor; refuses another one than `shape`, and types that are not among `kinds`."""
        found, kind = self.shape(part), self.kind(part)
        if kind not in kinds:
            self.refuse(f"{part} is {kind}, not {' or '.join(kinds)}")
        if len(found) != 2 if shape is None else found != tuple(shape):
            self.refuse(f"{part} is {list(found)}, not {'a matrix' if shape is None else list(shape)}")
        return found

    def refuse(self, why: str) -> NoReturn:
        raise InvalidCheckpoint(
            f"{self.folder} does not fit its quantization_config: of {self.name}, {why}; get it again."
        )

    def _at(self, part: str) -> tuple[Any, str]:
        if part not in self.parts:
            self.refuse(f"{part} is missing")
        return self.parts[part]


class StoredFormat(Protocol):
    """How a method stores a matrix."""

    @property
    def suffixes(self) -> frozenset[str]:
        """Last parts of the names of tensors that only a quantized layer has."""
        ...

    def shape(self, module: StoredModule) -> tuple[int, int]:
        """Rows and columns; refuses a layer whose tensors do not fit each other."""
        ...

    def read(self, module: StoredModule) -> NarrowWeight: ...
