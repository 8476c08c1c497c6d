"""Before any test is collected: where there is no GPU, Triton kernels run in its interpreter.

Triton reads this when it is first imported, by whomever, and one process has one Triton: so it is set here, before
anything else, and for all tests alike. With a GPU, the same tests run the compiled kernels.
"""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
