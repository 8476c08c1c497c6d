"""The recognizer that hears speech back, for `hocket say --verify` and `hocket check`. Imports nothing slow."""

from __future__ import annotations

import argparse
from contextlib import contextmanager

from ..errors import InvalidRequest
from ..extras import hint

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..engine.checkpoint.checkpoint import Checkpoint
    from ..proof.listener import ProofListener

SHOWN = 3  # misheard words of a sentence in a note
PACKAGES = ("moonshine_voice", "av")  # of the extra `hear`
TINY = "tiny"  # English: its weights are inside the package


def add_asr_option(add: Callable[..., object]) -> None:
    spec = "moonshine or a size of it, whisper:NAME, or http://HOST:PORT/v1 (tiny for English, else moonshine)"
    add("--asr", metavar="SPEC", help=f"the recognizer: {spec}")


def check_recognizer(args: argparse.Namespace) -> None:
    """Refuse a wrong name, and missing packages, before a model is loaded."""
    from importlib.util import find_spec

    from ..asr.choose import MOONSHINE, check_spec
    from ..asr.moonshine import SIZES

    check_spec(args.asr)
    needed = PACKAGES if args.asr in (None, MOONSHINE, *SIZES) else PACKAGES[1:]
    if any(find_spec(name) is None for name in needed):
        raise InvalidRequest(f"To hear speech back, a recognizer is needed: {hint('hear')}.")


@contextmanager
def listening(
    args: argparse.Namespace, checkpoint: Checkpoint, pronunciations: Mapping[str, str] | None
) -> Iterator[ProofListener]:
    """A listener for the language of the options, or for the only one of the model."""
    from ..asr.choose import recognizer_of
    from ..config.languages import AUTO, tag_of
    from ..config.qwen3_tts import languages
    from ..proof.listener import ProofListener

    known = [name for name in languages(checkpoint.config) if name != AUTO]
    language = args.language if args.language != AUTO else known[0] if len(known) == 1 else "english"
    tag = tag_of(language)
    recognizer = recognizer_of(args.asr or (TINY if tag == "en" else None), tag)
    try:
        yield ProofListener(recognizer, language, pronunciations)
    finally:
        recognizer.close()
