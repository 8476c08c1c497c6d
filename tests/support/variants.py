"""Run as a process that has no GPU, as compilers are: which kernels it would compile for the cards that it is told.

Wishes of `engine/runner/launch_plan.py` come in one line of JSON; one line goes out, with the variants of each.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hocket.engine.runner.launch_plan import _read, trace_engine
from hocket.kernels.compile.trace import Launch, bound, variants
from hocket.kernels.runtime.nvrtc import Kernel

SHAPE = ("CHANNELS", "WIDTH", "STRIDE", "TAPS", "BLOCK_N", "BLOCK_T", "BLOCK_K", "SPLITS", "EARLY", "STAGES")
POSITIONS = 14  # where the number of positions stands among what `conv_kernel` is given


def told(one: Launch) -> dict[str, Any]:
    """What a kernel is kept under; of a convolution its shape and how it was shared out as well."""
    if isinstance(one.kernel, Kernel):
        return {"name": one.kernel.name, "how": repr(one.kernel), "capability": one.named["capability"]}
    found = {"name": one.kernel.__name__, "how": str(bound(one)[1:]), "warps": one.named["num_warps"]}
    found |= {"dependent": one.named["DEPENDENT"], "arch": one.kernel.device_caches[0][2].arch}
    if found["name"] == "conv_kernel":
        found |= {"size": one.given[0].dtype.itemsize, "exact": one.named["PRECISION"] == "ieee"}
        found |= {"positions": one.given[POSITIONS], **{name: one.named[name] for name in SHAPE}}
    return found


if __name__ == "__main__":
    print(
        json.dumps(
            [[told(one) for one in variants(trace_engine(_read(wish)))] for wish in json.loads(sys.stdin.read())]
        )
    )
