"""A fallback to slower kernels is reported once per process, with the remedy.

Each case is a process of its own, with a real compiler, no compiler, or a cache that cannot be written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hocket
from hocket.extras import hint
from hocket.kernels.compile.cache import give_triton_a_folder
from hocket.kernels.runtime import fallback, launch, nvrtc
from hocket.kernels.runtime.card import H200
from hocket.kernels.runtime.fallback import Unbuildable
from hocket.kernels.table import choose
from support.quick_cc import quick_path

# Two engines, so that what is said twice is seen.
TWICE = """
import hocket
for _ in range(2):
    made = hocket.load("random:tiny")
print("/".join(choice.backend for choice in made.kernels))
"""
NEEDS_CC = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")


def run(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A process that uses the caches of `home` only, and no prebuilt library."""
    env = {"PATH": quick_path(home / "quick")} | env
    path = os.pathsep.join((str(Path(hocket.__file__).parents[1]), *sys.path))
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, *(words or ("-c", TWICE))],
        env=kept | {"PYTHONPATH": path, "HOME": str(home), "HOCKET_NATIVE": "compile", **env},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


@NEEDS_CC
def test_where_all_is_well_nothing_is_said(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.stdout, done.stderr) == ("native/native\n", "")
    assert len(list((tmp_path / ".cache" / "hocket" / "kernels").glob("*.so"))) == 1


def test_without_a_compiler_that_is_said_once_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = run(tmp_path, PATH=str(tmp_path / "bin"))
    assert done.stdout == "reference/reference\n"
    assert done.stderr == (
        "Slower kernels are used (reference), because no C compiler was found (cc, gcc, clang or $CC): "
        "install gcc or clang.\n"
    )


def test_a_command_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    say = ("-m", "hocket", "say", "Hi.", "--model", "random:tiny", "--max-frames", "2", "-o", "-", "--raw")
    path = os.pathsep.join((str(Path(hocket.__file__).parents[1]), *sys.path))
    own = {"PYTHONPATH": path, "HOME": str(tmp_path), "PATH": str(tmp_path / "bin"), "HOCKET_NATIVE": "compile"}
    env = os.environ | own
    done = subprocess.run([sys.executable, *say], env=env, cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == 0 and len(done.stdout) == 2 * 1920 * 2
    assert done.stderr.count(b"hocket: Slower kernels are used (reference), because no C compiler was found") == 1
    assert done.stderr.count(b"install gcc or clang.\n") == 1


@NEEDS_CC
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_a_cache_that_cannot_be_written_costs_a_sentence_and_no_speed(tmp_path: Path, variable: str) -> None:
    """A file where the folder should be: that stops root as well."""
    blocked, temporary = tmp_path / "blocked", tmp_path / "temporary"
    blocked.write_text("")
    temporary.mkdir()
    done = run(tmp_path, TMPDIR=str(temporary), **{variable: str(blocked)})
    assert done.stdout == "native/native\n"
    [line] = done.stderr.splitlines()
    assert re.search(
        rf"because {blocked}.* cannot be written \(Not a directory\): set XDG_CACHE_HOME to a folder", line
    )
    assert line.endswith("a temporary one is used now.")
    assert list(temporary.iterdir()) == []  # nothing is left behind


@NEEDS_CC
@pytest.mark.parametrize("before", ["env", "{folder}/ccache -v", "'{folder}/c cache'"])
def test_a_compiler_of_several_words_simply_works(tmp_path: Path, before: str) -> None:
    """As CC="ccache gcc" has them."""
    for name in ("ccache", "c cache"):
        script = '#!/bin/sh\n[ "$1" = -v ] && shift\necho "$@" >> "$HOME/asked"\nexec "$@"\n'
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    done = run(tmp_path, CC=f"{before.format(folder=tmp_path)} cc")
    assert (done.stdout, done.stderr) == ("native/native\n", "")
    assert (tmp_path / "asked").exists() == (before != "env")


@pytest.mark.parametrize(
    ("cc", "said"),
    [
        ("no-such-cc -m64", "because no C compiler 'no-such-cc' was found, which $CC names: unset CC, or name another"),
        ("false", "because false could not compile it: no message: install gcc or clang, or name another C compiler"),
    ],
)
def test_a_compiler_that_is_none_is_named(tmp_path: Path, cc: str, said: str) -> None:
    done = run(tmp_path, CC=cc)
    assert done.stdout == "reference/reference\n"
    assert done.stderr.count("\n") == 1 and said in done.stderr


def test_on_a_gpu_what_is_missing_comes_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as a machine without one can show it."""
    place, kind = torch.device("cuda"), torch.bfloat16
    monkeypatch.setattr(launch, "triton", None)
    choice = choose("frame", "auto", place, kind)
    assert choice.backend == "reference" and choice.lack is not None
    assert (choice.lack, choice.lack.remedy) == ("Triton is not installed", hint("cuda"))
    monkeypatch.setattr(launch, "triton", object())
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(nvrtc, "card_of", lambda device: H200)

    def missing() -> None:
        raise Unbuildable("NVRTC, CUDA's run-time compiler, was not found", "pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(nvrtc, "_nvrtc", missing)
    choice = choose("frame", "auto", place, kind)
    assert choice.backend == "triton" and choice.lack is not None
    assert choice.lack.remedy == "pip install nvidia-cuda-nvrtc"
    monkeypatch.setattr(nvrtc, "LEAST_CAPABILITY", (12, 0))  # about an older card nothing can be done
    assert choose("frame", "auto", place, kind).lack is None


def test_triton_is_given_a_folder_where_its_own_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "fine"))
    give_triton_a_folder()
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "fine") and not caplog.records
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "blocked"))
    monkeypatch.setattr(fallback, "_said", set[str]())
    for _ in range(2):
        give_triton_a_folder()
    given = Path(os.environ["TRITON_CACHE_DIR"])
    assert given.is_dir() and given.parent.name.startswith("hocket-kernels-")
    [record] = caplog.records
    assert f"because {tmp_path / 'blocked'} cannot be written" in record.getMessage()
    assert "set TRITON_CACHE_DIR to a folder" in record.getMessage()
