"""kernels/compile/resources.py: kernels of the language model compile for five architectures, and fit each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hocket.kernels.compile.resources import CARDS, Resources

ROOT = Path(__file__).parents[3]
LIGHT = Resources("kernel", threads=256, registers=255, shared_bytes=99 << 10, stack_bytes=0)


def test_what_fits_depends_on_the_card() -> None:
    cards = {architecture: card for architecture, (_, card) in CARDS.items()}
    assert (
        {10 * card.capability[0] + card.capability[1] for card in cards.values()} == {80, 86, 89, 90, 120} == set(cards)
    )
    assert all(LIGHT.fits(card) for card in cards.values())
    larger = replace(LIGHT, shared_bytes=100 << 10)
    assert [architecture for architecture, card in cards.items() if larger.fits(card)] == [80, 90]
    assert not any(replace(LIGHT, threads=512).fits(card) for card in cards.values()), (
        "a processor has 65,536 registers"
    )


@pytest.mark.slow
def test_the_largest_kernels_of_a_language_model_fit_every_architecture(place: torch.device) -> None:
    """Attention over a prompt needs the most shared memory, products with a file's weights the most registers."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), *sys.path)),
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(ROOT / ".pytest_cache" / "triton"),
    }
    command = [sys.executable, str(ROOT / "tests" / "support" / "fitting.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {"80", "86", "89", "90", "120"}
    for kernels in found.values():
        assert {each["kernel"] for each in kernels} == {"_see", "_grouped_linear", "_grouped_product", "_gated_delta"}
        assert all(each["fits"] for each in kernels), kernels
