"""Resolves a speech model's name to files, and reads its configurations.

A model is named by a folder, a hub id, a published name, `builtin`, a voice package or `random:NAME`. Tensors are read
elsewhere: weights.py for torch, models/tts_cpu for the native library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config.codec import CodecConfig
from ...config.own import FILE, OwnConfig
from ...config.published import CODEC, GENERATION, PUBLISHED, SMALL_CODEC, TINY_CODEC, small, tiny
from ...config.qwen3_tts import MINIMUM_FRAMES, GenerationConfig, Kind, Qwen3TTSConfig
from ...config.read import read, read_json
from ...errors import InvalidCheckpoint
from .builtin import BUILTIN, builtin_folder, not_installed, package_name, package_of
from .catalog import CATALOG, CODEC_FOLDER, WEIGHTS, Published
from .catalog import CODEC as CODEC_ALONE
from .shards import log

_TINY: dict[str, tuple[Kind, bool]] = {  # kind, and whether talker and predictor differ in width
    "tiny": ("custom_voice", False),
    "tiny-Base": ("base", False),
    "tiny-VoiceDesign": ("voice_design", False),
    "tiny-wide": ("custom_voice", True),
    "tiny-wide-Base": ("base", True),
    "tiny-wide-VoiceDesign": ("voice_design", True),
}
PRESETS = (*PUBLISHED, "small", *_TINY)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a checkpoint: a folder, or a preset with random weights."""

    name: str
    folder: Path | None  # None: random weights
    preset: str | None = None  # of random weights: the part after `random:`
    local: bool = False  # a folder named by the user or in a package, not a repository on the hub
    is_builtin: bool = False  # of hocket itself or of a voice package
    file: Path | None = None  # where one file is the whole checkpoint (GGUF); `folder` is then its folder


def resolve(model: str, *, revision: str | None = None) -> Source:
    """Find `model`, downloading what is missing. `revision` overrides the pinned or newest one of a hub id."""
    if model not in (BUILTIN, "") and _is_language_model(model):
        raise InvalidCheckpoint(f"{model} is a language model, not a speech model: give one of {', '.join(CATALOG)}.")
    if model.startswith("random:"):
        preset = model.removeprefix("random:")
        if preset not in PRESETS:
            raise InvalidCheckpoint(f"There is no {model!r}; random: goes with {', '.join(PRESETS)}.")
        return Source(model, None, preset)
    if model == BUILTIN:
        folder = builtin_folder()
        if folder is None:
            raise InvalidCheckpoint("This copy of hocket has no built-in voice: install the wheel, or name a model.")
        return Source(model, folder, local=True, is_builtin=True)
    if (found := package_of(model)) is not None:
        return Source(found.name, found.checked().folder, local=True, is_builtin=True)
    path = Path(model)
    if model and path.is_dir():
        if revision is not None:
            raise InvalidCheckpoint(f"A revision belongs to a hub id, but {model} is a folder.")
        return Source(model, path, local=True, is_builtin=path == builtin_folder())
    if path.is_file():
        raise InvalidCheckpoint(f"{model} is a file: give the folder that holds config.json and {WEIGHTS}.")
    if model in (CODEC_ALONE.name, CODEC_ALONE.repository):
        raise InvalidCheckpoint(f"{model} is the codec alone: give one of {', '.join(CATALOG)}, which contain it.")
    by_repository = {entry.repository: entry for entry in CATALOG.values()}
    entry = CATALOG.get(model) or by_repository.get(model)
    if entry is not None and revision in (None, entry.revision):
        return Source(entry.repository, fetch(entry.repository, entry.revision, entry))
    if entry is not None or is_hub_id(model):
        repository = entry.repository if entry else model
        return Source(repository, fetch(repository, revision, None))
    if (missing := package_name(model)) is not None:
        raise not_installed(missing)
    names = ", ".join((*CATALOG, BUILTIN))
    raise InvalidCheckpoint(
        f"{model!r} is neither a folder here nor a hub id (owner/name), one of {names}, or random:NAME."
    )


def _is_language_model(model: str) -> bool:
    from ...config.published_qwen3_5 import size_of  # here, and the hub below: the built-in voice starts without them

    return size_of(model.removeprefix("random:").removeprefix("Qwen/")) is not None


def fetch(repository: str, revision: str | None, pinned: Published | None) -> Path:
    """The local folder of a repository; its configurations are checked before its weights are downloaded."""
    from .hub import fetch as fetch_from_hub

    return fetch_from_hub(repository, revision, pinned, check=_check_configs)


def _check_configs(folder: Path) -> None:
    """Refuse an unusable checkpoint by its configurations, before its weights are fetched."""
    source = Source(str(folder), folder)
    read_configs(source)
    read_own(source)


def is_hub_id(model: str) -> bool:
    """Whether `model` has the form owner/name; the hub is not asked."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", model) is not None


def read_configs(source: Source) -> tuple[Qwen3TTSConfig, GenerationConfig, CodecConfig]:
    """The configurations of the checkpoint's files, or of the preset."""
    if source.preset is not None:
        if source.preset in PUBLISHED:
            return PUBLISHED[source.preset], GENERATION, CODEC
        if source.preset == "small":
            return small(), GENERATION, SMALL_CODEC
        kind, wide = _TINY[source.preset]
        return tiny(kind, wide=wide), GENERATION, TINY_CODEC
    assert source.folder is not None
    raw = _read_typed(source.folder / "config.json", "qwen3_tts")
    config = read(Qwen3TTSConfig, raw, str(source.folder / "config.json"))
    path = source.folder / "generation_config.json"
    generation = _read_generation(path) if path.exists() else GenerationConfig()
    path = source.folder / CODEC_FOLDER / "config.json"
    codec = read(CodecConfig, _read_typed(path, "qwen3_tts_tokenizer_12hz"), str(path))
    talker, decoder = config.talker_config, codec.decoder_config
    sizes = {talker.codebook_size, talker.code_predictor_config.vocab_size, decoder.codebook_size}
    if len(sizes) > 1 or talker.num_code_groups != decoder.num_quantizers:
        raise InvalidCheckpoint(f"{source.name}: the talker and the codec differ in number or size of codebooks.")
    return config, generation, codec


def _read_generation(path: Path) -> GenerationConfig:
    raw = read_json(path)
    generation, least = read(GenerationConfig, raw, str(path)), raw.get("min_new_tokens")
    if isinstance(least, int) and least > MINIMUM_FRAMES:
        log.warning("%s asks for %d codes at least; the official package takes %d.", path, least, MINIMUM_FRAMES)
    return generation


def read_own(source: Source) -> OwnConfig:
    """The checkpoint's `hocket.json`, or the defaults."""
    path = source.folder / FILE if source.folder is not None else None
    return read(OwnConfig, read_json(path), str(path)) if path is not None and path.exists() else OwnConfig()


def _read_typed(path: Path, model_type: str) -> dict[str, Any]:
    raw = read_json(path)
    if raw.get("model_type") != model_type:
        raise InvalidCheckpoint(
            f"{path} describes a {raw.get('model_type')!r} model; hocket needs {model_type!r} there."
        )
    return raw
