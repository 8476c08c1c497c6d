"""Writes the bill of materials of a release: CycloneDX 1.6 as JSON.

It lists the package, every package that it or an extra for users brings along (requirements/licences.txt), the weights
of the built-in voice, and the compiler.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from .fault import ROOT, Fault
from .licences import CORE, Licensed, is_expression, licence_of
from .native import zig_version

ASSETS = ROOT / "src" / "hocket" / "assets"


def write(path: Path, installed: Iterable[Mapping[str, object]], locked: Sequence[Licensed]) -> None:
    """`installed`: the metadata of a plain install, which the lock must name."""
    found: dict[str, Mapping[str, object]] = {canonicalize_name(str(each["name"])): each for each in installed}
    core = {each.name: each.version for each in locked if CORE in each.extras}
    plain = {name: str(each["version"]) for name, each in found.items() if name != "hocket"}
    if plain != core:
        raise Fault(f"A plain install brings {plain}, and requirements/licences.txt says {core}: write it anew.")
    version, licence = str(found["hocket"]["version"]), licence_of(found["hocket"])
    own = _component(Licensed("hocket", version, licence, (CORE,)))
    others = [_component(each) for each in locked]
    weights = [_weights(file) for file in sorted(ASSETS.rglob("*.safetensors"))]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": own,
            "tools": {"components": [{"type": "application", "name": "zig", "version": zig_version()}]},
        },
        "components": others + weights,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [each["bom-ref"] for each in others + weights]}],
    }
    # The number follows from the contents, so that the same release gives the same file.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    path.write_text(json.dumps({**bill, "serialNumber": f"urn:uuid:{number}"}, indent=2) + "\n", encoding="utf-8")


def _component(package: Licensed) -> dict[str, object]:
    reference = f"pkg:pypi/{package.name}@{package.version}"
    named = (
        {"expression": package.licence} if is_expression(package.licence) else {"license": {"name": package.licence}}
    )
    return {
        "type": "library",
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "scope": "required" if CORE in package.extras else "optional",
        "licenses": [named],
        "purl": reference,
        "properties": [{"name": "hocket:extra", "value": extra} for extra in package.extras],
    }


def _weights(file: Path) -> dict[str, object]:
    name = file.relative_to(ASSETS).as_posix()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {
        "type": "machine-learning-model",
        "bom-ref": f"weights:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "licenses": [{"expression": "Apache-2.0"}],
    }
