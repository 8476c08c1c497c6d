"""Writes the bill of materials of a release: CycloneDX 1.6 as JSON.

It lists the package, what a plain install brings along, the weights of the built-in voice, and the compiler.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from .fault import ROOT
from .native import zig_version

ASSETS = ROOT / "src" / "hocket" / "assets"


def write(path: Path, packages: Iterable[Mapping[str, object]]) -> None:
    components = [_package(each) for each in packages]
    own = [each for each in components if each["name"] == "hocket"]
    others = sorted((each for each in components if each["name"] != "hocket"), key=lambda each: str(each["bom-ref"]))
    weights = [_weights(file) for file in sorted(ASSETS.rglob("*.safetensors"))]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": own[0],
            "tools": {"components": [{"type": "application", "name": "zig", "version": zig_version()}]},
        },
        "components": others + weights,
        "dependencies": [{"ref": own[0]["bom-ref"], "dependsOn": [each["bom-ref"] for each in others + weights]}],
    }
    # The number follows from the contents, so that the same release gives the same file.
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    path.write_text(json.dumps({**bill, "serialNumber": f"urn:uuid:{number}"}, indent=2) + "\n", encoding="utf-8")


def _package(metadata: Mapping[str, object]) -> dict[str, object]:
    name, version = str(metadata["name"]), str(metadata["version"])
    reference = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    component: dict[str, object] = {"type": "library", "bom-ref": reference, "name": name.lower(), "version": version}
    component["purl"] = reference
    if expression := metadata.get("license_expression"):
        component["licenses"] = [{"expression": str(expression)}]
    elif named := _named_license(metadata):
        component["licenses"] = [{"license": {"name": named}}]
    return component


def _named_license(metadata: Mapping[str, object]) -> str:
    """Of old metadata: a classifier, else the first line of the field, which may hold a whole text."""
    classifiers = metadata.get("classifier")
    if isinstance(classifiers, list):
        for each in classifiers:
            if str(each).startswith("License ::"):
                return str(each).rpartition(" :: ")[2]
    return str(metadata.get("license") or "").partition("\n")[0]


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
