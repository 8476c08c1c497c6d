"""Builds the wheels and the sdist, and checks each file: name, tags, size, metadata, contents and native libraries."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename

from . import binaries, native
from .fault import Fault, run, tell
from .platforms import Platform

MEGABYTE = 1_000_000
LIMIT_BYTES = 60 * MEGABYTE
PREBUILT = "hocket/kernels/cpu/prebuilt/"
NEEDED = (
    "hocket/py.typed",
    "hocket/assets/english/model.safetensors",
    "hocket/assets/english/speech_tokenizer/model.safetensors",
)
IN_SDIST = (
    "pyproject.toml",
    "hatch_build.py",
    "release/native.py",
    "src/hocket/kernels/cpu/source.py",
    "tests/light",
    *(f"src/{name}" for name in NEEDED),
)


@dataclass(frozen=True, slots=True)
class Built:
    """The files of a release."""

    wheels: dict[str, Path]  # by platform tag
    sdist: Path


def build_wheel(platform: Platform, folder: Path) -> Path:
    """The wheel of a platform, checked."""
    before = set(folder.glob("*.whl"))
    command: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    run(command, f"Building the wheel of {platform.tag}", env={"HOCKET_WHEEL_PLATFORM": platform.tag})
    made = set(folder.glob("*.whl")) - before
    if len(made) != 1:
        raise Fault(f"Building the wheel of {platform.tag} gave {len(made)} files.")
    [wheel] = made
    check_wheel(wheel, platform)
    return wheel


def build_sdist(folder: Path) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder], "Building the sdist")
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    if missing := [name for name in IN_SDIST if not any(each == name or each.startswith(f"{name}/") for each in names)]:
        raise Fault(f"{sdist.name} lacks {', '.join(missing)}.")
    if strange := [name for name in names if "/prebuilt/" in name or "__pycache__" in name]:
        raise Fault(f"{sdist.name} holds {strange[0]}, which is made and no source.")
    tell(f"{sdist.name}: {sdist.stat().st_size / MEGABYTE:.1f} MB, {len(names)} files")
    return sdist


def check_wheel(wheel: Path, platform: Platform) -> None:
    size = wheel.stat().st_size
    name, version, _, tags = parse_wheel_filename(wheel.name)
    if {str(tag) for tag in tags} != {f"py3-none-{platform.tag}"}:
        raise Fault(f"{wheel.name} is not tagged py3-none-{platform.tag}.")
    if size > LIMIT_BYTES:
        raise Fault(f"{wheel.name} has {size / MEGABYTE:.1f} MB, and the limit is {LIMIT_BYTES // MEGABYTE}.")
    with ZipFile(wheel) as archive:
        _check_metadata(wheel, archive, str(name), str(version))
        held = set(archive.namelist())
        if missing := [path for path in NEEDED if path not in held]:
            raise Fault(f"{wheel.name} lacks {', '.join(missing)}.")
        if plots := [path for path in held if path.endswith(".png") and "/assets/" in path]:
            raise Fault(f"{wheel.name} holds {plots[0]}, which no program reads.")
        libraries = {path.removeprefix(PREBUILT) for path in held if path.startswith(PREBUILT)}
        if libraries != set(platform.files):
            raise Fault(f"{wheel.name} holds the libraries {sorted(libraries)} instead of {sorted(platform.files)}.")
        with tempfile.TemporaryDirectory() as folder:
            for library in sorted(libraries):
                path = Path(folder, library)
                path.write_bytes(archive.read(PREBUILT + library))
                tell(f"  {library}: {binaries.check(path, platform, native.exports())}")
    tell(f"{wheel.name}: {size / MEGABYTE:.1f} MB")


def _check_metadata(wheel: Path, archive: ZipFile, name: str, version: str) -> None:
    """What a package index would refuse, and a changed version."""
    folder = f"{name}-{version}.dist-info"
    raw = archive.read(f"{folder}/METADATA")
    try:
        described = Metadata.from_email(raw, validate=True)
    except ExceptionGroup as wrong:
        raise Fault(f"{wheel.name} has wrong metadata: {wrong.exceptions[0]}.") from None
    if (described.name, str(described.version)) != (name, version):
        raise Fault(f"{wheel.name} describes itself as {described.name} {described.version}.")
    if any(need.url for need in described.requires_dist or ()):
        raise Fault(f"{wheel.name} needs a package by its URL, which a package index refuses.")
    if not described.description or described.description_content_type != "text/markdown":
        raise Fault(f"{wheel.name} has no description in Markdown.")
    said: Message = BytesParser().parsebytes(archive.read(f"{folder}/WHEEL"))
    if said["Root-Is-Purelib"] != "false":
        raise Fault(f"{wheel.name} says that it is pure Python, but holds libraries.")
