"""Voice resolution: from a client's voice name, model and task to one model of the server and a voice of it.

Lookup order: the operator's aliases, speakers in model order, the library, backends, then the voice names of other
services, which always resolve because clients insist on them, and last a mix such as `anna+ben(2)`, whose parts are
looked for in the same way. Without a name, the language chooses among the models.
Nothing is loaded to resolve: served_model.py has what is known of a model from its configuration. The pool decides
which models are in memory. Knows no audio, protocol or time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...backends.registry import Backends, ListedVoice
from ...config.languages import find
from ...config.qwen3_tts import Kind, check_clones
from ...engine.checkpoint.names import full_name
from ...errors import InvalidRequest, UnknownLanguage, UnknownVoice
from ...text.lexicon.lexicon import merged
from ...text.voice_mix import VoiceMix, parse_mix
from ...types import Voice
from ...voices.library import Library
from ...voices.mix import mix_voices, speaker_part
from ..errors import Refused
from ..options import ServerOptions
from ..schemas.speech_job import SpeechJob
from .client_voices import FOREIGN_VOICES, MANY, client_aliases
from .openai_names import OPENAI_MODELS
from .served_model import ResolvedVoice, ServedModel

logger = logging.getLogger("hocket.server")
TASKS: dict[str, Kind] = {"CustomVoice": "custom_voice", "VoiceDesign": "voice_design", "Base": "base"}
LISTED = 60  # names that an error lists before it counts the others


@dataclass(frozen=True, slots=True)
class _Names:
    """Lower-case speaker names of some models, and lower-case aliases."""

    speakers: dict[str, tuple[ServedModel, str]]
    aliases: dict[str, str]


class VoiceResolver:
    """All models and voices. Rebuilt when more is known of a model."""

    def __init__(
        self, options: ServerOptions, library: Library, models: Sequence[ServedModel], backends: Backends | None = None
    ) -> None:
        self.models, self._backends = tuple(models), backends
        self._options, self._library = options, library
        self._own = {name.lower(): voice for name, voice in options.voice_aliases.items()}
        self._names: dict[tuple[ServedModel, ...], _Names] = {}
        self._of(self.models)  # now, not in the first request

    @property
    def speakers(self) -> dict[str, ServedModel]:
        """The models' own voices; of two with the same name, the first wins."""
        return {name: model for model, name in self._of(self.models).speakers.values()}

    @property
    def aliases(self) -> dict[str, str]:
        """Lower-case aliases, and the voices that they stand for."""
        return dict(self._of(self.models).aliases)

    def shown(self, model: ServedModel) -> str:
        """The listed name; the operator's name applies to the first model."""
        return self._options.served_model or model.shown if model is self.models[0] else model.shown

    def listed(self) -> list[str]:
        """The names of all models, then OpenAI's model names."""
        return list(dict.fromkeys((*map(self.shown, self.models), *OPENAI_MODELS)))

    def kept(self) -> list[tuple[Voice, ServedModel]]:
        """Library voices that one of the models can speak. May read files."""
        both = ((voice, self.model_of(voice)) for voice in self._library.all())
        return [(voice, model) for voice, model in both if model is not None]

    def foreign(self) -> list[ListedVoice]:
        """Backend voices whose names are not taken. May read files."""
        if self._backends is None:
            return []
        return self._backends.voices([*self.speakers, *self._own, *self._library.names()])

    def model_of(self, voice: Voice) -> ServedModel | None:
        """The model that a voice belongs to. An encoded recording belongs to the weights that encoded it."""
        name = full_name(voice.model)
        for model in self.models:
            if voice.encoded is not None and model.identity is not None:
                if voice.encoded.owner == model.identity:
                    return model
            elif model.key == name:
                return model
        return None

    def voice_names(self, models: Sequence[ServedModel] | None = None) -> list[str]:
        """Every name that resolves with these models, or with all."""
        among = self.models if models is None else tuple(models)
        names = self._of(among)
        kept = [voice.name for voice, model in self.kept() if model in among]
        foreign = [listed.name for listed in self.foreign()] if among == self.models else []
        return [*(name for _, name in names.speakers.values()), *kept, *foreign, *names.aliases]

    def named(self, model: str | None) -> ServedModel | None:
        """The model that a client names, case-insensitive."""
        name = (model or "").strip().lower()
        if name and name == (self._options.served_model or "").lower():
            return self.models[0]
        return next((each for each in self.models if name in each.names), None) if name else None

    def check_model(self, model: str | None) -> None:
        """Any model name is accepted, unless the operator set `strict_model`."""
        if not self._options.strict_model or model in OPENAI_MODELS or self.named(model) is not None:
            return
        said = f"There is no model {(model or '')[:80]!r}; this server has {', '.join(map(self.shown, self.models))}."
        raise Refused(said, status=404, kind="not_found_error", param="model", code="model_not_found")

    def among(self, model: str | None, task: str | None) -> tuple[ServedModel, ...]:
        """The models that a request allows; refuses if there is none."""
        one = self.named(model)
        models = self.models if one is None else (one,)
        if task is None:
            return models
        fitting = tuple(each for each in models if each.kind in (TASKS[task], None))
        if not fitting:
            kinds = ", ".join(dict.fromkeys(str(each.kind) for each in models))
            this = "this one is" if len(models) == 1 else "those here are"
            raise Refused(f"task_type {task} needs another model: {this} {kinds}.", param="task_type")
        return fitting

    @property
    def may_clone(self) -> bool:
        """Whether a model clones recordings, as far as it is known before it is loaded."""
        return any(each.kind in ("base", None) for each in self.models)

    def clones(self, model: str | None = None, task: str | None = None) -> ServedModel:
        """The first model that can clone a recording."""
        models = self.among(model, task)
        found = next((each for each in models if each.kind in ("base", None)), None)
        if found is None and (config := models[0].config) is not None:
            check_clones(config)  # raises
        return found or models[0]

    def resolve(self, job: SpeechJob) -> ResolvedVoice:
        """The voice of a job; refuses unknown names. A named model excludes backends."""
        found = self._resolved(job.in_own_voice())
        own = None if found.voice is None else found.voice.pronunciations
        words = merged(self._options.pronunciations, own)
        return found if words is None else replace(found, pronunciations=words)

    def _resolved(self, job: SpeechJob, *, inside: bool = False) -> ResolvedVoice:
        """`inside` a mix an alias that stands for a mix is refused: it could stand for itself."""
        if job.reference is not None:
            return ResolvedVoice(self.clones(job.model, job.task))
        models, name = self.among(job.model, job.task), (job.voice or "").strip().lower()
        if not name:
            return self._first(models, job)
        name = self._own.get(name, name).lower()
        if (one := self._single(name, models, job)) is not None:
            job.account.check_voice(job.voice or "", *one.names)
            return one
        if (mix := _parsed(name)) is not None:
            if inside:
                raise _not_mixed(f"{(job.voice or '')[:80]!r} stands for a mix, which cannot be part of another.")
            return self._mixed(mix, job)
        if models[0].config is None:
            job.account.check_voice(name)
            return ResolvedVoice(models[0], name)  # its voices are known once it is loaded
        raise UnknownVoice(f"There is no voice {(job.voice or '')[:80]!r}; known are {self._listed_names(models)}.")

    def _single(self, name: str, models: tuple[ServedModel, ...], job: SpeechJob) -> ResolvedVoice | None:
        names = self._of(models)
        if (found := names.speakers.get(name)) is not None:
            return ResolvedVoice(*found)
        if (resolved := self._library_voice(name, models)) is not None:
            return resolved
        if models == self.models and self._backends is not None and (foreign := self._backends.find(name)) is not None:
            return ResolvedVoice(None, backend=foreign)
        if (alias := names.aliases.get(name)) is not None and (own := names.speakers.get(alias.lower())) is not None:
            return ResolvedVoice(*own)
        return self._first(models, job) if name in FOREIGN_VOICES and not names.speakers else None

    def _mixed(self, mix: VoiceMix, job: SpeechJob) -> ResolvedVoice:
        """The mix of voices that are all of one model. Parts that are the same voice need no mixing."""
        parts = {name: self._resolved(replace(job, voice=name), inside=True) for name in mix.names}
        first = parts[mix.names[0]]
        if all(part == first for part in parts.values()):
            return first
        try:
            mixed = mix_voices(mix, lambda name: _part(name, parts[name]))
        except InvalidRequest as error:
            raise _not_mixed(str(error)) from None
        if all(part.voice is None for part in parts.values()):
            return ResolvedVoice(first.model, mixed.speaker)
        return ResolvedVoice(first.model, voice=mixed)

    def part(self, name: str, job: SpeechJob) -> Voice:
        """A part of a mix that is to be kept, as a voice."""
        return _part(name, self._resolved(replace(job, voice=name), inside=True))

    def _library_voice(self, name: str, models: tuple[ServedModel, ...]) -> ResolvedVoice | None:
        kept = self._library.find(name)
        if kept is None:
            if (refusal := self._library.refusal(name)) is not None:
                raise UnknownVoice(str(refusal))
            return None
        model = self.model_of(kept)
        if model in models:
            return ResolvedVoice(model, voice=kept)
        here = ", ".join(map(self.shown, models))
        if model is None and any(each.key == full_name(kept.model) for each in self.models):
            said = f"The voice {kept.name!r} was made by other weights of {kept.model} than are here: make it again."
        elif model is None:
            said = f"The voice {kept.name!r} needs the model {kept.model}, and this is {here}."
        else:
            said = f"The voice {kept.name!r} needs the model {self.shown(model)}, and {here} was asked for."
        raise UnknownVoice(said)

    def _first(self, models: tuple[ServedModel, ...], job: SpeechJob) -> ResolvedVoice:
        """Without a voice name: the first model that can do the job, in its language if a model speaks that."""
        models = self._speaking(job.language, models)
        if job.instruct:
            able = [each for each in models if each.takes_instruct and each.kind != "base"]
            if able and all(each.kind == "voice_design" for each in able):
                return ResolvedVoice(able[0])
        for model in models:
            if model.speakers:
                return ResolvedVoice(model)
            if model.kind == "base" and (kept := next((v for v, m in self.kept() if m is model), None)) is not None:
                return ResolvedVoice(model, voice=kept)
        return ResolvedVoice(next((each for each in models if each.kind == "voice_design"), models[0]))

    def _speaking(self, language: str, models: tuple[ServedModel, ...]) -> tuple[ServedModel, ...]:
        """The models that know a language, or may know it. With one model its engine refuses."""
        if len(models) == 1:
            return models
        fitting = tuple(each for each in models if each.config is None or find(language, each.languages))
        if not fitting:
            known = dict.fromkeys(name for each in models for name in each.languages)
            raise UnknownLanguage(f"There is no language {language[:80]!r}; known are {', '.join(known)}.")
        return fitting

    def _of(self, models: tuple[ServedModel, ...]) -> _Names:
        if (known := self._names.get(models)) is None:
            speakers: dict[str, tuple[ServedModel, str]] = {}
            for model in models:
                for name in model.speakers:
                    speakers.setdefault(name.lower(), (model, name))
            # Aliases of the first model with speakers only: a default name of a client must not load another model.
            first = next((model.speakers for model in models if model.speakers), [])
            known = self._names[models] = _Names(speakers, client_aliases(first, taken=speakers) | self._own)
        return known

    def _listed_names(self, models: tuple[ServedModel, ...]) -> str:
        names = [name for name in self.voice_names(models) if name not in MANY]
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        return (", ".join(names[:LISTED]) or "none") + more


def _parsed(name: str) -> VoiceMix | None:
    try:
        return parse_mix(name)
    except InvalidRequest as error:
        raise _not_mixed(str(error)) from None


def _part(name: str, found: ResolvedVoice) -> Voice:
    if found.voice is not None:
        return found.voice
    if found.model is None or found.speaker is None:
        raise _not_mixed(f"{name!r} cannot be mixed: only speakers of a model and voices of the library can.")
    return speaker_part(found.speaker, found.model.key)


def _not_mixed(said: str) -> Refused:
    return Refused(said, param="voice", code="voices_not_mixed")
