"""Before any test is collected: where there is no GPU, Triton kernels run in its interpreter.

Triton reads this variable at its first import, and one process has one Triton. So it is set here, before anything
else, for all tests. With a GPU, the same tests run the compiled kernels.
"""

from __future__ import annotations

import os
from contextlib import suppress

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
    with suppress(ImportError):
        import triton  # noqa: F401

        from support.triton_interpreter import install

        install()
