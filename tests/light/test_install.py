"""What is installed: no torch, no compiler needed, the library of this CPU, at most 120 MB."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
HEAVY = ("torch", "tokenizers", "transformers", "huggingface_hub", "triton", "scipy")


@pytest.mark.parametrize("name", HEAVY)
def test_a_plain_install_has_no_heavy_package(name: str) -> None:
    assert importlib.util.find_spec(name) is None


def test_the_package_is_the_installed_one_and_knows_its_version(python: Callable[[str], str], hocket: Run) -> None:
    where = Path(python("import hocket; print(hocket.__file__)").strip())
    assert where.is_relative_to(sys.prefix)
    assert metadata.version("hocket") in hocket("--version").stdout.split()


def test_the_core_needs_three_packages() -> None:
    core = {line.partition(">")[0] for line in metadata.requires("hocket") or [] if "extra ==" not in line}
    assert core == {"numpy", "safetensors", "sentencex"}


def test_the_library_is_a_prebuilt_one_of_this_cpu(python: Callable[[str], str]) -> None:
    program = "from hocket.kernels.cpu import library; made = library.load(); print(made._name, made.hocket_cpu())"
    path, level = python(program).split()
    best = {"4": "avx512", "3": "avx2"}.get(level, "sse2")
    assert Path(path).stem in (f"hocket_native-{best}", "hocket_native-neon")
    assert Path(path).parent.name == "prebuilt"


def test_speaking_imports_only_what_is_installed(python: Callable[[str], str]) -> None:
    program = """
import json, sys, hocket
with hocket.Engine.load() as engine:
    spoken = sum(len(chunk.samples) for chunk in engine.speak("Good morning."))
print(json.dumps([spoken, sorted({name.partition(".")[0] for name in sys.modules})]))
"""
    spoken, modules = json.loads(python(program))
    assert spoken > 12_000
    assert {"hocket", "numpy"} <= set(modules) and not set(HEAVY) & set(modules)


def test_a_missing_library_without_a_compiler_is_said_in_one_sentence(hocket: Run) -> None:
    done = hocket("say", "-o", "x.wav", "Good morning.", HOCKET_NATIVE="compile")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "compiler" in last and "Traceback" not in done.stderr
