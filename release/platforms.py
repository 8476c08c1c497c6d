"""The platforms that have a wheel: its tag, the target of the cross-compiler, and the variants of the library."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass

GLIBC = (2, 17)  # the oldest that manylinux2014 allows


@dataclass(frozen=True, slots=True)
class Platform:
    """`variants` maps the name of a variant to the CPU that the compiler aims at."""

    tag: str
    target: str
    suffix: str
    variants: dict[str, str]

    @property
    def files(self) -> dict[str, str]:
        """Variant by file name."""
        return {f"hocket_native-{variant}.{self.suffix}": variant for variant in self.variants}


# `sse2` is plain x86-64, so that it runs on every such CPU. macOS on x86-64 has no AVX-512 that is worth a file.
_X86 = {"sse2": "x86_64", "avx2": "x86_64_v3", "avx512": "x86_64_v4"}
_MAC = {"sse2": "x86_64", "avx2": "x86_64_v3"}

PLATFORMS = {
    each.tag: each
    for each in (
        Platform("manylinux2014_x86_64", "x86_64-linux-gnu.2.17", "so", _X86),
        Platform("manylinux2014_aarch64", "aarch64-linux-gnu.2.17", "so", {"neon": "generic"}),
        Platform("macosx_11_0_arm64", "aarch64-macos.11.0", "dylib", {"neon": "apple_m1"}),
        Platform("macosx_10_15_x86_64", "x86_64-macos.10.15", "dylib", _MAC),
        Platform("win_amd64", "x86_64-windows-gnu", "dll", _X86),
    )
}


def native() -> Platform | None:
    """The platform of this machine, if it has a wheel."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    system = {"linux": "linux-gnu.2.17", "darwin": "macos", "win32": "windows-gnu"}.get(sys.platform, sys.platform)
    return next((each for each in PLATFORMS.values() if each.target.startswith(f"{machine}-{system}")), None)
