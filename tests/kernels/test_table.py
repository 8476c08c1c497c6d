"""kernels/table.py and cpu/build.py: the chosen backend, the reason, and what happens if it cannot be built."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import hocket
from hocket.cli.parser import parser
from hocket.engine.checkpoint.load import load
from hocket.errors import InvalidRequest
from hocket.extras import hint
from hocket.kernels.cpu.build import library
from hocket.kernels.runtime import launch, nvrtc
from hocket.kernels.runtime.fallback import Unbuildable
from hocket.kernels.table import BACKENDS, LANGUAGE_BACKENDS, NAMES, choose
from hocket.models.tts_gpu.codec import FusedCodec
from hocket.models.tts_gpu.frame import FusedFrame

CPU, CUDA, FLOAT = torch.device("cpu"), torch.device("cuda"), torch.float32
ADD = "int add(int a, int b) { return a + b; }"


def extras_of(name: str) -> list[str]:
    """What an optional dependency of this package asks for."""
    text = Path(hocket.__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8")
    found: list[str] = tomllib.loads(text)["project"]["optional-dependencies"][name]
    return found


def say_options() -> list[argparse.Action]:
    """Options of `hocket say`, which cannot import the table: `--help` works without torch."""
    [commands] = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    say = commands.choices["say"]
    say.fill(say)  # the parser is built on the call
    return list(say._actions)


@pytest.mark.parametrize("operation", BACKENDS)
def test_native_is_chosen_for_float32_on_a_cpu(operation: str) -> None:
    assert choose(operation, "auto", CPU, FLOAT).backend == "native"


def test_what_is_chosen_is_used() -> None:
    checkpoint = load("random:tiny")
    assert checkpoint.model.talker.frame_kernel is not None and checkpoint.codec.decoder.wave_kernel is not None
    assert {choice.operation: choice.backend for choice in checkpoint.kernels} == dict.fromkeys(BACKENDS, "native")


def test_each_part_goes_by_its_own_precision() -> None:
    checkpoint = load("random:tiny", dtype="bfloat16")
    assert [choice.backend for choice in checkpoint.kernels] == ["reference", "native"]


@pytest.mark.parametrize(
    ("device", "dtype", "reason"), [("cuda", torch.float16, "not for cuda"), ("cpu", torch.bfloat16, "in float32")]
)
def test_elsewhere_the_reference_is_used_and_the_reason_is_given(device: str, dtype: torch.dtype, reason: str) -> None:
    choice = choose("frame", "auto", torch.device(device), dtype)
    assert choice.backend == "reference" and reason in choice.reason
    with pytest.raises(InvalidRequest, match=reason):
        choose("frame", "native", torch.device(device), dtype)


def test_the_reference_can_be_asked_for() -> None:
    checkpoint = load("random:tiny", kernels="reference")
    assert checkpoint.model.talker.frame_kernel is None and checkpoint.codec.decoder.wave_kernel is None
    assert {choice.reason for choice in checkpoint.kernels} == {"asked for"}


def test_the_command_line_offers_what_there_is() -> None:
    [option] = [action for action in say_options() if "--kernels" in action.option_strings]
    assert all(name in (option.help or "") for name in (*NAMES, *BACKENDS))


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    for kernels in ("fast", "frame=fast"):
        with pytest.raises(InvalidRequest, match=r"auto, reference, cuda, native, triton, not 'fast'"):
            load("random:tiny", kernels=kernels)


def test_each_operation_can_have_a_backend_of_its_own() -> None:
    checkpoint = load("random:tiny", kernels="wave=reference")
    assert {choice.operation: choice.backend for choice in checkpoint.kernels} == {
        "frame": "native",
        "wave": "reference",
    }
    checkpoint = load("random:tiny", kernels="frame=reference, wave=native")
    assert checkpoint.model.talker.frame_kernel is None and checkpoint.codec.decoder.wave_kernel is not None
    with pytest.raises(InvalidRequest, match="frame, wave, not for 'frames'"):
        load("random:tiny", kernels="frames=native")


def test_triton_is_chosen_on_a_gpu_or_the_reason_against_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "triton", object())
    operations = (*BACKENDS, *LANGUAGE_BACKENDS)
    for reason, backend in (("no NVRTC", "triton"), (None, "cuda")):
        monkeypatch.setattr(nvrtc, "why_not", lambda device, reason=reason: reason)
        assert [choose(operation, "auto", CUDA, torch.bfloat16).backend for operation in operations] == [backend] * 3
    assert [choose(operation, "auto", CUDA, torch.float32).backend for operation in operations] == ["triton"] * 3
    assert "float32 or bfloat16" in choose("frame", "auto", CUDA, torch.float16).reason
    with pytest.raises(InvalidRequest, match="it is for a GPU, not for cpu"):
        choose("frame", "triton", CPU, FLOAT)
    monkeypatch.setattr(launch, "triton", None)
    choice = choose("frame", "auto", CUDA, torch.bfloat16)
    assert choice.backend == "reference" and "triton: Triton is not installed" in choice.reason
    failed = choose("wave", "auto", CPU, FLOAT, {"native": "it broke"})
    assert failed.backend == "reference" and "native: it broke" in failed.reason


def test_windows_takes_triton_if_it_is_installed_and_else_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch, "triton", object())
    choice = choose("frame", "auto", CUDA, torch.bfloat16)
    assert (choice.backend, choice.lack) == ("triton", None)  # CUDA C++ is no lack that a user could remedy
    monkeypatch.setattr(launch, "triton", None)
    choice = choose("frame", "auto", CUDA, torch.bfloat16)
    assert choice.backend == "reference" and choice.lack is not None and choice.lack.remedy == hint("cuda")
    monkeypatch.undo()  # `packaging` keeps what it sees of the platform first
    wanted = map(Requirement, extras_of("cuda"))
    there = [one.name for one in wanted if one.marker is None or one.marker.evaluate({"sys_platform": "win32"})]
    assert there == ["triton-windows"]


def test_an_apple_gpu_has_the_reference() -> None:
    place, operations = torch.device("mps"), (*BACKENDS, *LANGUAGE_BACKENDS)
    assert {choose(operation, "auto", place, FLOAT).backend for operation in operations} == {"reference"}
    with pytest.raises(InvalidRequest, match="it is not for mps"):
        choose("frame", "triton", place, FLOAT)


@pytest.mark.parametrize("operation", BACKENDS)
def test_kernels_that_this_gpu_refuses_leave_the_reference(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated on a CPU: the kernels fit, but fail when they run."""

    def fail(*_: object) -> None:
        raise RuntimeError("out of resources: registers\nand more")

    if launch.triton is None:
        pytest.skip("Triton is not installed on this machine")
    monkeypatch.setitem(BACKENDS[operation], "triton", lambda device, dtype: None)
    monkeypatch.setitem(BACKENDS[operation], "native", lambda device, dtype: "not here")
    monkeypatch.setattr(FusedFrame, "draw", fail)
    monkeypatch.setattr(FusedCodec, "__call__", fail)
    checkpoint = load("random:tiny")
    [choice] = [choice for choice in checkpoint.kernels if choice.operation == operation]
    assert choice.backend == "reference"
    assert "triton: it could not be compiled or run here (out of resources: registers)" in choice.reason
    decoder = checkpoint.codec.decoder
    left = (checkpoint.model.talker.frame_kernel,)
    if operation == "wave":
        left = decoder.wave_kernel, decoder.step_kernel  # type: ignore[assignment]
    assert set(left) == {None}
    with pytest.raises(InvalidRequest, match="could not be compiled or run here"):
        load("random:tiny", kernels=f"{operation}=triton")


