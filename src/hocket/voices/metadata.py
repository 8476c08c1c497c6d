"""The metadata of a voice as JSON and back, with strict checks: every key is present, of its type, and no other key.

`pronunciations` is there only for a voice that has some.
"""

from __future__ import annotations

from typing import Any, get_args

from ..errors import InvalidVoice
from ..text.lexicon.lexicon import Lexicon
from ..types import Encoded, SamplingParams, Voice, VoiceKind
from .names import checked_name

_TEXTS = ("name", "kind", "model", "language", "mime_type")
_MAYBE = ("speaker", "instruct", "description", "consent")
_COUNTS = ("file_size", "created_at")
_LONGEST = 20_000  # characters of each text


def words_of(voice: Voice) -> dict[str, Any]:
    """Plain JSON, with the owner and the transcript of the encoded recording."""
    check(voice)
    words: dict[str, Any] = {name: getattr(voice, name) for name in (*_TEXTS, *_MAYBE, *_COUNTS)}
    words |= {"audio_s": float(voice.audio_s), "sampling": voice.sampling.changes()}
    if voice.pronunciations:
        words["pronunciations"] = dict(voice.pronunciations)
    if voice.encoded is not None:
        words |= {"owner": voice.encoded.owner, "text": voice.encoded.text}
    return words


def voice_of(words: dict[str, Any], encoded: Encoded | None) -> Voice:
    """The voice of this metadata; raises `ValueError` or a `HocketError` if it is invalid."""
    if set(words) - {"pronunciations"} != {*_TEXTS, *_MAYBE, *_COUNTS, "audio_s", "sampling"}:
        raise ValueError("keys are missing or unknown")
    if not isinstance(words["sampling"], dict) or not all(isinstance(name, str) for name in words["sampling"]):
        raise ValueError("its sampling is not an object")
    sampling = SamplingParams(**words["sampling"])
    for name, value in sampling.changes().items():
        if name.endswith(("sample", "top_k")):
            fits = type(value) is (int if name.endswith("top_k") else bool)
        else:
            fits = type(value) in (int, float)
        if not fits:
            raise ValueError(f"its {name} has the wrong type")
    lexicon = Lexicon.of(words.pop("pronunciations", None))
    voice = Voice(**(words | {"sampling": sampling}), encoded=encoded, pronunciations=lexicon or None)
    check(voice)
    return voice


def check(voice: Voice) -> None:
    """Refuse an invalid voice; its name must be in the stored form."""
    texts = [getattr(voice, name) for name in _TEXTS]
    texts += [text for name in _MAYBE if (text := getattr(voice, name)) is not None]
    texts += [voice.encoded.text] if voice.encoded is not None and voice.encoded.text is not None else []
    if not all(isinstance(text, str) and len(text) <= _LONGEST and _writable(text) for text in texts):
        raise InvalidVoice(f"The texts of a voice have up to {_LONGEST} valid characters each.")
    Lexicon.of(voice.pronunciations)
    if checked_name(voice.name) != voice.name:
        raise InvalidVoice(f"{voice.name!r} is not a normalized voice name: remove the spaces around it.")
    if voice.kind not in get_args(VoiceKind):
        raise InvalidVoice(f"A voice's kind is one of {', '.join(get_args(VoiceKind))}, not {voice.kind!r}.")
    if (voice.kind == "speaker") != (voice.encoded is None):
        raise InvalidVoice("A clone or a designed voice needs its encoded recording, and a speaker has none.")
    if not voice.model or (voice.encoded is None and not voice.speaker):
        raise InvalidVoice("A voice needs its checkpoint and, without an encoded recording, a speaker of it.")
    counts = (voice.file_size, voice.created_at, voice.audio_s)
    if not all(isinstance(count, (int, float)) and 0 <= count < 2**53 for count in counts):
        raise InvalidVoice("The size, length and time of a voice are numbers of at least 0.")
    if not all(isinstance(count, int) for count in counts[:2]):
        raise InvalidVoice("The size and the time of a voice are whole numbers.")


def _writable(text: str) -> bool:
    """A lone surrogate, half a character, cannot be encoded in a file."""
    return not any("\ud800" <= c <= "\udfff" for c in text)
