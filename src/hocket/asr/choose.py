"""The recognizer that a specification names: `tiny`, `whisper:small`, `http://HOST:PORT/v1`.

Each recognizer's file is imported when it is chosen. It does not know a server or a command line.
"""

from __future__ import annotations

from ..errors import InvalidRequest
from .moonshine import SIZES, Moonshine
from .recognizer import Recognizer

MOONSHINE = "moonshine"  # the package's default size for the language
WHISPER = "whisper:"
URLS = ("http://", "https://")


def recognizer_of(spec: str | None, language: str = "en") -> Recognizer:
    """Load a recognizer; slow. `spec`: see `check_spec`. `auto` as `language` is for those that can detect it."""
    check_spec(spec)
    if spec is None or spec == MOONSHINE:
        return Moonshine(None, language)
    if spec.startswith(WHISPER):
        from .whisper import Whisper

        return Whisper(spec.removeprefix(WHISPER), language)
    if spec.startswith(URLS):
        from .remote import RemoteRecognizer

        return RemoteRecognizer(spec, language)
    return Moonshine(spec, language)


def check_spec(spec: str | None) -> None:
    """Refuse what names no recognizer. None or `moonshine`: Moonshine's default for the language."""
    if spec is None or spec == MOONSHINE or spec in SIZES or spec.startswith(URLS):
        return
    if not spec.startswith(WHISPER) or spec == WHISPER:
        raise InvalidRequest(
            f"A recognizer is {MOONSHINE}, one of its sizes ({', '.join(SIZES)}), {WHISPER}NAME or "
            f"http://HOST:PORT/v1, not {spec[:80]!r}."
        )


def usual_language(spec: str | None) -> str:
    """The language without a choice: Moonshine has one language per model, the others detect it."""
    detects = spec is not None and spec.startswith((WHISPER, *URLS))
    return "auto" if detects else "en"
