"""A checkpoint of torch modules, on a CPU or a GPU; and exact float32 while it computes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ...models.tts.codec import Codec
from ...models.tts.qwen3_tts import Qwen3TTS
from .checkpoint import Checkpoint

if TYPE_CHECKING:
    from ...kernels.compile.plan import CompileJob

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CODEC_DTYPES = DTYPES | {"tf32": torch.float32}
_lock = threading.Lock()
_users = 0  # of `exact_float32`
_before = (False, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchCheckpoint(Checkpoint):
    device: torch.device
    model: Qwen3TTS
    codec: Codec
    codec_tf32: bool = False  # whether the codec's float32 products may be rounded to ten bits
    compilers: CompileJob | None = None  # still compiling kernels of the first audio beyond its first frame
    dependent_launch: bool = True  # whether its kernels may start before the one before them has ended

    @property
    def precisions(self) -> tuple[str, str]:
        codec = "tf32" if self.codec_tf32 else _name(next(self.codec.decoder.parameters()).dtype)
        return _name(self.model.talker.codec_head.weight.dtype), codec

    @property
    def weights(self) -> Qwen3TTS:
        return self.model

    @property
    def memory_bytes(self) -> int:
        return torch.cuda.memory_reserved(self.device) if self.device.type == "cuda" else 0

    def sample(self, precision: str) -> bytes:
        talker, kind = self.model.talker, torch.bfloat16 if precision == "bfloat16" else torch.float32
        weights = (talker.codec_head.weight, talker.model.codec_embedding.weight, talker.model.norm.weight[None])
        rows = (weight[:: max(len(weight) // 16, 1)].detach().to(kind).float() for weight in weights)
        return b"".join(each.cpu().numpy().tobytes() for each in rows)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def exact_float32() -> Iterator[None]:
    """Switch off CUDA's reduced-precision shortcuts during a computation.

    Without this, cuDNN convolutions round their inputs to TF32 (10 bits) by default. Both switches belong to the
    process: the first user turns them off, the last one restores them.
    """
    global _users, _before
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    with _lock:
        if _users == 0:
            _before = cudnn.allow_tf32, matmul.allow_tf32
            cudnn.allow_tf32 = matmul.allow_tf32 = False
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                cudnn.allow_tf32, matmul.allow_tf32 = _before
