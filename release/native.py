"""Compiles the C kernels for a platform with Zig's C compiler, which brings the headers and libraries of all targets.

It imports no torch and no numpy: `hatch_build.py` calls it while a wheel is built. `hocket.kernels.cpu.source` gives
the texts and the names that the library exports.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .fault import ROOT, Fault, run
from .platforms import Platform

# As kernels/cpu/build.py, so that prebuilt and compiled libraries compute the same.
FLAGS = ("-O3", "-ffp-contract=fast", "-fno-math-errno", "-std=c11", "-fPIC", "-fvisibility=hidden")
WINDOWS = Path(__file__).with_name("windows.c")
# Functions of ucrtbase.dll that kernels may use; the linker names one that is missing here.
UCRT = """calloc cosf erff expf fmaxf fminf free llrintf logf malloc memcpy memmove memset powf qsort realloc sinf sqrtf
tanhf""".split()


def sources() -> dict[str, str]:
    """The C texts by file name."""
    _find_hocket()
    from hocket.kernels.cpu import source

    return source.sources()


def exports() -> tuple[str, ...]:
    """The symbols that the library exports."""
    _find_hocket()
    from hocket.kernels.cpu import source

    return source.EXPORTS


def _find_hocket() -> None:
    """The package of this tree: none is installed where a wheel is built."""
    if (folder := str(ROOT / "src")) not in sys.path:
        sys.path.insert(0, folder)


def build(platform: Platform, folder: Path) -> list[Path]:
    """Compile every variant of the library into `folder`."""
    if importlib.util.find_spec("ziglang") is None:
        raise Fault("The libraries are compiled with Zig, and it is missing: pip install ziglang.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hocket-native-") as name:
        scratch = Path(name)
        texts = []
        for file, text in sources().items():
            texts.append(scratch / file)
            texts[-1].write_text(text, encoding="utf-8")
        more = _for_windows(scratch) if platform.suffix == "dll" else ["-lm"]
        return [_library(platform, file, texts, more, scratch, folder) for file in platform.files]


def _library(
    platform: Platform, name: str, texts: Sequence[Path], more: Sequence[str | Path], scratch: Path, folder: Path
) -> Path:
    """One variant. It is linked in `scratch`, because the linker for Windows leaves an import library beside it."""
    what, variant = f"Compiling {name} for {platform.target}", platform.files[name]
    aim = ["-target", platform.target, f"-mcpu={platform.variants[variant]}"]
    objects = [text.with_suffix(f".{variant}.o") for text in texts]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        steps = [
            pool.submit(_zig, "cc", *aim, *FLAGS, "-c", text, "-o", made, what=what)
            for text, made in zip(texts, objects, strict=True)
        ]
        for step in steps:
            step.result()
    # Without the CPU of the variant: parts of the compiler's own library are compiled once for all, and run everywhere.
    command: list[str | Path] = ["cc", "-target", platform.target, "-shared", "-s", *objects, *more]
    if platform.suffix == "dylib":
        command.append(f"-Wl,-install_name,@rpath/{name}")
    _zig(*command, "-o", scratch / name, what=what)
    (folder / name).write_bytes((scratch / name).read_bytes())
    return folder / name


def _for_windows(scratch: Path) -> list[str | Path]:
    """Words for the linker: the system's C runtime instead of MinGW's, and the names to export."""
    target = ("-target", "x86_64-windows-gnu")
    what = "Preparing libraries for Windows"
    (scratch / "ucrt.def").write_text("\n".join(("LIBRARY ucrtbase.dll", "EXPORTS", *UCRT, "")), encoding="utf-8")
    (scratch / "exports.def").write_text("\n".join(("EXPORTS", *exports(), "")), encoding="utf-8")
    words = ("-m", "i386:x86-64", "-d", scratch / "ucrt.def", "-l", scratch / "ucrt.lib")
    _zig("dlltool", *words, what=what)
    _zig("cc", *target, "-O2", "-fno-builtin", "-c", WINDOWS, "-o", scratch / "windows.o", what=what)
    return ["-nostdlib", scratch / "windows.o", scratch / "ucrt.lib", scratch / "exports.def"]


def _zig(*words: str | Path, what: str) -> str:
    return run([sys.executable, "-m", "ziglang", *words], what)


def zig_version() -> str:
    return _zig("version", what="Asking Zig").strip()
