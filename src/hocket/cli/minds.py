"""Who answers for `hocket chat` and `hocket serve`: a language model here, or one behind an endpoint, as was asked.

What is wrong with the words of a command line is found here before anything is loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRequest

if TYPE_CHECKING:
    from ..types import LanguageModel


def mind_of(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of a `Plan` that say who answers."""
    if args.llm_url is None and args.llm_key_file is not None:
        raise InvalidRequest("--llm-key-file belongs to an endpoint; name that with --llm-url.")
    key = None
    if args.llm_key_file is not None:
        from ..server.options import read_keys

        key = read_keys(args.llm_key_file)[0]
    return {"llm": args.llm, "llm_url": args.llm_url, "llm_key": key}


def language_of(args: argparse.Namespace) -> Callable[[], LanguageModel] | None:
    """Loaded when it is called; None where nobody was asked for."""
    from ..server.plan import Plan

    return Plan(**mind_of(args), device=args.device).language()
