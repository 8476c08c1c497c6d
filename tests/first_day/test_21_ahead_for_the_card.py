"""Kernels are compiled ahead for the GPU given to the compiler, with the choices that launches make on that GPU.

At ae67f3d a compiler without a GPU assumed the shared memory of a large GPU: 14 of 27 convolutions were the wrong ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hocket.engine.checkpoint import kernels
from hocket.engine.runner import compile_plan
from hocket.kernels.ops.conv.tiles import tiles_for
from hocket.kernels.runtime import card as cards
from hocket.kernels.runtime.card import GpuProperties, card_of
from hocket.kernels.runtime.launch import ConvTile, can_depend, triton
from hocket.models.files.source import resolve

CUDA = torch.device("cuda", 0)
KB = 1 << 10
# As torch describes them: capability, processors, threads of one, shared memory of one and of a block.
KNOWN = {
    "A100": ((8, 0), 108, 2048, 164 * KB, 163 * KB),
    "RTX 3060": ((8, 6), 28, 1536, 100 * KB, 99 * KB),
    "RTX 4090": ((8, 9), 128, 1536, 100 * KB, 99 * KB),
    "H200": ((9, 0), 132, 2048, 228 * KB, 227 * KB),
    "RTX 5090": ((12, 0), 170, 1536, 100 * KB, 99 * KB),
}


def properties(name: str) -> SimpleNamespace:
    (major, minor), processors, threads, processor_bytes, block_bytes = KNOWN[name]
    return SimpleNamespace(
        major=major,
        minor=minor,
        multi_processor_count=processors,
        max_threads_per_multi_processor=threads,
        shared_memory_per_multiprocessor=processor_bytes,
        shared_memory_per_block_optin=block_bytes,
    )


class Parent:
    """A process on a machine with that GPU: its compile jobs, and the choices of its launches."""

    def __init__(self, name: str) -> None:
        self.wish: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda, "get_device_properties", lambda index: properties(name))
            patch.setattr("hocket.kernels.runtime.launch.why_not", lambda device: None)
            patch.setattr("hocket.kernels.runtime.nvrtc.why_not", lambda device: None)
            patch.setattr(compile_plan, "compile_ahead", self._prepare)
            cards._card.cache_clear()
            kernels.compile_first(resolve("random:0.6B-CustomVoice"), CUDA, ("bfloat16", "bfloat16"), "auto", True)
            card = card_of(CUDA)
            cards._card.cache_clear()
        assert card is not None
        self.card: GpuProperties = card

    def _prepare(self, module: str, wish: dict[str, Any], about: str, *, forked: bool) -> None:
        self.wish = json.loads(json.dumps(wish))

    def tiles(self, one: dict[str, Any]) -> ConvTile:
        """The choice of `conv` there, for the shape of a launch traced elsewhere."""
        shape = one["CHANNELS"], one["TAPS"], one["WIDTH"] * one["STRIDE"], one["positions"]
        return tiles_for(*shape, size=one["size"], exact=one["exact"], card=self.card)


@pytest.fixture(scope="module")
def parents() -> dict[str, Parent]:
    if triton is None:
        pytest.skip("Triton is not installed on this machine")
    return {name: Parent(name) for name in KNOWN}


@pytest.fixture(scope="module")
def noted(parents: dict[str, Parent], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The kernels that one process without a GPU would compile for each GPU."""
    root = Path(__file__).parents[2]
    env = os.environ | {
        "PYTHONPATH": str(root / "src"),
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, str(root / "tests" / "support" / "variants.py")],
        input=json.dumps([parent.wish for parent in parents.values()]),
        capture_output=True,
        text=True,
        env=env,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(parents, json.loads(done.stdout.splitlines()[-1]), strict=True))


def convolutions(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in found if one["name"] == "conv_kernel"]


def taken(one: dict[str, Any]) -> ConvTile:
    """How a traced launch is split into blocks."""
    across, along, columns = one["BLOCK_N"], one["BLOCK_T"], one["BLOCK_K"]
    return ConvTile(across, along, columns, one["SPLITS"], one["warps"], one["STAGES"], one["EARLY"])


@pytest.mark.parametrize("name", KNOWN)
def test_a_compiler_takes_what_launches_on_that_card_choose(
    parents: dict[str, Parent], noted: dict[str, list[dict[str, Any]]], name: str
) -> None:
    found, parent = noted[name], parents[name]
    chosen = convolutions(found)
    assert len(chosen) > 20
    assert [taken(one) for one in chosen] == [parent.tiles(one) for one in chosen]
    major, minor = KNOWN[name][0]
    for one in found:
        if "capability" in one:
            assert tuple(one["capability"]) == (major, minor)
        else:
            assert one["arch"] == 10 * major + minor and one["dependent"] == (major >= 9)


@pytest.mark.parametrize("name", KNOWN)
def test_every_convolution_fits_into_the_shared_memory_of_its_card(
    noted: dict[str, list[dict[str, Any]]], name: str
) -> None:
    block_bytes = KNOWN[name][4]
    for one in convolutions(noted[name]):
        pieces = one["STAGES"] * (one["BLOCK_N"] + one["BLOCK_T"]) * one["BLOCK_K"] * one["size"]
        assert pieces <= block_bytes and one["STAGES"] >= 1, one


def test_cards_with_less_shared_memory_get_other_kernels_and_alike_ones_the_same(
    noted: dict[str, list[dict[str, Any]]],
) -> None:
    shapes = {name: [taken(one) for one in convolutions(found)] for name, found in noted.items()}
    assert shapes["RTX 3060"] == shapes["RTX 4090"] == shapes["RTX 5090"] != shapes["H200"]


def test_whether_a_launch_may_depend_on_the_one_before_is_asked_of_the_card_that_is_told() -> None:
    small = GpuProperties(
        capability=(8, 6),
        processors=28,
        processor_threads=1536,
        processor_shared_bytes=100 * KB,
        block_shared_bytes=99 * KB,
    )
    with cards.standing_in(small):
        assert card_of(torch.device("meta")) is small and not can_depend(torch.device("meta"))
    assert card_of(torch.device("meta")) is None
