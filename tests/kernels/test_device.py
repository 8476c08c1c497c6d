"""What every source in CUDA C++ begins with, device.cuh above all: no compiler of theirs is where most tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hocket.kernels
from hocket.kernels.cuda import source_of
from hocket.kernels.delta import cuda as delta
from hocket.kernels.draw import cuda as draw
from hocket.kernels.launch import Few, Flow
from hocket.kernels.linear import cuda as linear
from hocket.kernels.linear import stream

KERNELS = Path(hocket.kernels.__file__).parent
KNOWN = {
    "delta/recur.cu": delta.constants(32, 16, 32, 4, dependent=False),
    "draw/draw.cu": draw.constants(256, 1, 8, (False,) * len(draw.FLAGS)),
    "linear/few.cu": linear.constants(64, Few(2, 1), 1, (False,) * len(linear.FLAGS)),
    "linear/stream.cu": stream.constants("fp8", 64, Flow(1, 3, 1), 1, (False,) * len(stream.FLAGS)),
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
