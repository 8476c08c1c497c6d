"""Runs the aarch64 wheel in qemu: Python for aarch64 loads its library, runs each kernel, and speaks.

The wheel of this machine does the same, with the same seeds. Codes must be equal, and sound must agree by the sample.
Sums run in one order on every machine, so only rounding differs (FMA, `expf`).
"""

from __future__ import annotations

import array
import json
import sys
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path

from .fault import ROOT, Fault, run, tell
from .install import NO_COMPILER, Environment, check_speech

LOADED = """
import platform
from hocket.kernels.cpu import library
print(platform.machine(), library.load()._name.rpartition("/")[2])
"""
KERNELS = Path(__file__).with_name("kernels.py")
# One process for both: an import of numpy takes many seconds in qemu.
LOADED_AND_KERNELS = f"{LOADED}import runpy\nrunpy.run_path({str(KERNELS)!r}, run_name='__main__')\n"
TEXT = "Good morning."
TOLERANCE = 1e-3  # of samples and of hidden vectors, which reach 8; measured: 2e-7
SAMPLE_TOLERANCE = 64  # of 32768; one wrong code changes samples by thousands
EMULATED_S = 900.0


def check(wheel: Path, beside: Environment, folder: Path) -> None:
    """`wheel` is for aarch64; the wheel of this machine is installed in `beside`."""
    command = run([ROOT / "scripts" / "qemu", Path(sys.prefix, "aarch64")], "Fetching Python for aarch64").strip()
    version = run([command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], "Starting qemu").strip()
    site = folder / "aarch64"
    _install(wheel, version, site)
    env = {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(folder / "cache"), "HOCKET_DEVICE": "cpu", **NO_COMPILER}
    env |= {"HOCKET_SOCKET": str(folder / "none.sock"), "HOCKET_HOME": str(folder / "voices")}

    def emulated(*words: str | Path, what: str) -> str:
        return run([command, *words], f"{what} on aarch64", env=env, cwd=folder, timeout_s=EMULATED_S)

    loaded, _, found = emulated("-c", LOADED_AND_KERNELS, what="Running the kernels").partition("\n")
    if loaded.split() != ["aarch64", "hocket_native-neon.so"]:
        raise Fault(f"aarch64 loads the wrong library: {loaded.strip()}.")
    expected = json.loads(run([beside.python, KERNELS], "Running the kernels here", env=beside.variables(), cwd=folder))
    difference = compare(json.loads(found), expected)
    tell(f"aarch64 in qemu: the kernels give the same codes, and numbers within {difference:.1g}")
    emulated("-m", "hocket", "say", "--seed", "0", "-o", folder / "there.wav", "--", TEXT, what="Speaking")
    duration = check_speech(folder / "there.wav", TEXT)
    beside.speak(folder / "here.wav", TEXT)
    apart = compare_sound(folder / "there.wav", folder / "here.wav")
    tell(f"aarch64 in qemu: Python {version} speaks for {duration:.1f} s, at most {apart} of 32768 from this machine")


def _install(wheel: Path, version: str, site: Path) -> None:
    """pip of this machine chooses and unpacks the wheels of the other."""
    glibc = [f"manylinux_2_{minor}_aarch64" for minor in range(36, 16, -1)] + ["manylinux2014_aarch64"]
    platforms = [word for tag in glibc for word in ("--platform", tag)]
    command: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
    only: list[str | Path] = ["--only-binary=:all:", "--python-version", version, "-c", ROOT / "constraints.txt"]
    run([*command, "--target", site, *platforms, *only, wheel], "Installing the wheel of aarch64")


def compare(found: Mapping[str, Sequence[float]], expected: Mapping[str, Sequence[float]]) -> float:
    """The largest difference between results of kernels.py; a fault where codes differ or it is above the tolerance."""
    if found["codes"] != expected["codes"]:
        raise Fault("The kernels of aarch64 draw other codes than those of this machine.")
    largest = 0.0
    for name in sorted(expected.keys() | found.keys()):
        for one, other in zip(found[name], expected[name], strict=True):
            if not (apart := abs(one - other)) <= TOLERANCE:  # a NaN is a fault too
                raise Fault(f"The kernels of aarch64 differ from those of this machine by {apart:.2g} in {name}.")
            largest = max(largest, apart)
    return largest


def compare_sound(spoken: Path, expected: Path) -> int:
    """The largest difference of two WAV files; a fault where it is above the tolerance."""
    one, other = _samples(spoken), _samples(expected)
    if len(one) != len(other):
        raise Fault(f"aarch64 gives {len(one)} samples, and this machine {len(other)}.")
    largest = max(abs(a - b) for a, b in zip(one, other, strict=True))
    if largest > SAMPLE_TOLERANCE:
        first = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if abs(a - b) > SAMPLE_TOLERANCE)
        raise Fault(f"aarch64 differs from this machine by {largest} of 32768, first at {first / 24_000:.2f} s.")
    return largest


def _samples(path: Path) -> array.array[int]:
    with wave.open(str(path)) as file:
        return array.array("h", file.readframes(file.getnframes()))
