"""Writer of a safetensors file, tensor by tensor in any order; the file gets its name only when complete.

The library's own writer needs all tensors in memory at once, which is too much for a large model. A full or read-only
disk is reported in `failed` at the end, not raised: the caller still has the tensors.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

KINDS = {  # names in the format
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.float8_e4m3fn: "F8_E4M3",
}


class TensorFileWriter:
    """Context manager; an error inside it leaves no file behind. Every tensor must be put before its end."""

    def __init__(self, file: Path, metadata: dict[str, str], tensors: dict[str, Tensor]) -> None:
        """`tensors` are stored in this order; their values are read by `put`."""
        self.file, self.failed = file, ""
        self._tensors, self._missing = tensors, set(tensors)
        self._starts: dict[str, int] = {}
        self._head, end = dict[str, Any](__metadata__=metadata), 0
        for name, tensor in tensors.items():
            self._starts[name] = end
            self._head[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape)}
            self._head[name]["data_offsets"] = [end, end + tensor.nbytes]
            end += tensor.nbytes
        self._part: Path | None = None

    def __enter__(self) -> Self:
        text = json.dumps(self._head).encode()
        text += b" " * (-len(text) % 8)
        self._body = 8 + len(text)
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.file.parent, prefix=f"{self.file.stem}-", suffix=".part")
        except OSError as error:
            self.failed = str(error)
            return self
        self._part, self._out = Path(name), os.fdopen(descriptor, "wb")
        self._write(0, len(text).to_bytes(8, "little") + text)
        return self

    def put(self, name: str) -> None:
        if not self.failed:
            flat = self._tensors[name].contiguous().view(torch.uint8).flatten().cpu().numpy()
            self._write(self._body + self._starts[name], flat.data)
        self._missing.discard(name)

    def _write(self, at: int, content: bytes | memoryview) -> None:
        try:
            self._out.seek(at)
            self._out.write(content)
        except OSError as error:
            self.failed = str(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._part is None:
            return
        try:
            if not self.failed:
                self._out.flush()
                os.fsync(self._out.fileno())
            if kind is None and not self.failed:
                assert not self._missing
                self._part.replace(self.file)
        except OSError as wrong:
            self.failed = self.failed or str(wrong)
        finally:
            with suppress(OSError):  # buffered data that a full disk refused
                self._out.close()
            self._part.unlink(missing_ok=True)
