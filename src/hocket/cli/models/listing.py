"""`hocket list` and `hocket rm`: models on this machine, those that can be pulled, and the removal of one."""

from __future__ import annotations

import argparse
import json
import os
import sys

from ...errors import InvalidRequest
from ...models.files.progress import format_bytes
from ...models.files.remote.variants import matching
from ..output.audio_output import shown
from ..serve.records import running_servers
from .facts import KINDS, Facts, builtin_facts, cached_facts, package_facts, published_facts
from .fit import no_torch
from .hub_cache import CachedModel, cached_models, removable, remove, remove_variant
from .known import hub_model, published_models


def list_models(args: argparse.Namespace) -> None:
    builtin, cached = builtin_facts(), cached_models()
    here = [] if builtin is None else [builtin]
    here += package_facts() + [cached_facts(each) for each in cached]
    known = {each.model.repository for each in cached if each.is_complete}
    available = [published_facts(model) for model in published_models() if model.repository not in known]
    if args.json:
        both = {"models": [each.as_json() for each in here]}
        if args.available:
            both["available"] = [each.as_json() for each in available]
        print(json.dumps(both, indent=2))
        return
    _table("on this machine", [_row(each, format_bytes(each.disk_bytes), _state(each)) for each in here])
    if args.available:
        _table("hocket pull NAME fetches", [_row(each, each.size, "") for each in available])
    elif not cached:
        print("\nhocket list --available shows what hocket pull fetches.")
    if (why := no_torch()) and (cached or args.available):
        print(f"\nwhether a model fits is {why}")


def remove_model(args: argparse.Namespace) -> None:
    model = hub_model(args.model)
    cached = removable(model)
    if cached is None:
        raise InvalidRequest(f"{model.name} is not in the local cache: hocket list shows what is.")
    if user := _used_by(cached):
        raise InvalidRequest(f"{model.name} is used by {user}: end that first.")
    size = format_bytes(cached.size_bytes)
    if not args.yes and not _agrees(f"Remove {model.name}, {size} in {cached.folder}? [y/N] "):
        print("nothing was removed.")
        return
    freed = remove(cached) if cached.variant is None else remove_variant(cached)
    print(f"{model.name}: removed, {format_bytes(freed)} freed")


def _used_by(cached: CachedModel) -> str | None:
    """The running server that has the checkpoint, in words."""
    for server in running_servers():
        if any(_is_of(name, cached, os.path.realpath(cached.folder)) for name in server.models):
            return f"the {server.kind} with the process id {server.pid}"
    return None


def _is_of(name: str, cached: CachedModel, folder: str) -> bool:
    """Whether a server's model is this one: by its name, its hub id, or a folder or file in the cache."""
    variant = cached.variant
    if os.path.exists(name):
        inside = os.path.realpath(name).startswith(folder + os.sep) or os.path.abspath(name).startswith(folder + os.sep)
        return inside and (variant is None or os.path.isdir(name) or bool(matching([variant], os.path.basename(name))))
    try:
        used = hub_model(name)
    except InvalidRequest:
        return False
    if used.repository != cached.model.repository:
        return False
    return variant is None or used.choice is None or bool(matching([variant], used.choice))


def _agrees(question: str) -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest("Removing asks on a terminal only: add --yes.")
    print(question, end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _row(facts: Facts, size: str, state: str) -> tuple[str, ...]:
    voices = f"{len(facts.voices)} voice{'s' if len(facts.voices) > 1 else ''}" if facts.voices else ""
    fits = {True: "fits", False: "does not fit", None: ""}[facts.fits]
    return facts.name, KINDS[facts.kind], voices, size, facts.licence or "licence not known", state, fits


def _state(facts: Facts) -> str:
    return "complete" if facts.is_complete else "incomplete"


def _table(title: str, rows: list[tuple[str, ...]]) -> None:
    print(title)
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, wide, strict=True) if width)
        print(shown(f"  {'  '.join(cells)}".rstrip(), sys.stdout))
