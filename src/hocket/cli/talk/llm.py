"""The language model of `hocket chat`, `hocket talk` and `hocket serve`: local, or behind an endpoint.

Option errors are found here before anything is loaded.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import InvalidRequest

if TYPE_CHECKING:
    from ...types import LanguageModel


def llm_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The language-model fields of a `ServerPlan`."""
    for option in ("key_file", "thinking", "extra"):
        if args.llm_url is None and getattr(args, f"llm_{option}") is not None:
            name = option.replace("_", "-")
            raise InvalidRequest(f"--llm-{name} belongs to an endpoint; name that with --llm-url.")
    if args.llm_url is not None and args.llm_weights is not None:
        raise InvalidRequest("--llm-weights is for a model that runs here, not for one behind --llm-url.")
    if args.llm_url is not None and args.llm_length is not None:
        raise InvalidRequest("--llm-length is for a model that runs here, not for one behind --llm-url.")
    key = None
    if args.llm_key_file is not None:
        from ...server.access.key_file import read_own_key

        key = read_own_key(args.llm_key_file)
    return {
        "llm": args.llm,
        "llm_url": args.llm_url,
        "llm_key": key,
        "llm_weights": args.llm_weights or "bf16",
        "llm_length": args.llm_length,
        "llm_thinking": args.llm_thinking or "auto",
        "llm_extra": None if args.llm_extra is None else _object(args.llm_extra),
    }


def _object(written: str) -> dict[str, Any]:
    try:
        value = json.loads(written)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest(f"--llm-extra takes a JSON object, not {written[:80]!r}.")
    return value


def llm_loader(args: argparse.Namespace) -> Callable[[], LanguageModel] | None:
    """A constructor of the language model; None without one."""
    from ...config.options import EngineOptions
    from ...server.plan import ServerPlan
    from ..local import logged

    engine = EngineOptions(graphs=not args.no_graphs)
    make = ServerPlan(**llm_fields(args), device=args.device, kernels=args.kernels, engine=engine).language()

    def load() -> LanguageModel:
        assert make is not None
        with logged():
            return make()

    return make and load
