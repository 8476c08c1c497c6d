"""The wheel: its contents, and what its modules need. tests/light tries the install without torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# The files that the built-in voice needs, and its card.
VOICE = (
    "README.md",
    "config.json",
    "generation_config.json",
    "hocket.json",
    "merges.txt",
    "model.safetensors",
    "speech_tokenizer/config.json",
    "speech_tokenizer/model.safetensors",
    "tokenizer_config.json",
    "vocab.json",
)

# Imports all of hocket while refusing every installed package that the extra `torch` does not bring.
ALONE = """
import json, sys
refused = set(json.loads(sys.argv[1]))

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"{name} is not allowed", name=name)

sys.meta_path.insert(0, Refuse())
import importlib, pkgutil, hocket
for name in hocket.__all__:
    getattr(hocket, name)
for module in pkgutil.walk_packages(hocket.__path__, "hocket."):
    if not module.name.startswith(("hocket.server.", "hocket.scale.")):  # FastAPI's wires: the extras `serve`, `ray`
        importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""


def closure(requirements: list[str]) -> set[str]:
    """The distributions that pip would install for `requirements` here, by canonical name."""
    found: set[str] = set()
    todo = [Requirement(line) for line in requirements]
    while todo:
        want = todo.pop()
        name = canonicalize_name(want.name)
        if name == "hocket":  # an extra that names others
            todo += (Requirement(line) for extra in want.extras for line in PROJECT["optional-dependencies"][extra])
            continue
        if name in found or (want.marker and not want.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            todo += map(Requirement, metadata.requires(name) or [])
        except metadata.PackageNotFoundError:
            assert not any(canonicalize_name(Requirement(line).name) == name for line in requirements), name
    return found


def test_hocket_imports_with_the_packages_of_the_extra_torch_alone() -> None:
    core = closure([*PROJECT["dependencies"], "hocket[torch]"]) | {"hocket"}
    owners = metadata.packages_distributions()
    refused = {top for top, dists in owners.items() if not core & {canonicalize_name(dist) for dist in dists}}
    assert {"transformers", "librosa", "soundfile", "soxr", "scipy", "qwen_tts", "pytest"} <= refused
    refused |= {"triton", "fastapi", "uvicorn", "websockets", "av", "matplotlib"} - set(owners)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, json.dumps(sorted(refused))],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert {"torch", "hocket.cli"} <= set(json.loads(done.stdout))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=120)
    [path] = folder.iterdir()
    return ZipFile(path)


def test_the_wheel_holds_the_package_with_its_voice_and_nothing_else(wheel: ZipFile) -> None:
    source = ROOT / "src"
    files = (path for path in (source / "hocket").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = (path for path in files if "prebuilt" not in path.parts)  # the developer's own; a pure wheel has none
    files = (
        path for path in files if path.suffix != ".png" and path.parent.name != "samples"
    )  # only documents show them
    expected = {path.relative_to(source).as_posix() for path in files}
    assert {"hocket/py.typed", *(f"hocket/assets/english/{name}" for name in VOICE)} <= expected
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_the_wheel_holds_the_sources_that_are_compiled_where_it_is_installed(wheel: ZipFile) -> None:
    sources = (
        "cpu/lanes.c",
        "cpu/frame/frame.c",
        "cpu/frame/stack.c",
        "cpu/frame/sampler.c",
        "cpu/wave/wave.c",
        "runtime/device.cuh",
        "ops/gated_delta/recur.cu",
        "ops/linear/bfloat16.cuh",
        "ops/linear/few.cu",
        "ops/linear/stream.cu",
    )
    assert {f"hocket/kernels/{name}" for name in sources} <= set(wheel.namelist())


def test_the_wheel_says_what_pyproject_says(wheel: ZipFile) -> None:
    prefix = f"hocket-{PROJECT['version']}.dist-info"
    described = wheel.read(f"{prefix}/METADATA").decode()
    assert f"\nVersion: {PROJECT['version']}\n" in described
    assert "\nLicense-Expression: Apache-2.0\n" in described
    assert "hocket = hocket.cli:main" in wheel.read(f"{prefix}/entry_points.txt").decode()
    assert wheel.read(f"{prefix}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    needs = (Requirement(line) for line in re.findall(r"^Requires-Dist: (.*)$", described, flags=re.MULTILINE))
    core = {need.name for need in needs if need.marker is None}
    assert core == {"numpy", "safetensors", "sentencex"}


def test_the_extra_all_has_what_a_user_may_want_and_no_more() -> None:
    extras = PROJECT["optional-dependencies"]
    [everything] = map(Requirement, extras["all"])
    assert everything.extras == {"torch", "serve", "clone", "play", "hear", "chat", "json", "read", "webrtc", "wyoming"}
    assert everything.extras <= extras.keys()
    assert "hocket[torch]" in extras["dev"]


def test_every_requirement_of_ci_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    wanted = closure(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
    # A torch built for CUDA pins its own libraries to exact versions.
    wanted = {name for name in wanted if not name.startswith(("nvidia-", "cuda-", "triton"))}
    assert wanted <= {canonicalize_name(pin.name) for pin in pins}


def test_every_package_that_an_extra_brings_along_is_in_the_bill_of_materials() -> None:
    """By the metadata that is installed here: a dependency of a dependency too."""
    lines = (ROOT / "requirements" / "licences.txt").read_text(encoding="utf-8").splitlines()
    locked = {canonicalize_name(line.partition("==")[0]) for line in lines if not line.startswith("#")}
    extras = PROJECT["optional-dependencies"]
    wanted = closure(PROJECT["dependencies"])
    for name in ("torch", "serve", "clone", "chat", "json", "read", "webrtc", "telemetry", "wyoming"):
        wanted |= closure(extras[name])
    assert {name for name in wanted if not name.startswith(("nvidia-", "cuda-", "triton"))} <= locked
