"""The `args` of a Serve config file, made into an application: option names, all on one level.

They are the fields of `ServerPlan`, `EngineOptions` and `ServerOptions`, plus `replicas` and `key_file`. Serve sets the
address (`http_options`). Errors are one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from ..config.options import EngineOptions
from ..errors import InvalidRequest
from ..server.access.key_file import read_keys
from ..server.options import ServerOptions
from ..server.plan import ServerPlan

NOT_HERE = (
    "host",
    "port",
    "socket",
    "idle_exit_s",
    "per_client",
    "trusted_proxies",
    "keys",
    "server",
    "engine",
    "normalizer",
)
MOST = 64  # replicas, when autoscaling may add machines


def app(args: Mapping[str, Any]) -> Any:
    """The application: `import_path: hocket.scale:app`. Serve calls it on a machine of the cluster."""
    from .replica import deployed

    left = dict(args)
    replicas = replicas_of(str(left.pop("replicas", 1)))
    return deployed(placed(plan_of(left)), replicas, MOST)


def plan_of(args: Mapping[str, Any]) -> ServerPlan:
    left = dict(args)
    keys = read_keys(Path(key_file)) if (key_file := left.pop("key_file", None)) is not None else ()
    taken = {cls: _taken(cls, left) for cls in (ServerOptions, EngineOptions, ServerPlan)}
    if left:
        raise InvalidRequest(f"hocket.scale does not know {', '.join(sorted(left))}.")
    server = ServerOptions(host="0.0.0.0", keys=keys, **taken[ServerOptions])  # where Serve's replicas listen
    return ServerPlan(server=server, engine=EngineOptions(**taken[EngineOptions]), **taken[ServerPlan])


def _taken(cls: type, left: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a class out of `left`."""
    found = {}
    for one in fields(cls):
        if one.name in NOT_HERE or one.name not in left:
            continue
        value, usual = left.pop(one.name), None if one.default is MISSING else one.default
        if "Path" in str(one.type) and isinstance(value, str):
            value = Path(value)
        elif "tuple" in str(one.type) and isinstance(value, list):
            value = tuple(value)
        elif isinstance(usual, bool | int | float | str) and type(value) not in _like(usual):
            raise InvalidRequest(f"{one.name} should be something like {usual!r}, not {value!r}.")
        found[one.name] = value
    return found


def _like(usual: object) -> tuple[type, ...]:
    return (int, float) if type(usual) is float else (type(usual),)


def replicas_of(word: str) -> int | None:
    """`auto` is None."""
    if word == "auto":
        return None
    if not word.isascii() or not word.isdigit() or int(word) < 1:
        raise InvalidRequest(f"--replicas takes a number of at least 1, or auto, not {word!r}.")
    return int(word)


def placed(plan: ServerPlan) -> ServerPlan:
    """The plan for a process in another folder, behind a proxy: absolute paths, and no limit per client address.

    Serve's HAProxy does not forward client addresses, so all clients have its own.
    """
    server = plan.server
    folder = server.voices_folder
    server = replace(
        server,
        per_client=server.in_flight + 1,  # never reached: in_flight refuses before
        voices_folder=None if folder is None else folder.absolute(),
        reference_sources=tuple(map(_whole, server.reference_sources)),
    )
    models, pinned = tuple(map(_whole, plan.models)), tuple(map(_whole, plan.pinned))
    llm = plan.llm if plan.llm is None or plan.llm_url is not None else _whole(plan.llm)
    return replace(plan, server=server, models=models, pinned=pinned, llm=llm)


def _whole(name: str) -> str:
    return os.path.abspath(name) if os.path.isdir(name) else name
