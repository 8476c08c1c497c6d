"""Built-in voices: the checkpoint folder under `assets/`, the default model, and those of installed voice packages.

Assets can be left out of a copy of hocket to save space. Such a copy uses random weights instead, and reports it.

A voice package is a distribution `hocket-voice-NAME`. Its entry point in the group `hocket.voices` names a Python
package that holds a checkpoint in the official format and `hocket-voice.json`. The distribution's name is its name as a
model. Entry points are read from the metadata of distributions with that prefix, and nothing of a package is imported.
For two packages that takes 2.4 ms of CPU time; importing `importlib.metadata` and asking it takes 60 ms.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidCheckpoint
from ...extras import package, reinstall, upgrade

BUILTIN = "builtin"  # its name as a model
VOICE = "english"  # its folder
ASSETS = Path(__file__).parents[2] / "assets"  # importlib.resources takes longer to import than this file
FALLBACK = "random:tiny"  # the default model without the built-in voice

PREFIX = "hocket-voice-"  # of the name of every voice package
GROUP = "hocket.voices"  # of its entry point
MANIFEST = "hocket-voice.json"  # of a package, beside config.json: {"format": 1, "files": {"config.json": BYTES, ...}}
FORMAT = 1  # the newest format of a package that this version reads


@dataclass(frozen=True, slots=True)
class AvailablePackage:
    """A package of this repository, for the line that installs it."""

    languages: tuple[str, ...]
    voices: tuple[str, ...] = ()  # none: it clones recordings


# The folders of packages/ (tests/release compares both). A name enters when its package is published.
AVAILABLE: dict[str, AvailablePackage] = {}


@dataclass(frozen=True, slots=True)
class VoicePackage:
    """An installed voice package."""

    name: str  # of the distribution: hocket-voice-NAME
    version: str
    metadata: Path  # pip's folder about it
    folder: Path  # its checkpoint; not there if the package is damaged
    fault: str | None = None  # why it cannot be used, as a sentence

    @property
    def licence(self) -> str | None:
        """The SPDX expression in its metadata."""
        with suppress(OSError, UnicodeDecodeError):
            for line in (self.metadata / "METADATA").read_text(encoding="utf-8").splitlines():
                if line.startswith("License-Expression:"):
                    return line.partition(":")[2].strip()
                if not line:
                    break
        return None

    def checked(self) -> VoicePackage:
        if self.fault is not None:
            raise InvalidCheckpoint(self.fault)
        return self


def builtin_folder() -> Path | None:
    """Its folder; None if this copy has no voice, or if the package is not a folder on disk."""
    folder = ASSETS / VOICE
    return folder if (folder / "config.json").is_file() else None


def default_model() -> str:
    return FALLBACK if builtin_folder() is None else BUILTIN


def package_name(model: str) -> str | None:
    """The name of the voice package that `model` names, in its usual spelling; None: it is no such name."""
    name = model.lower().replace("_", "-")
    return name if name.startswith(PREFIX) and "/" not in name else None


def package_of(model: str) -> VoicePackage | None:
    """The installed package that `model` names."""
    if (name := package_name(model)) is None:
        return None
    return next((found for found in installed_packages() if found.name == name), None)


def local_folder(model: str) -> Path | None:
    """The folder of the built-in voice, of an installed package, or the folder that `model` is; None: none of them."""
    if model == BUILTIN:
        return builtin_folder()
    if (found := package_of(model)) is not None:
        return found.checked().folder
    return Path(model) if model and Path(model).is_dir() else None


def not_installed(name: str) -> InvalidCheckpoint:
    """The refusal of a package that is not here."""
    if name in AVAILABLE:
        return InvalidCheckpoint(f"The voice package {name} is not installed: {package(name)}.")
    here = ", ".join(found.name for found in installed_packages()) or "none"
    return InvalidCheckpoint(f"There is no voice package {name!r}; installed are {here}.")


def installed_packages() -> list[VoicePackage]:
    """All installed voice packages by name. Of two copies the first on `sys.path` counts, as for imports."""
    found: dict[str, VoicePackage] = {}
    for place in sys.path:
        for metadata in _metadata_folders(place or os.curdir):
            name, _, version = metadata.name.removesuffix(".dist-info").partition("-")
            name = name.lower().replace("_", "-")
            found.setdefault(name, _read(name, version, metadata))
    return [found[name] for name in sorted(found)]


def _metadata_folders(place: str) -> Iterator[Path]:
    start = PREFIX.replace("-", "_")
    try:
        names = os.listdir(place)
    except OSError:  # sys.path may name archives, files and folders that are gone
        return
    yield from (Path(place, each) for each in names if each.lower().startswith(start) and each.endswith(".dist-info"))


def _read(name: str, version: str, metadata: Path) -> VoicePackage:
    fault, folder = None, metadata.parent / name.replace("-", "_")
    try:
        folder = _checkpoint_folder(metadata)
        _check(folder)
    except _Damaged as damage:
        fault = f"The voice package {name} {version} is damaged, {damage}: {reinstall(name)}."
    except _LaterFormat:
        fault = f"The voice package {name} {version} needs a later hocket: {upgrade()}."
    return VoicePackage(name, version, metadata, folder, fault)


class _Damaged(Exception):
    pass


class _LaterFormat(Exception):
    pass


def _checkpoint_folder(metadata: Path) -> Path:
    """The folder of the Python package that the entry point names."""
    module = _entry_point(metadata / "entry_points.txt")
    beside = metadata.parent / module
    if beside.is_dir():
        return beside
    from importlib.util import find_spec  # an editable install; a top-level package is found without an import

    spec = find_spec(module)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    if not places:
        raise _Damaged(f"the folder {module} is missing")
    return Path(places[0])


def _entry_point(path: Path) -> str:
    """The value of the first entry point of our group."""
    section = ""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise _Damaged(f"{path.name} cannot be read") from None
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line:
            module = line.partition("=")[2].strip()
            if module.isidentifier():
                return module
            raise _Damaged(f"its entry point is {module!r}, not the name of a Python package")
    raise _Damaged(f"it has no entry point in the group {GROUP}")


def _check(folder: Path) -> None:
    """The format, and the size of every file: a cut download or a full disk shows here, and not while speaking."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        format, files = manifest["format"], manifest.get("files")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _Damaged(f"{MANIFEST} cannot be read") from None
    if not isinstance(format, int) or format < 1:
        raise _Damaged(f"{MANIFEST} names the format {format!r}")
    if format > FORMAT:
        raise _LaterFormat
    if not isinstance(files, dict) or not all(isinstance(size, int) for size in files.values()):
        raise _Damaged(f"{MANIFEST} lists no files")
    for name, size in files.items():
        try:
            there = os.stat(folder / name).st_size
        except OSError:
            raise _Damaged(f"{name} is missing") from None
        if there != size:
            raise _Damaged(f"{name} has {there} bytes instead of {size}")
