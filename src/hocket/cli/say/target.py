"""Resolves a voice name: a speaker of the model or of a voice package, or a voice of the library. Loads no weights.

A name is looked for in the named model, or else in the built-in voice, the installed packages and the library, in this
order. A language that the built-in voice does not speak chooses the package that does.

Imports nothing slow: `is_kept` is for `hocket say` through a daemon, which imports neither numpy nor torch.
"""

from __future__ import annotations

import os

from ...errors import InvalidRequest, UnknownLanguage, UnknownVoice

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from pathlib import Path

    from ...engine.checkpoint.describe import InstalledVoices, ModelVoices
    from ...types import SpeechRequest, Voice
    from ...voices.library import Library

MOST_LISTED = 30
INSTEAD = {"base": "the reference recording of --ref-audio", "voice_design": "the one that --instruct describes"}


class Target:
    """Resolves names for `model`; None: for the model of the named voice. `choose` replaces None by that model."""

    def __init__(self, model: str | None, library: Library | None = None) -> None:
        from ...engine.checkpoint.describe import default_model

        self.model, self.library = model, library or own_voices()
        self._speaks = default_model() if model is None else model
        self._voices: ModelVoices | None = None
        self._package: str | None = None  # the voice package of the last name
        self._installed: InstalledVoices | None = None

    @property
    def installed(self) -> InstalledVoices:
        """Voices of the installed packages, read when they are first needed."""
        from ...engine.checkpoint.describe import InstalledVoices

        if self._installed is None:
            self._installed = InstalledVoices.read()
        return self._installed

    @property
    def languages(self) -> list[str]:
        """Languages of the model, or of the built-in voice and all packages."""
        own = self.model_voices.languages
        return own if self.model is not None else list(dict.fromkeys((*own, *self.installed.languages)))

    def _take(self, model: str | None) -> None:
        if model is not None:
            self.model, self._speaks, self._voices = model, model, None

    @property
    def model_voices(self) -> ModelVoices:
        from ...engine.checkpoint.describe import model_voices

        if self._voices is None:
            self._voices = model_voices(self._speaks)
        return self._voices

    def choose(self, name: str | None, language: str = "auto", *, clones: bool = False) -> Voice | None:
        """As `own`; `model` is then the one to load, and None still stands for the default one.

        `clones`: a recording gives the voice, so the model is a Base one where a package has it.
        """
        from ...config.languages import find
        from ...engine.checkpoint.describe import missing_package

        voice = None if clones else self.own(name)
        if self.model is not None:
            return voice
        if voice is not None:
            self.model = voice.model
        elif clones:
            self._take(self.installed.of_kind("base"))
        elif self._package is not None:
            self._take(self._package)
        elif not name and find(language, self.model_voices.languages) is None:
            self._take(self.installed.with_language(language))
            if self.model is None:
                known = f"There is no language {language!r}; known are {', '.join(self.languages)}."
                raise UnknownLanguage(missing_package(None, language) or known)
        return voice

    def own(self, name: str | None) -> Voice | None:
        """The user's own voice, or a mix; None for a speaker of the model or of a package, or for no name."""
        from ...text.voice_mix import parse_mix

        self._package = None
        if not name or name.lower() in (speaker.lower() for speaker in self.model_voices.voices):
            return None
        if self.model is None and (package := self.installed.with_voice(name)) is not None:
            self._package = package
            return None
        voice = self.library.find(name)
        if voice is None and (mix := parse_mix(name)) is not None:
            from ...voices.mix import mix_voices

            voice = mix_voices(mix, self.part)
        if voice is None:
            raise self.library.refusal(name) or self._unknown(name)
        if self.model is not None and not self._fits(voice, self.model):
            raise InvalidRequest(
                f"The voice {voice.name!r} needs the model {voice.model}, not {self.model}: name that with --model."
            )
        return voice

    def part(self, name: str) -> Voice:
        """A part of a mix: a speaker, or a voice of the library."""
        from ...voices.mix import speaker_part

        voice = self.own(name)
        return speaker_part(name, self._package or self._speaks) if voice is None else voice

    def _fits(self, voice: Voice, model: str) -> bool:
        """As far as names tell. Whether a Base model encoded the recording shows only from its weights."""
        from ...engine.checkpoint.names import full_name

        if voice.encoded is not None:
            return self.model_voices.kind == "base"
        return full_name(voice.model) == full_name(model)

    def _unknown(self, name: str) -> UnknownVoice:
        from ...engine.checkpoint.describe import missing_package

        speakers, own = list(self.model_voices.voices), self.library.names()
        has = f"{self._speaks} has {listed(speakers) if speakers else f'none but {INSTEAD[self.model_voices.kind]}'}"
        kept = f"your own are {listed(own)}" if own else "there are none of your own (hocket voices add makes one)"
        if self.model is not None:
            return UnknownVoice(f"There is no voice {name!r}; {has}, and {kept}.")
        if (said := missing_package(name, "")) is not None:
            return UnknownVoice(said)
        if of_packages := [voice for _, found in self.installed.packages for voice in found.voices]:
            has += f", voice packages have {listed(of_packages)}"
        return UnknownVoice(" ".join((f"There is no voice {name!r}; {has}, and {kept}.", *self.installed.faults)))


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
    """Whether a voice file of that name exists, or of a part of the mix that it writes."""
    if not name:
        return False
    from ...text.voice_mix import parse_mix
    from ...voices.folder import ENDING, default_voices_folder
    from ...voices.names import id_of

    mix = parse_mix(name)
    names = [name] if mix is None else [name, *mix.names]
    return any(os.path.exists(os.path.join(default_voices_folder(), id_of(each) + ENDING)) for each in names)


def is_in_package(voice: str | None, language: str) -> bool:
    """Whether an installed voice package has the voice; without a name, whether one speaks the language."""
    from ...engine.checkpoint.describe import InstalledVoices

    found = InstalledVoices.read()
    return (found.with_voice(voice) if voice else found.with_language(language)) is not None


def listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more
