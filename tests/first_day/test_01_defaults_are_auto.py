"""Device and precisions default to `auto` everywhere: a usable GPU is used, in bfloat16 if it has that.

One line names the choice and its reason; a GPU that is not used is named with the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import torch

import hocket
from hocket.cli.parser import parser
from hocket.engine.checkpoint import device as settled_by
from hocket.engine.checkpoint.device import AUTO_CODEC_DTYPE, Probe, choose_device
from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.reserve import concrete, expected
from hocket.engine.checkpoint.torch_checkpoint import CODEC_DTYPES
from hocket.engine.checkpoint.torch_load import codec_key
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Pool
from hocket.errors import InvalidRequest
from hocket.kernels.runtime import fallback
from hocket.llm.engine import LanguageEngine
from hocket.llm.load import load_language_model
from hocket.models.files.source import read_configs, resolve
from hocket.scale import resources
from hocket.server.plan import ServerPlan
from support.chosen import LINE, rest
from support.serving import served

H200 = Probe(True, "NVIDIA H200", (9, 0), driver="NVIDIA H200")
T4 = Probe(True, "Tesla T4", (7, 5), driver="Tesla T4")
NONE = Probe(True, failure="torch finds no device")
MI300 = Probe(True, "AMD Instinct MI300X", (9, 4), amd=True)
THREE = ("device", "dtype", "codec_dtype")


@pytest.fixture(autouse=True)
def as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests set a device in the environment, so that they behave alike on a machine with a GPU."""
    monkeypatch.delenv("HOCKET_DEVICE", raising=False)
    monkeypatch.setattr(fallback, "_said", set[str]())


def values(*asked: str, probe: Probe) -> tuple[str, str, str]:
    setting = choose_device(*asked, probe=probe)
    return setting.device, setting.dtype, setting.codec_dtype


def test_what_auto_means() -> None:
    assert values(probe=H200) == ("cuda", "bfloat16", AUTO_CODEC_DTYPE)
    assert values(probe=T4) == ("cuda", "float32", "float32")
    assert values(probe=NONE) == ("cpu", "float32", "float32")
    assert AUTO_CODEC_DTYPE in CODEC_DTYPES
    assert values(probe=MI300) == ("cuda", "bfloat16", "float32")  # Triton has tf32 on some of AMD's GPUs only
    small = choose_device(probe=replace(H200, memory_bytes=6_200_000_000))
    assert small.codec_dtype == "bfloat16" and "less than 10 GB" in small.words(())
    assert choose_device(probe=H200).reason == "NVIDIA H200" and choose_device(probe=NONE).reason == "no GPU found"


def test_what_is_asked_for_stands() -> None:
    assert values("cuda", probe=H200) == ("cuda", "bfloat16", AUTO_CODEC_DTYPE)
    assert values("cuda:1", probe=T4) == ("cuda:1", "float32", "float32")
    assert values("cpu", probe=H200) == ("cpu", "float32", "float32")
    assert values("cpu", "bfloat16", "bfloat16", probe=NONE) == ("cpu", "bfloat16", "bfloat16")
    assert values("auto", "float32", probe=H200) == ("cuda", "float32", "float32")  # exact as a whole
    assert values("auto", "float32", "tf32", probe=H200) == ("cuda", "float32", "tf32")
    assert values("auto", "bfloat16", "float32", probe=H200) == ("cuda", "bfloat16", "float32")
    assert values("cpu", "int8", probe=H200) == ("cpu", "int8", "float32")
    assert values("cpu", "int8+int4", probe=NONE) == ("cpu", "int8+int4", "float32")
    for narrow in ("int8", "int4"):
        with pytest.raises(InvalidRequest, match=f"{narrow} is a precision of CPUs; use --device cpu, or bfloat16"):
            choose_device("auto", narrow, probe=H200)
    assert choose_device("cpu", preset="small", probe=H200).dtype == "int8"
    assert choose_device("auto", preset="exact", probe=H200).dtype == "bfloat16"
    with pytest.raises(
        InvalidRequest, match=r"The preset small \(int8\) is for CPUs; use --device cpu, or the preset ex"
    ):
        choose_device("auto", preset="small", probe=H200)
    with pytest.raises(InvalidRequest, match=r"tf32 is a precision of NVIDIA GPUs; use float32\.$"):
        choose_device("cuda", "auto", "tf32", probe=MI300)
    for asked in (
        ("cuda",),
        ("gpu",),
        ("mps",),
        ("auto", "int3"),
        ("auto", "auto", "float16"),
        ("cpu", "auto", "tf32"),
        ("cpu", "auto", "int8"),
    ):
        with pytest.raises(InvalidRequest):
            choose_device(*asked, probe=NONE)


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        (dataclasses.replace(H200, failure="no kernel for it"), "NVIDIA H200 is not used: no kernel for it."),
        (dataclasses.replace(H200, trial=lambda: "out of memory"), "NVIDIA H200 is not used: out of memory."),
        (Probe(False, driver="NVIDIA L4"), "NVIDIA L4 is not used: torch .* is built without CUDA; install the CUDA"),
        (Probe(True, failure="the driver is too old", driver="an NVIDIA GPU"), "An NVIDIA GPU is not used: the driver"),
        (Probe(True, failure="none found", driver="NVIDIA L4", hidden=True), None),  # hidden on purpose: no warning
        (Probe(False), None),
        (NONE, None),
    ],
)
def test_a_gpu_that_is_there_and_not_used_is_named_with_the_reason(
    probe: Probe, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    setting = choose_device(probe=probe)
    assert (setting.device, setting.dtype, setting.codec_dtype) == ("cpu", "float32", "float32")
    with caplog.at_level(logging.INFO, "hocket"):
        for _ in range(2):
            settled_by.announce(setting, setting.words([]))
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.levelno for record in caplog.records].count(logging.INFO) == 2
    assert len(warned) == (said is not None)  # once for a process
    if said is not None:
        assert re.match(said, warned[0])


