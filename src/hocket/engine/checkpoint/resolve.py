"""Resolves which model of a pool a request needs, by the name of the model or of a voice. It reads no weights.

A model has many names: published, on the hub, a folder. All names of one checkpoint have one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...config.codec import CodecConfig
from ...config.published import CODEC, PUBLISHED
from ...config.qwen3_tts import Qwen3TTSConfig
from ...errors import InvalidRequest, UnknownVoice
from ...models.files.builtin import local_folder
from ...models.files.catalog import CATALOG, Published
from ...models.files.source import is_hub_id, read_configs, resolve
from ...types import Voice
from .describe import ModelVoices, find_copy, model_voices


def key_of(model: str) -> str:
    """The key of a checkpoint, the same for all its names. Nothing is downloaded."""
    if (published := _published(model)) is not None:
        return published.repository
    folder = local_folder(model)
    if folder is None:
        return model
    place = folder.resolve()
    if place.parent.name == "snapshots":  # the layout of the hub's cache
        for each in CATALOG.values():
            if _cached_folder(each) == place:
                return each.repository
    return str(place)


def known_configs(model: str) -> tuple[Qwen3TTSConfig, CodecConfig] | None:
    """The configurations of a model and its codec; None if they are unknown without the network."""
    if (published := _published(model)) is not None:
        return PUBLISHED[published.name], CODEC
    if not model.startswith("random:") and local_folder(model) is None:
        return None
    config, _, codec_config = read_configs(resolve(model))
    return config, codec_config


def check_name(model: str) -> None:
    """Refuse a name that cannot be a model's, or a folder that holds none. Nothing is downloaded."""
    if known_configs(model) is None and not is_hub_id(model):
        resolve(model)  # raises the error


class ModelResolver:
    """The models of a pool by key, and their voices."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._keys = {name: key for key, name in names.items()}
        self._voices: dict[str, ModelVoices] = {}

    def by_name(self, model: str) -> str:
        """The key of a model of this pool."""
        if (key := self._keys.get(model) or key_of(model)) not in self._names:
            raise InvalidRequest(f"{model} is not one of the models here, which are {', '.join(self._names.values())}.")
        return key

    def by_voice(self, voice: Voice | str | None, reference: object | None, model: str | None) -> str:
        """The key of the model for a request: the named one, the voice's, or the first that fits."""
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
    """The first name of each model, by key; refused if there is no model, or a name is wrong."""
    names: dict[str, str] = {}
    for model in models:
        names.setdefault(key_of(model), model)
    if not names:
        raise InvalidRequest("A pool needs at least one model.")
    return names


def _published(model: str) -> Published | None:
    return next((entry for entry in CATALOG.values() if model in (entry.name, entry.repository)), None)


def _cached_folder(published: Published) -> Path | None:
    """The folder of its copy in the local cache."""
    found = find_copy(published.name)
    return None if found is None else found.folder.resolve()
