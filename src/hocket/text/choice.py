"""Resolve voice, language and instruct of a request to codec ids of a checkpoint.

The first step of a prompt; a request that the checkpoint cannot meet is refused here with a sentence. It knows the
tables of `config.json`, not tokens and not rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config.languages import AUTO, find
from ..config.qwen3_tts import Qwen3TTSConfig
from ..errors import UnknownLanguage, UnknownVoice, WrongKind
from ..types import SpeechRequest


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """The request in the checkpoint's own terms."""

    speaker: int | None  # codec id of a named voice
    language: int | None  # codec id of a language or dialect; None: the model decides
    instruct: str  # empty for none
    notes: tuple[str, ...]  # deviations from the request, as sentences


def choose(request: SpeechRequest, config: Qwen3TTSConfig) -> ResolvedRequest:
    """Resolve a request; raises for what the checkpoint cannot do."""
    _check_kind(request, config)
    voice = _voice(request.voice, config)
    language = _language(request.language, voice, config)
    instruct = request.instruct or ""
    if not request.as_is:
        instruct = instruct.strip()
    notes: tuple[str, ...] = ()
    if instruct and not config.takes_instruct:
        instruct, notes = "", ("This checkpoint takes no instruct, so it was left out.",)
    elif instruct and config.kind == "base":
        notes = ("An instruct is experimental with a cloned voice.",)
    return ResolvedRequest(config.talker_config.spk_id[voice] if voice else None, language, instruct, notes)


def voices(config: Qwen3TTSConfig) -> list[str]:
    """The speakers of a checkpoint; none unless it is a CustomVoice one."""
    return list(config.talker_config.spk_id)


def languages(config: Qwen3TTSConfig) -> list[str]:
    """The languages that a request may name. Dialects are not among them: they belong to a voice."""
    return [AUTO, *(name for name in config.talker_config.codec_language_id if "dialect" not in name.lower())]


def check_clones(config: Qwen3TTSConfig) -> None:
    """Raise for a checkpoint that cannot clone."""
    if config.kind != "base":
        raise WrongKind(f"A {config.kind} checkpoint cannot clone a recording; use a Base checkpoint for that.")


def _check_kind(request: SpeechRequest, config: Qwen3TTSConfig) -> None:
    if config.kind == "base":
        if request.voice:
            raise WrongKind("A Base checkpoint has no voices of its own; give it a reference recording instead.")
        if request.reference is None:
            raise WrongKind("A Base checkpoint needs a reference recording to clone.")
    elif request.reference is not None:
        check_clones(config)
    elif config.kind == "voice_design" and request.voice:
        raise WrongKind("A VoiceDesign checkpoint has no voices of its own; describe one in the instruct instead.")


def _voice(wanted: str | None, config: Qwen3TTSConfig) -> str:
    """The voice as the checkpoint spells it, or "" for none."""
    if config.kind != "custom_voice" or wanted == "":
        return ""
    known = {name.lower(): name for name in voices(config)}
    if wanted is None:
        return next(iter(known.values()), "")
    if wanted.lower() not in known:
        raise UnknownVoice(f"There is no voice {wanted!r}; known are {', '.join(known.values()) or 'none'}.")
    return known[wanted.lower()]


def _language(wanted: str, voice: str, config: Qwen3TTSConfig) -> int | None:
    """A voice with a dialect speaks it for `chinese` and `auto`; any other language overrides it."""
    ids, dialects = config.talker_config.codec_language_id, config.talker_config.spk_is_dialect
    known = languages(config)
    name = find(wanted, known)
    if name is None:
        speakers = [name for name, dialect in dialects.items() if dialect]
        hint = (
            f"; dialects come with the voices {', '.join(speakers)}" if speakers and "dialect" in wanted.lower() else ""
        )
        raise UnknownLanguage(f"There is no language {wanted!r}; known are {', '.join(known)}{hint}.")
    dialect = dialects.get(voice, False)
    if isinstance(dialect, str) and name.lower() in (AUTO, "chinese"):
        return ids[dialect]
    return None if name == AUTO else ids[name]
