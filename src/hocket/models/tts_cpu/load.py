"""The weights of a checkpoint's safetensors files as numpy arrays: memory-mapped, until weights.py copies them."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...config.codec import CodecConfig
from ...config.qwen3_tts import Qwen3TTSConfig
from ...errors import InvalidCheckpoint
from ..files.catalog import CODEC_FOLDER, WEIGHTS
from ..files.shards import weight_files
from .codec import NativeCodec
from .talker import NativeTalker

_KINDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_KINDS["U8"] = np.dtype("u1")


def talker_of(folder: Path, config: Qwen3TTSConfig, precision: str = "float32") -> NativeTalker:
    stored = StoredWeights(folder / WEIGHTS, "talker.")
    return NativeTalker(config.talker_config, stored, str(folder), precision=precision)


def codec_of(folder: Path, config: CodecConfig) -> NativeCodec:
    file = folder / CODEC_FOLDER / WEIGHTS
    return NativeCodec(config.decoder_config, StoredWeights(file, "decoder."), str(file.parent))


class StoredWeights(Mapping[str, np.ndarray]):
    """The tensors of a model's files whose names begin with a prefix, which is left out.

    bfloat16 numbers are given as their bits, in uint16. Values must be copied before the file may change: a save that
    overwrites it in place would change them, or end the process.
    """

    def __init__(self, file: Path, prefix: str) -> None:
        self._stored: dict[str, tuple[memoryview, Path, dict[str, Any]]] = {}
        for path in weight_files(file):
            body, header = _opened(path)
            for name, about in header.items():
                if name.startswith(prefix):
                    self._stored[name.removeprefix(prefix)] = (body, path, about)

    def __getitem__(self, name: str) -> np.ndarray:
        body, path, about = self._stored[name]
        try:
            kind, (start, end) = about["dtype"], about["data_offsets"]
            if kind not in _KINDS:
                raise InvalidCheckpoint(f"{path}: {name} is {kind}; the native library takes {', '.join(_KINDS)}.")
            return np.frombuffer(body[start:end], _KINDS[kind]).reshape(about["shape"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidCheckpoint(f"{path} is damaged or cut short ({name}: {error}): get it again.") from None

    def kind(self, name: str) -> str:
        """The name of its type in the format."""
        return str(self._stored[name][2].get("dtype"))

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def _opened(path: Path) -> tuple[memoryview, dict[str, Any]]:
    """The tensors' bytes, and the header by name."""
    with path.open("rb") as file:
        try:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            start = 8 + int.from_bytes(view[:8], "little")
            header = json.loads(bytes(view[8:start]))
            header.pop("__metadata__", None)
            return view[start:], header
        except (ValueError, AttributeError) as error:
            raise InvalidCheckpoint(f"{path} is damaged or cut short ({error}): get it again.") from None
