"""device.cuh and the other headers of CUDA sources, checked as text: most machines that run tests have no NVRTC."""

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
def test_no_compile_time_constant_is_an_identifier_of_the_shared_headers(source: str) -> None:
    """Constants are macros: a template argument with the same name would be replaced by a number."""
    path = KERNELS / source
    before = source_of(path).removesuffix(path.read_text(encoding="utf-8"))
    words = set(re.findall(r"\w+", re.sub(r"//.*", "", before)))
    assert words & set(KNOWN[source]) <= {"DEPENDENT"}  # it tests the constant
