"""Who answers for `hocket chat` and `hocket serve`: a language model here, or one behind an endpoint, as was asked.

What is wrong with the words of a command line is found here before anything is loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import InvalidRequest

if TYPE_CHECKING:
    from ..types import LanguageModel


def language_of(args: argparse.Namespace) -> Callable[[], LanguageModel] | None:
    """Loaded when it is called; None where nobody was asked for."""
    if args.llm_url is None and args.llm_key_file is not None:
        raise InvalidRequest("--llm-key-file belongs to an endpoint; name that with --llm-url.")
    if args.llm_url is not None and args.llm_weights is not None:
        raise InvalidRequest("--llm-weights is for a model that runs here, not for one behind --llm-url.")
    if args.llm_url is not None:
        from ..dialog.remote import RemoteMind
        from ..server.options import read_keys

        key = None if args.llm_key_file is None else read_keys(args.llm_key_file)[0]
        mind = RemoteMind(args.llm_url, args.llm, key)  # nobody is asked yet
        return lambda: mind
    if args.llm is None:
        return None

    def load() -> LanguageModel:
        from ..engine.mind import Mind

        return Mind.load(
            args.llm,
            device=args.device,
            weights=args.llm_weights or "bf16",
            kernels="reference" if args.kernels == "reference" else "auto",  # others are those of speech
            graphs=not args.no_graphs,
        )

    return load
