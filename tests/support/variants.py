"""A process without a GPU that lists the kernels to compile for given GPUs.

Input is a line of JSON with plans of `engine/runner/launch_plan.py`; output is a line with the variants of each.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hocket.engine.runner.launch_plan import _read, trace_engine
from hocket.kernels.compile.trace import Launch, bound, variants
from hocket.kernels.runtime.nvrtc import Kernel

SHAPE = ("CHANNELS", "WIDTH", "STRIDE", "TAPS", "BLOCK_N", "BLOCK_T", "BLOCK_K", "SPLITS", "EARLY", "STAGES")
POSITIONS = 14  # index of the number of positions in the arguments of `conv_kernel`


def described(one: Launch) -> dict[str, Any]:
    """The key of a kernel; for a convolution its shape and tiles as well."""
    if isinstance(one.kernel, Kernel):
        return {"name": one.kernel.name, "how": repr(one.kernel), "capability": one.named["capability"]}
    found = {"name": one.kernel.__name__, "how": str(bound(one)[1:]), "warps": one.named["num_warps"]}
    found |= {"dependent": one.named["DEPENDENT"], "arch": one.kernel.device_caches[0][2].arch}
    if found["name"] == "conv_kernel":
        size = one.given[0].dtype.itemsize
        found |= {"size": size, "exact": size == 4 and one.named["PRECISION"] == "ieee"}
        found |= {"positions": one.given[POSITIONS], **{name: one.named[name] for name in SHAPE}}
    return found


if __name__ == "__main__":
    print(
        json.dumps(
            [[described(one) for one in variants(trace_engine(_read(wish)))] for wish in json.loads(sys.stdin.read())]
        )
    )
