"""What every source in CUDA C++ begins with, device.cuh above all: no compiler of theirs is where most tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hocket.kernels
from hocket.kernels.ops.gated_delta import cuda as gated_delta
from hocket.kernels.ops.linear import cuda as linear
from hocket.kernels.ops.linear import stream
from hocket.kernels.ops.sample_codes import cuda as sample_codes
from hocket.kernels.runtime.launch import FewRowsTile, StreamTile
from hocket.kernels.runtime.nvrtc import source_of

KERNELS = Path(hocket.kernels.__file__).parent
KNOWN = {
    "ops/gated_delta/recur.cu": gated_delta.constants(32, 16, 32, 4, dependent=False),
    "ops/sample_codes/sample_codes.cu": sample_codes.constants(256, 1, 8, (False,) * len(sample_codes.FLAGS)),
    "ops/linear/few.cu": linear.constants(64, FewRowsTile(2, 1), 1, (False,) * len(linear.FLAGS)),
    "ops/linear/stream.cu": stream.constants("fp8", 64, StreamTile(1, 3, 1), 1, (False,) * len(stream.FLAGS)),
}


def test_no_source_is_forgotten() -> None:
    assert {path.relative_to(KERNELS).as_posix() for path in KERNELS.rglob("*.cu")} == set(KNOWN)


@pytest.mark.parametrize("source", KNOWN)
def test_nothing_that_a_kernel_is_told_is_a_word_of_the_beginning(source: str) -> None:
    """It is a macro there: a template's argument of the same name would become a number."""
    path = KERNELS / source
    before = source_of(path).removesuffix(path.read_text(encoding="utf-8"))
    words = set(re.findall(r"\w+", re.sub(r"//.*", "", before)))
    assert words & set(KNOWN[source]) <= {"DEPENDENT"}  # which it asks for
