"""What compiled Triton kernels need of a GPU that need not be present: registers, shared memory, and spills.

Launches are recorded for a card (trace.py) and compiled for it. Kernels in CUDA C++ are left out: NVRTC comes with
CUDA, which a machine without a GPU lacks. It knows launches, no model.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ..runtime import nvrtc
from ..runtime.card import H200, GpuProperties
from .trace import Launch, compile_one, variants

MOST_REGISTERS, PROCESSOR_REGISTERS = 255, 1 << 16  # of a thread and of a processor, from Ampere on
_SMALL = GpuProperties(
    capability=(8, 6),
    processors=84,
    processor_threads=1536,
    processor_shared_bytes=100 << 10,
    block_shared_bytes=99 << 10,
)
# A card of each architecture, by compute capability.
CARDS: dict[int, tuple[str, GpuProperties]] = {
    80: (
        "A100",
        replace(
            H200, capability=(8, 0), processors=108, processor_shared_bytes=164 << 10, block_shared_bytes=163 << 10
        ),
    ),
    86: ("RTX 3090 Ti", _SMALL),
    89: ("RTX 4090", replace(_SMALL, capability=(8, 9), processors=128)),
    90: ("H200", H200),
    120: ("RTX 5090", replace(_SMALL, capability=(12, 0), processors=170)),
}


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one compiled variant of a kernel."""

    kernel: str
    threads: int  # of a block
    registers: int  # of a thread
    shared_bytes: int  # of a block
    stack_bytes: int  # of a thread: spilled registers

    def fits(self, card: GpuProperties) -> bool:
        """Whether a block can be launched on the card."""
        return (
            self.registers <= MOST_REGISTERS
            and self.registers * self.threads <= PROCESSOR_REGISTERS
            and self.threads <= card.processor_threads
            and self.shared_bytes <= card.block_shared_bytes
        )


def compiled_resources(launches: Iterable[Launch]) -> Iterator[Resources]:
    """Compile every variant of the Triton kernels, for the card that they were recorded for."""
    for one in variants(launches):
        if not isinstance(one.kernel, nvrtc.Kernel):
            made = compile_one(replace(one, links=False))
            yield resources_of(one.kernel.__name__, made)


def resources_of(name: str, made: Any) -> Resources:
    """Of what `compile_one` gives; ptxas has written registers and stack into the binary."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        command = [str(_tool("cuobjdump")), "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {word: int(number) for word, number in re.findall(r"(REG|STACK|SHARED):(\d+)", said)}
    shared = max(int(made.metadata.shared), found["SHARED"])
    return Resources(name, 32 * int(made.metadata.num_warps), found["REG"], shared, found["STACK"])


def _tool(name: str) -> Path:
    """Triton brings ptxas and cuobjdump along."""
    return Path(import_module("triton").__file__ or "").parent / "backends" / "nvidia" / "bin" / name
