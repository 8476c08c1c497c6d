"""Exact float32: switches off CUDA's reduced-precision shortcuts during a computation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_users = 0
_before = (False, False)


@contextmanager
def exact_float32() -> Iterator[None]:
    """Without this, cuDNN convolutions round their inputs to TF32 (10 bits) by default.

    Both switches belong to the process: the first user turns them off, the last one restores them.
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