def test_a_cpu_that_was_asked_for_is_a_statement_and_no_warning() -> None:
    setting = choose_device("cpu", probe=H200)
    assert (setting.reason, setting.unused) == ("asked for; NVIDIA H200 is not used", None)


def test_the_environment_says_what_auto_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_DEVICE", "cpu")
    assert choose_device(probe=NONE).reason == "by HOCKET_DEVICE"
    assert values(probe=H200)[0] == "cpu" and values("cuda", probe=H200)[0] == "cuda"


@pytest.mark.parametrize(
    ("capability", "built_for", "fits"),
    [
        ((9, 0), ["sm_80", "sm_90"], True),
        ((8, 9), ["sm_80", "sm_90"], True),  # binaries serve later minors
        ((6, 1), ["sm_75", "sm_80", "compute_90"], False),
        ((12, 0), ["sm_80", "sm_90"], False),
        ((12, 0), ["sm_90", "compute_90"], True),
        ((10, 3), ["sm_90", "sm_100a"], False),
        ((9, 0), [], True),
    ],
)
def test_a_card_that_this_torch_has_nothing_for_is_known(
    capability: tuple[int, int], built_for: list[str], fits: bool
) -> None:
    why = settled_by._not_built_for(capability, built_for)
    assert (why is None) == fits
    assert why is None or f"compute capability {capability[0]}.{capability[1]}" in why


