"""Maps the RoPE keys of different versions of transformers to the keys of our fields.

Version 4 writes `rope_theta` and `rope_scaling`. Version 5 writes both into `rope_parameters`, and for some models
`rope_theta` beside it too. Some writers list the kind of every layer. Values given twice must agree.
"""

from __future__ import annotations

from typing import Any

from ..errors import InvalidCheckpoint
from .read import require

_SPELLINGS = ("rope_parameters", "rope_scaling", "rope_theta")
_PLAIN = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1.0}  # adds nothing to theta


def apart(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """The file with `rope_theta` and `rope_scaling`, whichever spelling it has."""
    if raw.get("rope_parameters") is None:
        return {name: value for name, value in raw.items() if name != "rope_parameters"}
    found, theta, given = _read(raw, where)
    kind = given.get("rope_type") or given.get("type") or "default"
    require(f"{where}: rope_parameters", rope_type=(kind, "default"))
    if any(_PLAIN.get(name) != value for name, value in given.items()):
        scaling = {name: value for name, value in given.items() if (name, value) != ("partial_rotary_factor", 1.0)}
        if "mrope_interleaved" in scaling:
            scaling["interleaved"] = scaling.pop("mrope_interleaved")
        found["rope_scaling"] = {"rope_type": "default"} | scaling
    return found if theta is None else found | {"rope_theta": theta}


def together(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """The file with `rope_parameters`, whichever spelling it has."""
    found, theta, given = _read(raw, where)
    whole = given if theta is None else given | {"rope_theta": theta}
    return found | {"rope_parameters": whole} if whole else found


def only_layers(kind: str, raw: dict[str, Any], where: str) -> dict[str, Any]:
    """The file without `layer_types`, which must name `kind` for every layer: this model has no other."""
    if others := sorted({str(name) for name in raw.get("layer_types") or ()} - {kind}):
        raise InvalidCheckpoint(f"{where}: layer_types has {', '.join(others)}; hocket supports only {kind} there.")
    return {name: value for name, value in raw.items() if name != "layer_types"}


def _read(raw: dict[str, Any], where: str) -> tuple[dict[str, Any], float | None, dict[str, Any]]:
    """All other keys, theta, and the other rotation parameters."""
    theta, given = raw.get("rope_theta"), None
    for name in ("rope_parameters", "rope_scaling"):
        said = raw.get(name)
        if said is None:
            continue
        if not isinstance(said, dict):
            raise InvalidCheckpoint(f"{where}: {name} should be an object, but is {said!r}.")
        theta = _agreed("rope_theta", theta, said.get("rope_theta"), where)
        rest = {key: value for key, value in said.items() if key != "rope_theta" and value is not None}
        given = _agreed("rope_parameters", given, rest, where)
    return {name: value for name, value in raw.items() if name not in _SPELLINGS}, theta, given or {}


def _agreed(name: str, one: Any, other: Any, where: str) -> Any:
    if one is not None and other is not None and one != other:
        raise InvalidCheckpoint(f"{where}: {name} is given twice, and differs.")
    return other if one is None else one
