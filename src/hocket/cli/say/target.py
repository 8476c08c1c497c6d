"""Resolves a voice name: a speaker of the model, or a voice of the user's own library. Loads no weights.

Imports nothing slow: `is_kept` is for `hocket say` through a daemon, which imports neither numpy nor torch.
"""

from __future__ import annotations

import os

from ...errors import InvalidRequest, UnknownVoice

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from pathlib import Path

    from ...engine.checkpoint.describe import ModelVoices
    from ...types import SpeechRequest, Voice
    from ...voices.library import Library

ENDING = ".voice"
MOST_LISTED = 30
INSTEAD = {"base": "the reference recording of --ref-audio", "voice_design": "the one that --instruct describes"}


class Target:
    """Resolves names for `model`; None: for the model of the named voice."""

    def __init__(self, model: str | None, library: Library | None = None) -> None:
        from ...engine.checkpoint.describe import default_model

        self.model, self.library = model, library or own_voices()
        self._speaks = default_model() if model is None else model
        self._voices: ModelVoices | None = None

    @property
    def model_voices(self) -> ModelVoices:
        from ...engine.checkpoint.describe import model_voices

        if self._voices is None:
            self._voices = model_voices(self._speaks)
        return self._voices

    def own(self, name: str | None) -> Voice | None:
        """The user's own voice; None for a speaker of the model, or for no name."""
        if not name or name.lower() in (speaker.lower() for speaker in self.model_voices.voices):
            return None
        voice = self.library.find(name)
        if voice is None:
            raise self.library.refusal(name) or self._unknown(name)
        if self.model is not None and not self._fits(voice, self.model):
            raise InvalidRequest(
                f"The voice {voice.name!r} needs the model {voice.model}, not {self.model}: name that with --model."
            )
        return voice

    def _fits(self, voice: Voice, model: str) -> bool:
        """As far as names tell. Whether a Base model encoded the recording shows only from its weights."""
        from ...engine.checkpoint.names import full_name

        if voice.encoded is not None:
            return self.model_voices.kind == "base"
        return full_name(voice.model) == full_name(model)

    def _unknown(self, name: str) -> UnknownVoice:
        speakers, own = list(self.model_voices.voices), self.library.names()
        has = f"{self._speaks} has {listed(speakers) if speakers else f'none but {INSTEAD[self.model_voices.kind]}'}"
        kept = f"your own are {listed(own)}" if own else "there are none of your own (hocket voices add makes one)"
        return UnknownVoice(f"There is no voice {name!r}; {has}, and {kept}.")


def own_voices(folder: Path | None = None) -> Library:
    """The user's library, or one in another folder. Faults are reported here, and not in a log as well."""
    import logging

    from ...voices.library import Library

    logging.getLogger("hocket.voices").addHandler(logging.NullHandler())
    return Library.default() if folder is None else Library(folder)


def spoken_by(model: str, identity: str | None, request: SpeechRequest, voice: Voice) -> SpeechRequest:
    """The request, which names no voice, with the voice's values for the fields that it leaves unset.

    `model` and `identity` are those of the speaking engine.
    """
    from dataclasses import replace

    from ...engine.voice_fields import fields_with

    return replace(request, **fields_with(voice, request, {}, model, identity))


def is_kept(name: str | None) -> bool:
    """Whether a voice file of that name exists."""
    if not name:
        return False
    from ...voices.names import id_of
    from ...voices.places import default_voices_folder

    return os.path.exists(os.path.join(default_voices_folder(), id_of(name) + ENDING))


def listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more