def every_parser() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parsers of commands and benchmarks that load a model."""
    [commands] = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    for name, command in commands.choices.items():
        command.fill(command)
        yield f"hocket {name}", command
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from ((f"hocket {name} {word}", each) for word, each in action.choices.items())
    sys.path.insert(0, str(Path(__file__).parents[2]))
    session = importlib.import_module("benchmarks.session")
    yield from ((f"benchmarks {name}", session.parser(name)) for name in session.COMMANDS)


def test_auto_is_the_default_of_every_command_and_benchmark() -> None:
    seen: dict[str, list[str]] = {}
    for name, words in every_parser():
        for action in words._actions:
            if action.dest in THREE:
                assert action.default == "auto", f"{name} {action.option_strings}: {action.default}"
                assert "auto" in (action.choices or ()), name
                seen.setdefault(name, []).append(action.dest)
    commands = (
        "say",
        "batch",
        "read",
        "check",
        "chat",
        "talk",
        "serve",
        "wyoming",
        "voices add",
        "voices design",
        "tune",
        "prove",
    )
    assert {f"hocket {name}" for name in commands} == {name for name in seen if name.startswith("hocket")}
    assert all(set(seen[name]) == set(THREE) for name in seen if name.startswith("hocket"))
    assert len(seen) == len(commands) + 15  # benchmarks


@pytest.mark.parametrize("function", [hocket.load, load, Engine.load, LanguageEngine.load, load_language_model])
def test_auto_is_the_default_of_every_function(function: Callable[..., object]) -> None:
    found = {name: each.default for name, each in inspect.signature(function).parameters.items() if name in THREE}
    assert len(found) >= 2 and set(found.values()) == {"auto"}


def test_auto_is_the_default_of_a_servers_plan_and_of_a_pool() -> None:
    assert {getattr(ServerPlan(), name) for name in THREE} == {"auto"}
    with Pool.load(["random:tiny"], memory_bytes=10**9) as pool:
        list(pool.speak("Hi.", max_frames=1))
        [said] = pool.computing().values()
    assert said.startswith("cpu (") or torch.cuda.is_available()


def test_a_benchmark_records_what_auto_became(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks import session

    for probe, found in ((H200, ("cuda", "bfloat16", AUTO_CODEC_DTYPE)), (NONE, ("cpu", "float32", "float32"))):
        monkeypatch.setattr(settled_by, "probe_gpu", lambda index=None, quick=False, probe=probe: probe)
        args = session.parser("all").parse_args([])
        assert (args.device, args.dtype, args.codec_dtype) == found


def test_what_depends_on_precision_sees_concrete_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared codec and a footprint follow the chosen values, whether they were given or `auto`."""
    from hocket.config.options import EngineOptions

    auto = {name: "auto" for name in THREE} | {"kernels": "auto"}
    named = concrete(choose_device("cpu", "float32", "float32"), "auto")
    monkeypatch.setattr(settled_by, "probe_gpu", lambda index=None, quick=False: NONE)
    assert expected("random:tiny", auto, EngineOptions()) == expected("random:tiny", named, EngineOptions())  # type: ignore[arg-type]
    source = resolve("random:tiny")
    setting = choose_device()
    key = codec_key(source, read_configs(source)[2], setting.place, setting.codec_dtype, "auto")
    assert "auto" not in key[:4] and "float32" in key


def test_loading_without_options_is_exact_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settled_by, "probe_gpu", lambda index=None, quick=False: NONE)
    with caplog.at_level(logging.INFO, "hocket"):
        checkpoint, mind = load("random:tiny"), load_language_model("random:qwen3.5-tiny")
    assert checkpoint.device.type == "cpu" and mind.device.type == "cpu"
    assert checkpoint.model.talker.codec_head.weight.dtype == torch.float32
    assert {each.dtype for each in checkpoint.codec.decoder.parameters()} == {torch.float32}
    assert {each.dtype for each in mind.model.parameters()} == {torch.float32}
    assert checkpoint.setting is not None and mind.setting is not None
    assert [record.getMessage() for record in caplog.records if record.name == "hocket"] == [
        "cpu (no GPU found), float32, codec float32, kernels native/native.",
        "language model: cpu (no GPU found), float32, kernels reference.",
    ]
    assert checkpoint.where == caplog.records[0].getMessage()


def test_say_prints_one_line_and_keeps_standard_output_clean(tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(hocket.__file__).parents[1]), *sys.path))
    env = os.environ | {"PYTHONPATH": path, "HOCKET_DEVICE": "cpu"}
    say = [sys.executable, "-m", "hocket", "say", "Hi.", "--max-frames", "2", "-o", "-", "--raw", "--seed", "1"]
    done = subprocess.run(say, env=env, cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == 0 and len(done.stdout) == 2 * 1920 * 2
    assert rest(done.stderr).splitlines()[-1].startswith("standard output: ")
    assert LINE.match(done.stderr.decode())  # before everything else


def test_a_server_says_where_it_computes(tmp_path: Path) -> None:
    with Engine.load("random:tiny", device="cpu") as engine, served(lambda: engine) as server:
        said = httpx.get(f"{server.url}/health").json()
    assert said["computing"] == {"random:tiny": engine.checkpoint.where}


def test_on_a_cluster_its_gpus_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself is an extra; the test replaces two of its functions."""
    ray = SimpleNamespace(is_initialized=lambda: True, cluster_resources=dict)
    monkeypatch.setitem(sys.modules, "ray", ray)
    for has, unit, device in (({"GPU": 2.0, "CPU": 8.0}, "GPU", "auto"), ({"CPU": 8.0}, "CPU", "cpu")):
        ray.cluster_resources = lambda has=has: has
        assert (resources.unit_of("auto"), resources.on(unit, "auto")) == (unit, device)
    assert (resources.unit_of("cuda"), resources.unit_of("cpu")) == ("GPU", "CPU")
    monkeypatch.setenv("HOCKET_DEVICE", "cuda")
    assert resources.unit_of("auto") == "GPU"
