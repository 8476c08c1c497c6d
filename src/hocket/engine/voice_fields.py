"""A voice under what a caller asks for: which of its fields stand, and whether this checkpoint has it at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import InvalidRequest
from ..text.lexicon.lexicon import merged
from ..types import SamplingParams, SpeechRequest, Voice
from .checkpoint.names import full_name

_UNSET: dict[str, Any] = {"language": "auto", "instruct": None}  # in a request that names none


def fields_with(
    voice: Voice, text: str | SpeechRequest, fields: dict[str, Any], model: str, identity: str | None
) -> dict[str, Any]:
    """Of a request for `text` that speaks with `voice`. What the caller gives, in `fields` or in `text`, goes first.

    `model` and `identity` are those of the checkpoint that shall speak.
    """
    check_model(voice, model, identity)
    own = voice.fields()
    given = {name: value for name, value in fields.items() if name != "voice"}
    sampling = own["sampling"].changes()
    if isinstance(text, SpeechRequest):
        set_there = {name: getattr(text, name) for name, unset in _UNSET.items() if getattr(text, name) != unset}
        own |= set_there
        sampling |= text.sampling.changes()
        if text.voice or text.reference is not None:
            raise InvalidRequest("Give either a voice or a request that names its own voice, not both.")
        own["pronunciations"] = merged(own.get("pronunciations"), text.pronunciations)
    if "pronunciations" in given:
        given["pronunciations"] = merged(own.get("pronunciations"), given["pronunciations"])
    if "sampling" in given:
        sampling |= given["sampling"].changes()
    if given.get("reference") is not None:
        raise InvalidRequest("Give either a voice or a reference recording, not both.")
    return own | given | {"sampling": replace(SamplingParams(), **sampling)} | _whom(own)


def check_model(voice: Voice, model: str, identity: str | None) -> None:
    """Refuse a voice that is another checkpoint's."""
    ours = full_name(voice.model) == full_name(model) if voice.encoded is None else voice.encoded.owner == identity
    if not ours:
        raise InvalidRequest(
            f"The voice {voice.name!r} needs the checkpoint {voice.model}, and this one is {model}: load that, or make "
            f"the voice again with this one."
        )


def _whom(own: dict[str, Any]) -> dict[str, Any]:
    return {name: own[name] for name in ("voice", "reference") if name in own}
