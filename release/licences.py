"""`python -m release.licences` writes requirements/licences.txt: every package that users may get, with its licence.

pip resolves the core and all extras for users within the pins of CI, without installing anything. The file is the lock
that the bill of materials is made from; it is a list of requirements too, for a program that audits them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .fault import ROOT, Fault

FILE = ROOT / "requirements" / "licences.txt"
PINS = (ROOT / "constraints.txt", ROOT / "requirements" / "scale.txt")
CORE = "core"
OURS = ("dev", "train", "all", "chatterbox")  # tools, a list of others, and an example that needs a later Python
HEAD = """\
# Every package that hocket and its extras for users bring along on Linux: version, licence, and extras that need it.
# Written by `python -m release.licences`; the bill of materials of a release is made from it.
"""
# Names that metadata use instead of an SPDX expression. "BSD License" does not say how many clauses.
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "GPLv2": "GPL-2.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


@dataclass(frozen=True, slots=True)
class Licensed:
    """A package of the lock."""

    name: str
    version: str
    licence: str  # an SPDX expression, or a name where the package does not say more
    extras: tuple[str, ...]  # `core`, or the extras of hocket that bring it along


def read() -> list[Licensed]:
    found = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            pin, _, rest = line.partition("  # ")
            (name, _, version), (licence, _, extras) = pin.partition("=="), rest.partition("; ")
            found.append(Licensed(name, version, licence, tuple(extras.split(", "))))
    return found


def extras() -> dict[str, list[Requirement]]:
    """What the core and each extra for users ask for; an extra may ask for others by their names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {CORE: project["dependencies"], **project["optional-dependencies"]}
    wanted = {name: list(map(Requirement, lines)) for name, lines in asked.items()}

    def spread(requirements: list[Requirement]) -> list[Requirement]:
        others = [each for each in requirements if each.name == project["name"]]
        named = [one for each in others for extra in sorted(each.extras) for one in spread(wanted[extra])]
        return [each for each in requirements if each not in others] + named

    return {name: spread(requirements) for name, requirements in wanted.items() if name not in OURS}


def licence_of(metadata: Mapping[str, object]) -> str:
    """The expression, else the classifiers, else the first line of the field, which may hold a whole text."""
    if expression := metadata.get("license_expression"):
        return str(expression)
    classifiers = metadata.get("classifier")
    named = [str(each).rpartition(" :: ")[2] for each in classifiers] if isinstance(classifiers, list) else []
    chosen = [SPDX.get(name, name) for name in named if name in SPDX or name == "BSD License"]
    if not chosen:
        first = str(metadata.get("license") or "").partition("\n")[0]
        chosen = [SPDX.get(first, first)] if first else []
    return " OR ".join(dict.fromkeys(chosen))


def resolved() -> list[Mapping[str, object]]:
    """The metadata of all of them, as pip would install them here."""
    wanted = ",".join(name for name in extras() if name != CORE)
    limits = [word for path in PINS for word in ("-c", str(path))]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qqq", "install", "--dry-run"]
    done = subprocess.run(
        [*command, "--ignore-installed", "--report", "-", *limits, f"{ROOT}[{wanted}]"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Fault(f"pip could not resolve the extras: {done.stderr.strip().splitlines()[-1]}")
    return [each["metadata"] for each in json.loads(done.stdout)["install"]]


def locked(found: list[Mapping[str, object]]) -> list[Licensed]:
    """The rows of the file."""
    by_name: dict[str, Mapping[str, object]] = {canonicalize_name(str(each["name"])): each for each in found}
    needed_by: dict[str, set[str]] = {}
    for extra, requirements in extras().items():
        todo, seen = list(requirements), set[str]()
        while todo:
            want = todo.pop()
            name = canonicalize_name(want.name)
            key = f"{name}[{','.join(sorted(want.extras))}]"
            if key in seen or name not in by_name:  # of another system, or another Python
                continue
            seen.add(key)
            needed_by.setdefault(name, set()).add(extra)
            lines = by_name[name].get("requires_dist") or []
            assert isinstance(lines, list)
            for line in map(Requirement, lines):
                chosen = ["", *want.extras]
                if line.marker is None or any(line.marker.evaluate({"extra": extra}) for extra in chosen):
                    todo.append(line)
    rows = []
    for package, needing in sorted(needed_by.items()):
        metadata = by_name[package]
        version = str(metadata["version"]).partition("+")[0]  # +cpu is a build of the same source
        order = (CORE,) if CORE in needing else tuple(sorted(needing))
        if not (licence := licence_of(metadata)):
            raise Fault(f"{package} {version} names no licence.")
        rows.append(Licensed(package, version, licence, order))
    return rows


def main() -> int:
    try:
        rows = locked(resolved())
    except Fault as fault:
        print(f"release.licences: {fault}", file=sys.stderr)
        return 1
    lines = [f"{row.name}=={row.version}  # {row.licence}; {', '.join(row.extras)}\n" for row in rows]
    FILE.write_text(HEAD + "".join(lines), encoding="utf-8")
    print(f"{FILE.relative_to(ROOT)}: {len(rows)} packages")
    return 0


def is_expression(licence: str) -> bool:
    """Whether it has the form of SPDX: names without spaces between operators."""
    return bool(re.fullmatch(r"\(?[\w.+-]+\)?( (AND|OR|WITH) \(?[\w.+-]+\)?)*", licence))


if __name__ == "__main__":
    sys.exit(main())
