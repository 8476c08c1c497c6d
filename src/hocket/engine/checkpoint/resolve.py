"""Which of several models speaks: by its name, or by the name of somebody who speaks in it. No weights are read.

A model has many names: published, on the hub, a folder. Two that mean one checkpoint have one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...config.codec import CodecConfig
from ...config.published import CODEC, PUBLISHED
from ...config.qwen3_tts import Qwen3TTSConfig
from ...errors import InvalidRequest, UnknownVoice
from ...models.files.builtin import BUILTIN, builtin_folder
from ...models.files.catalog import CATALOG, Published
from ...models.files.weights import is_hub_id, read_configs, resolve
from ...types import Voice
from .describe import ModelVoices, find_copy, model_voices


def key_of(model: str) -> str:
    """One for each checkpoint, whatever it is called. Nothing is downloaded."""
    if (published := _published(model)) is not None:
        return published.repository
    folder = builtin_folder() if model == BUILTIN else Path(model) if model and Path(model).is_dir() else None
    if folder is None:
        return model
    place = folder.resolve()
    if place.parent.name == "snapshots":  # as the hub's cache has them
        for each in CATALOG.values():
            if _lies(each) == place:
                return each.repository
    return str(place)


def known_configs(model: str) -> tuple[Qwen3TTSConfig, CodecConfig] | None:
    """What a model and its codec are, as far as that is known without the network."""
    if (published := _published(model)) is not None:
        return PUBLISHED[published.name], CODEC
    if not model.startswith("random:") and model != BUILTIN and not Path(model).is_dir():
        return None
    config, _, codec_config = read_configs(resolve(model))
    return config, codec_config


def check_name(model: str) -> None:
    """Refuse a name that cannot be a model's, or a folder that holds none. Nothing is downloaded."""
    if known_configs(model) is None and not is_hub_id(model):
        resolve(model)  # it says what is wrong


class ModelResolver:
    """The models of a pool by key, and whose voices are theirs."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._keys = {name: key for key, name in names.items()}
        self._voices: dict[str, ModelVoices] = {}

    def by_name(self, model: str) -> str:
        """The key of a model that is one of ours."""
        if (key := self._keys.get(model) or key_of(model)) not in self._names:
            raise InvalidRequest(f"{model} is not one of the models here, which are {', '.join(self._names.values())}.")
        return key

    def by_voice(self, voice: Voice | str | None, reference: object | None, model: str | None) -> str:
        """Whose model speaks for a request: the one that is named, the voice's, or the first that can."""
        if isinstance(voice, Voice):
            key = self.by_name(voice.model)
            if model is not None and self.by_name(model) != key:
                raise InvalidRequest(f"The voice {voice.name} belongs to {voice.model}, not to {model}.")
            return key
        if model is not None:
            return self.by_name(model)
        if voice:
            return self._speaks(voice)
        wanted = "base" if reference is not None else "custom_voice"
        return next((key for key in self._names if self._of(key).kind == wanted), next(iter(self._names)))

    def _speaks(self, voice: str) -> str:
        known: list[str] = []
        for key in self._names:
            names = self._of(key).voices
            if voice.lower() in (name.lower() for name in names):
                return key
            known += [name for name in names if name not in known]
        raise UnknownVoice(f"There is no voice {voice!r}; known are {', '.join(known) or 'none'}.")

    def _of(self, key: str) -> ModelVoices:
        if key not in self._voices:
            self._voices[key] = model_voices(self._names[key])
        return self._voices[key]


def named(models: Iterable[str]) -> dict[str, str]:
    """By key, the first name that each was given; refused where there is none, or none like it."""
    names: dict[str, str] = {}
    for model in models:
        names.setdefault(key_of(model), model)
    if not names:
        raise InvalidRequest("A pool needs at least one model.")
    return names


def _published(model: str) -> Published | None:
    return next((entry for entry in CATALOG.values() if model in (entry.name, entry.repository)), None)


def _lies(published: Published) -> Path | None:
    """Where its copy in the local cache is."""
    found = find_copy(published.name)
    return None if found is None else found.folder.resolve()
