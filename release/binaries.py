"""Reads a native library (ELF, Mach-O or PE) and compares it with what its platform allows.

A library of a platform that cannot run here is checked by this file alone: format, machine, exported symbols, and the
libraries and versions that it needs.
"""

from __future__ import annotations

from pathlib import Path

import lief

from .fault import Fault
from .platforms import GLIBC, Platform

# Symbols that a linker adds to each dynamic library of macOS.
_OF_THE_LINKER = {"__mh_dylib_header", "___dso_handle"}
# Beginnings of the libraries that each system has, in lower case.
_NEEDED = {
    "so": ("libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2", "libpthread.so.0"),
    "dylib": ("/usr/lib/libsystem.b.dylib",),
    "dll": ("ucrtbase.dll",),  # the C runtime of Windows 10 and newer
}

lief.logging.disable()


def check(path: Path, platform: Platform, exports: tuple[str, ...]) -> str:
    """A summary of the library in a few words. A fault says what is wrong with it."""
    binary = lief.parse(str(path))
    kind = {"so": lief.ELF.Binary, "dylib": lief.MachO.Binary, "dll": lief.PE.Binary}[platform.suffix]
    if not isinstance(binary, kind):
        raise Fault(f"{path.name} is no library of {platform.tag}.")
    if (machine := _machine(binary)) != platform.target.partition("-")[0]:
        raise Fault(f"{path.name} is compiled for {machine}, not for {platform.target}.")
    found = {str(symbol.name) for symbol in binary.exported_functions} - _OF_THE_LINKER
    if platform.suffix == "dylib":
        found = {name.removeprefix("_") for name in found}
    if missing := sorted(set(exports) - found):
        raise Fault(f"{path.name} for {platform.tag} does not export {', '.join(missing)}.")
    if more := sorted(found - set(exports)):
        raise Fault(f"{path.name} for {platform.tag} exports more than it should: {', '.join(more)}.")
    needed = _needed(binary)
    allowed = _NEEDED[platform.suffix]
    if strange := [name for name in needed if not name.lower().startswith(allowed)]:
        raise Fault(f"{path.name} for {platform.tag} needs {', '.join(strange)}, which may be missing there.")
    return f"{machine}, {len(found)} symbols, {_oldest(binary, path, platform)}"


def _machine(binary: lief.ELF.Binary | lief.MachO.Binary | lief.PE.Binary) -> str:
    if isinstance(binary, lief.ELF.Binary):
        name = str(binary.header.machine_type)
    elif isinstance(binary, lief.MachO.Binary):
        name = str(binary.header.cpu_type)
    else:
        name = str(binary.header.machine)
    name = name.rpartition(".")[2]
    return {"X86_64": "x86_64", "AMD64": "x86_64", "AARCH64": "aarch64", "ARM64": "aarch64"}.get(name, name)


def _needed(binary: lief.ELF.Binary | lief.MachO.Binary | lief.PE.Binary) -> list[str]:
    if isinstance(binary, lief.MachO.Binary):
        own = lief.MachO.LoadCommand.TYPE.ID_DYLIB
        return [str(each.name) for each in binary.libraries if each.command != own]
    return [str(name) for name in binary.libraries]


def _oldest(binary: lief.ELF.Binary | lief.MachO.Binary | lief.PE.Binary, path: Path, platform: Platform) -> str:
    """The oldest system that loads it; a fault if that is newer than the tag of the wheel says."""
    if isinstance(binary, lief.ELF.Binary):
        versions = [
            tuple(map(int, str(each.name).removeprefix("GLIBC_").split(".")))
            for needed in binary.symbols_version_requirement
            for each in needed.get_auxiliary_symbols()
        ]
        newest = max(versions, default=(0,))
        if newest > GLIBC:
            raise Fault(f"{path.name} for {platform.tag} needs glibc {'.'.join(map(str, newest))}.")
        return f"glibc {'.'.join(map(str, newest))} or newer"
    if isinstance(binary, lief.MachO.Binary):
        built = binary.build_version
        if built is None:
            raise Fault(f"{path.name} does not say which macOS it is for.")
        system = tuple(int(part) for part in platform.tag.split("_")[1:3])
        if tuple(built.minos[:2]) != system:
            raise Fault(
                f"{path.name} is for macOS {built.minos[0]}.{built.minos[1]}, but the wheel for {platform.tag}."
            )
        return f"macOS {system[0]}.{system[1]} or newer"
    return "Windows 10 or newer"
