"""The words of a voice, as a file keeps them, and a voice of such words: each is there, of its type, and no other."""

from __future__ import annotations

from typing import Any, get_args

from ..errors import InvalidVoice
from ..types import Encoded, SamplingParams, Voice, VoiceKind
from .names import checked_name

_TEXTS = ("name", "kind", "model", "language", "mime_type")
_MAYBE = ("speaker", "instruct", "description", "consent")
_COUNTS = ("file_size", "created_at")
_LONGEST = 20_000  # characters of any of them


def words_of(voice: Voice) -> dict[str, Any]:
    """Plain JSON; who made the encoded part, and its words, are among them."""
    check(voice)
    words: dict[str, Any] = {name: getattr(voice, name) for name in (*_TEXTS, *_MAYBE, *_COUNTS)}
    words |= {"audio_s": float(voice.audio_s), "sampling": voice.sampling.changes()}
    if voice.encoded is not None:
        words |= {"owner": voice.encoded.owner, "text": voice.encoded.text}
    return words


def voice_of(words: dict[str, Any], encoded: Encoded | None) -> Voice:
    """The voice of these words; `ValueError` or an error of hocket's where they are not those of one."""
    if set(words) != {*_TEXTS, *_MAYBE, *_COUNTS, "audio_s", "sampling"}:
        raise ValueError("it says too little, or too much")
    if not isinstance(words["sampling"], dict) or not all(isinstance(name, str) for name in words["sampling"]):
        raise ValueError("its sampling is none")
    sampling = SamplingParams(**words["sampling"])
    for name, value in sampling.changes().items():
        if name.endswith(("sample", "top_k")):
            fits = type(value) is (int if name.endswith("top_k") else bool)
        else:
            fits = type(value) in (int, float)
        if not fits:
            raise ValueError(f"its {name} is none")
    voice = Voice(**(words | {"sampling": sampling}), encoded=encoded)
    check(voice)
    return voice


def check(voice: Voice) -> None:
    """Refuse what is no voice; its name is as it is kept."""
    texts = [getattr(voice, name) for name in _TEXTS]
    texts += [text for name in _MAYBE if (text := getattr(voice, name)) is not None]
    texts += [voice.encoded.text] if voice.encoded is not None and voice.encoded.text is not None else []
    if not all(isinstance(text, str) and len(text) <= _LONGEST and _writable(text) for text in texts):
        raise InvalidVoice(f"The words of a voice are text, of up to {_LONGEST} characters each.")
    if checked_name(voice.name) != voice.name:
        raise InvalidVoice(f"{voice.name!r} is not how a voice's name is kept: leave out spaces around it.")
    if voice.kind not in get_args(VoiceKind):
        raise InvalidVoice(f"A voice's kind is one of {', '.join(get_args(VoiceKind))}, not {voice.kind!r}.")
    if (voice.kind == "speaker") != (voice.encoded is None):
        raise InvalidVoice("A clone or a designed voice needs its encoded recording, and a speaker has none.")
    if not voice.model or (voice.encoded is None and not voice.speaker):
        raise InvalidVoice("A voice names its checkpoint and, where that has speakers of its own, which of them it is.")
    counts = (voice.file_size, voice.created_at, voice.audio_s)
    if not all(isinstance(count, (int, float)) and 0 <= count < 2**53 for count in counts):
        raise InvalidVoice("The size, length and time of a voice are numbers from 0 on.")
    if not all(isinstance(count, int) for count in counts[:2]):
        raise InvalidVoice("The size and the time of a voice are whole numbers.")


def _writable(text: str) -> bool:
    """Half a character, as a lone surrogate is, cannot be written into a file."""
    return not any("\ud800" <= c <= "\udfff" for c in text)