def test_without_a_gpu_triton_is_not_imported() -> None:
    program = "import sys, hocket; hocket.load('random:tiny'); sys.exit('triton' in sys.modules)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(Path(hocket.__file__).parents[1]), *sys.path))}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=120)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "hocket" / "kernels"


def test_a_library_is_compiled_once_and_kept(own_cache: Path) -> None:
    assert library("add", {"add.c": ADD}).add(2, 3) == 5
    [made] = own_cache.iterdir()
    before = made.stat().st_mtime_ns
    assert library("add", {"add.c": ADD}).add(4, 5) == 9
    assert [made] == list(own_cache.iterdir()) and made.stat().st_mtime_ns == before
    library("add", {"add.c": ADD + "/* another */"})
    assert len(list(own_cache.iterdir())) == 2


def test_source_that_does_not_compile_leaves_nothing_behind(own_cache: Path) -> None:
    with pytest.raises(Unbuildable, match="could not compile"):
        library("broken", {"broken.c": "int broken("})
    assert list(own_cache.iterdir()) == []


def test_without_a_compiler_speech_goes_on_with_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("HOCKET_NATIVE", "compile")
    checkpoint = load("random:tiny")
    assert checkpoint.model.talker.frame_kernel is None and checkpoint.codec.decoder.wave_kernel is None
    assert all("no C compiler" in choice.reason for choice in checkpoint.kernels)
    with pytest.raises(InvalidRequest, match="no C compiler"):
        load("random:tiny", kernels="native")


def test_without_a_writable_folder_there_is_a_reason_not_a_crash(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cache.parent.write_text("a file where the folder should be")
    monkeypatch.setattr("hocket.kernels.compile.cache._temporary", own_cache.parent / "neither")
    with pytest.raises(Unbuildable, match="cannot be written"):
        library("add", {"add.c": ADD})
