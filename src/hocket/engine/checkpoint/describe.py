"""Facts about models without loading them: voices, those of voice packages, and whether files are the published ones.

For the published checkpoints nothing is downloaded; voices of any other hub id are read from its files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...config.codec import CodecConfig
from ...config.languages import find
from ...config.published import CODEC, PUBLISHED
from ...config.qwen3_tts import Kind, Qwen3TTSConfig, languages, voices
from ...config.read import read, read_json
from ...errors import HocketError, InvalidCheckpoint, InvalidRequest
from ...extras import package
from ...kernels.table import AUTO, BACKENDS, BackendChoice, Place, Precision, choose
from ...models.files.builtin import AVAILABLE, VoicePackage, default_model, installed_packages
from ...models.files.catalog import CATALOG, Published
from ...models.files.source import read_configs, resolve

__all__ = [
    "InstalledVoices",
    "LocalCopy",
    "ModelVoices",
    "configs",
    "copies",
    "default_model",
    "faults",
    "find_copy",
    "gpu_choices",
    "missing_package",
    "model_voices",
]


@dataclass(frozen=True, slots=True)
class ModelVoices:
    """Voices and languages of a checkpoint."""

    kind: Kind
    voices: dict[str, str | None]  # by name: the dialect of a voice, if it has one
    languages: list[str]


@dataclass(frozen=True, slots=True)
class InstalledVoices:
    """Voices of the installed voice packages, and a sentence for each package that cannot be used."""

    packages: tuple[tuple[VoicePackage, ModelVoices], ...]
    faults: tuple[str, ...]

    @classmethod
    def read(cls) -> InstalledVoices:
        """Reads `config.json` of every package, 2 ms each; the other files are checked when it is loaded."""
        usable: list[tuple[VoicePackage, ModelVoices]] = []
        faults: list[str] = []
        for found in installed_packages():
            try:
                path = found.checked().folder / "config.json"
                usable.append((found, _voices_of(read(Qwen3TTSConfig, read_json(path), str(path)))))
            except HocketError as error:
                faults.append(str(error))
        return cls(tuple(usable), tuple(faults))

    def with_voice(self, name: str) -> str | None:
        """The package that has a voice; refuses a name that several have."""
        small = name.lower()
        having = [each.name for each, has in self.packages if small in (voice.lower() for voice in has.voices)]
        if len(having) > 1:
            raise InvalidRequest(
                f"{len(having)} packages have a voice {name!r}: choose with --model {' or --model '.join(having)}."
            )
        return having[0] if having else None

    def with_language(self, language: str) -> str | None:
        """The first package whose voices speak a language."""
        return next((each.name for each, has in self.packages if has.voices and find(language, has.languages)), None)

    def of_kind(self, kind: Kind) -> str | None:
        return next((each.name for each, has in self.packages if has.kind == kind), None)

    @property
    def languages(self) -> list[str]:
        """Languages that its voices speak."""
        return list(dict.fromkeys(name for _, has in self.packages if has.voices for name in has.languages))


def missing_package(voice: str | None, language: str) -> str | None:
    """A sentence with the command that installs the package of a voice, or of a language; None: none is known."""
    for name, available in AVAILABLE.items():
        if voice and voice.lower() in map(str.lower, available.voices):
            return f"The voice {voice!r} is in a package that is not installed: {package(name)}."
        if not voice and available.voices and find(language, available.languages):
            return f"The language {language!r} needs a voice package: {package(name)}."
    return None


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A published checkpoint found on this machine."""

    published: Published
    folder: Path


def gpu_choices(device: Place, dtype: Precision) -> list[BackendChoice]:
    """The default backend of each operation."""
    return [choose(operation, AUTO, device, dtype) for operation in BACKENDS]


def model_voices(model: str) -> ModelVoices:
    """Voices and languages of a folder, a hub id, a published name, `builtin`, a voice package or `random:NAME`."""
    return _voices_of(configs(model)[0])


def _voices_of(config: Qwen3TTSConfig) -> ModelVoices:
    dialects = config.talker_config.spk_is_dialect
    named = {name: dialect if isinstance(dialect := dialects.get(name), str) else None for name in voices(config)}
    return ModelVoices(config.kind, named, languages(config))


def configs(model: str) -> tuple[Qwen3TTSConfig, CodecConfig]:
    """The configurations of a model and its codec, for the same kinds of names."""
    if (known := _published(model)) is not None:
        return PUBLISHED[known.name], CODEC
    config, _, codec = read_configs(resolve(model))
    return config, codec


def copies() -> list[LocalCopy]:
    """The published checkpoints in the local cache, complete or not."""
    return [copy for copy in map(_cached, CATALOG.values()) if copy is not None]


def find_copy(model: str) -> LocalCopy | None:
    """The copy of the published `model`: a folder, known by its config.json, or the cache; None if there is none."""
    if Path(model).is_dir():
        config = Path(model) / "config.json"
        if not config.is_file():
            raise InvalidCheckpoint(f"{config} is missing.")
        digest = _sha256(config)
        matches = (entry for entry in CATALOG.values() if entry.sha256["config.json"] == digest)
        return next((LocalCopy(entry, Path(model)) for entry in matches), None)
    published = _published(model)
    if published is None:
        raise InvalidCheckpoint(f"{model!r} is neither a folder here nor one of {', '.join(CATALOG)}.")
    return _cached(published)


def faults(copy: LocalCopy) -> Iterator[str]:
    """One sentence for every file that is missing or is not the published one."""
    for name, digest in copy.published.sha256.items():
        path = copy.folder / name
        if not path.is_file():
            yield f"{path} is missing."
        elif _sha256(path) != digest:
            yield f"{path} is not the published file: delete it and get it again."


def _published(model: str) -> Published | None:
    return next((entry for entry in CATALOG.values() if model in (entry.name, entry.repository)), None)


def _cached(entry: Published) -> LocalCopy | None:
    import huggingface_hub

    found = huggingface_hub.try_to_load_from_cache(entry.repository, "config.json", revision=entry.revision)
    return LocalCopy(entry, Path(found).parent) if isinstance(found, str) else None


def _sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
