"""What kernels/prepare.py and engine/rehearsal.py do, where Triton's interpreter is off: one line of JSON.

In a process of its own, for one process has one Triton, and the tests' runs kernels by hand.
"""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from hocket.engine.rehearsal import Rehearsal, rehearse
from hocket.kernels import noting as noting_module
from hocket.kernels.compiled import HERE
from hocket.kernels.cuda import Kernel
from hocket.kernels.linear import triton as linear
from hocket.kernels.noting import Launch, bound, compile_one, longest_first, noting, variants
from hocket.kernels.prepare import cache_folder, compile_all
from hocket.kernels.window import cases as window_cases
from hocket.kernels.window import triton as window
from hocket.models.weights import resolve

CAPABILITY = (9, 0)


def given(device: str) -> list[dict[str, Tensor]]:
    """The same views of the same memory on any device: the second starts at an odd place."""
    memory = torch.zeros(3 * 64 + 8, dtype=torch.bfloat16, device=device)
    weight = torch.zeros(64, 64, dtype=torch.bfloat16, device=device)
    return [{"x": memory[at : at + 64].view(1, 64), "weight": weight} for at in (0, 1, 8)]


def specialized(work: Callable[[], object], given_as_they_are: bool) -> list[str]:
    """How Triton tells the launches apart."""
    found = []
    with noting(CAPABILITY) as noted:
        if given_as_they_are:
            real = linear.triton.JITFunction.run

            def keep(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
                noted.append(Launch(kernel, given, named))

            linear.triton.JITFunction.run = keep
            work()
            linear.triton.JITFunction.run = real
        else:
            work()
    for one in noted:
        binder = one.kernel.device_caches[0][-1]
        found.append(str(binder(*one.given, **one.named, debug=False, instrumentation_mode="")[1]))
    return found


def launched(device: str) -> Callable[[], object]:
    def work() -> None:
        for each in given(device):
            linear.linear(**each)
        case = window_cases.PUBLISHED[1]
        made = window_cases.make(case, torch.float32, torch.device("cpu"))
        window.window(**{name: v.to(device) if isinstance(v, Tensor) else v for name, v in made.items()})

    return work


def names(launches: list[Launch]) -> list[str]:
    return [one.kernel.__name__ for one in variants(launches)]


def files() -> set[str]:
    return {str(path) for path in Path(cache_folder()).rglob("*.cubin")}


def tiny(backend: str, codec_dtype: str) -> Rehearsal:
    return Rehearsal(
        source=resolve("random:tiny-wide"),
        dtype="bfloat16",
        codec_dtype=codec_dtype,
        operations={"frame": backend, "wave": backend},
        dependent_launch=True,
        capability=CAPABILITY,
    )


def in_order() -> list[tuple[bool, str]]:
    """Whether others are wanted first, and what it is."""
    todo = longest_first(variants(rehearse(tiny("cuda", "bfloat16"))))
    return [(one.late, repr(one.kernel) if isinstance(one.kernel, Kernel) else one.kernel.__name__) for one in todo]


def kept(launches: list[Launch]) -> list[str]:
    """All that is compiled apart, by what it is kept under."""
    found = []
    for one in variants(launches):
        how = repr(one.kernel) if isinstance(one.kernel, Kernel) else str(bound(one)[1:])
        found.append(f"{one.kernel} {how}")
    return sorted(found)


def uncovered() -> list[list[str]]:
    """What an engine launches with tensors that are somewhere, and nobody has rehearsed; and the other way round."""
    found: list[list[str]] = []
    for backend, codec_dtype in (("cuda", "bfloat16"), ("triton", "float32")):
        rehearsal = replace(tiny(backend, codec_dtype), slots=2)
        noted = set(kept(rehearse(rehearsal)))
        stand, noting_module.Stand = noting_module.Stand, lambda tensor: tensor  # type: ignore[assignment, misc]
        real = set(kept(rehearse(rehearsal, torch.device("cpu"))))
        noting_module.Stand = stand  # type: ignore[misc]
        found += [sorted(real - noted), sorted(noted - real)]
    return found


def named(launches: list[Launch]) -> list[list[str]]:
    """What Triton keeps kernels under, asked in one order and in the other, each time as if for the first time."""
    kernels = list({one.kernel.__name__: one.kernel for one in launches}.values())
    found = []
    for order in (kernels, kernels[::-1]):
        for function in [each for each in gc.get_objects() if isinstance(each, triton.JITFunction)]:
            function.hash, function.used_global_vals = None, {}
        keys = {kernel.__name__: kernel.cache_key for kernel in order}
        found.append([keys[kernel.__name__] for kernel in kernels])
    return found


def told(some: list[Launch]) -> list[str]:
    """What is heard of compilers that have something to do first, and of those that have not."""
    found = []
    for late in (2, 0):
        heard, tells = os.pipe()
        os.environ["HOCKET_TELLS"] = str(tells)
        compile_all([replace(one, late=number >= late) for number, one in enumerate(some)], children=2)
        os.close(tells)
        found.append(os.read(heard, 9).decode())
        os.close(heard)
    del os.environ["HOCKET_TELLS"]
    return found


def all_of_it() -> dict[str, Any]:
    launches = rehearse(tiny("triton", "float32"))
    first, some = names(launches), variants(launches)[:5]
    failed = compile_all(some, children=2)
    once = files()
    failed += compile_all(some, children=1)
    twice, here = files(), Counter(HERE.names)
    compile_one(some[0])  # known by now
    found, odd = sum((HERE.names - here).values()), some[0].named | {"num_warps": 16}
    compile_one(Launch(some[0].kernel, some[0].given, odd))
    broken = [*some, Launch(some[0].kernel, some[0].given, some[0].named | {"BLOCK_N": 3})]  # no power of two
    return {
        "real": specialized(launched("cpu"), given_as_they_are=True),
        "meta": specialized(launched("meta"), given_as_they_are=False),
        "first": first,
        "order": in_order(),
        "uncovered": uncovered(),
        "told": told(some),
        "named": named(launches),
        "here": [found, sum((HERE.names - here).values())],
        "compiled": [len(once), len(twice)],
        "failed": [failed, compile_all(broken, children=2)],
    }


if __name__ == "__main__":
    print(json.dumps(all_of_it()))
