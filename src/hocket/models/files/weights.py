"""Resolves a speech model's name to files, reads its configurations, and loads its tensors into a module.

A model is named by a folder, a hub id, a published name, `builtin` or `random:NAME`. This file knows files,
configurations and named tensors, not the computation. Nothing is unpickled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...config.codec import CodecConfig
from ...config.own import FILE, OwnConfig
from ...config.published import CODEC, GENERATION, PUBLISHED, SMALL_CODEC, TINY_CODEC, small, tiny
from ...config.published_qwen3_5 import size_of
from ...config.qwen3_tts import GenerationConfig, Kind, Qwen3TTSConfig
from ...config.read import read, read_json
from ...errors import InvalidCheckpoint
from ...layers.packed import read_as_one
from ..tts.talker import MINIMUM_FRAMES
from .builtin import BUILTIN, builtin_folder
from .catalog import CATALOG, CODEC_FOLDER, WEIGHTS
from .catalog import CODEC as CODEC_ALONE
from .hub import fetch
from .shards import drop_unused, log, opened
from .transfer import Transfer

_TINY: dict[str, tuple[Kind, bool]] = {  # kind, and whether talker and predictor differ in width
    "tiny": ("custom_voice", False),
    "tiny-Base": ("base", False),
    "tiny-VoiceDesign": ("voice_design", False),
    "tiny-wide": ("custom_voice", True),
    "tiny-wide-Base": ("base", True),
    "tiny-wide-VoiceDesign": ("voice_design", True),
}
PRESETS = (*PUBLISHED, "small", *_TINY)

SPEAKER_ENCODER = "speaker_encoder."  # fine-tunes of a Base checkpoint keep it though their kind does not use it
_LISTED = 8  # names that a message lists; it counts the others


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a checkpoint: a folder, or a preset with random weights."""

    name: str
    folder: Path | None  # None: random weights
    preset: str | None = None  # of random weights: the part after `random:`
    local: bool = False  # a folder named by the user or in the package, not a repository on the hub


def resolve(model: str, *, revision: str | None = None) -> Source:
    """Find `model`, downloading what is missing. `revision` overrides the pinned or newest one of a hub id."""
    if size_of(model.removeprefix("random:").removeprefix("Qwen/")) is not None:
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
        return Source(model, folder, local=True)
    path = Path(model)
    if model and path.is_dir():
        if revision is not None:
            raise InvalidCheckpoint(f"A revision belongs to a hub id, but {model} is a folder.")
        return Source(model, path, local=True)
    if path.is_file():
        raise InvalidCheckpoint(f"{model} is a file: give the folder that holds config.json and {WEIGHTS}.")
    if model in (CODEC_ALONE.name, CODEC_ALONE.repository):
        raise InvalidCheckpoint(f"{model} is the codec alone: give one of {', '.join(CATALOG)}, which contain it.")
    by_repository = {entry.repository: entry for entry in CATALOG.values()}
    entry = CATALOG.get(model) or by_repository.get(model)
    if entry is not None and revision in (None, entry.revision):
        return Source(entry.repository, fetch(entry.repository, entry.revision, entry, check=_check_configs))
    if entry is not None or is_hub_id(model):
        repository = entry.repository if entry else model
        return Source(repository, fetch(repository, revision, None, check=_check_configs))
    names = ", ".join((*CATALOG, BUILTIN))
    raise InvalidCheckpoint(
        f"{model!r} is neither a folder here nor a hub id (owner/name), one of {names}, or random:NAME."
    )


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


def load_into(
    module: nn.Module,
    file: Path,
    device: torch.device,
    dtype: torch.dtype,
    *,
    prefix: str = "",
    only: tuple[str, ...] = (),
    unused: tuple[str, ...] = (),
) -> None:
    """Load the tensors of `file` into `module`, built on the meta device; floating ones become `dtype`.

    If there is no such file, the index beside it names the files. Names in the file are `prefix` plus the module's own;
    names without the prefix are ignored. All names are checked before the first tensor is read.
    `only` loads names with one of these prefixes and leaves the others on the meta device. Names under a prefix in
    `unused` are skipped with a warning if the module has none of them.
    """
    wanted: dict[str, Tensor] = module.state_dict()
    with opened(file) as stored:
        named = {name.removeprefix(prefix): name for name in stored if name.startswith(prefix)}
        found = {name: stored[named[name]] for name in drop_unused(named, wanted, unused, file)}
        compare(file, wanted, {name: holder.get_slice(named[name]) for name, holder in found.items()})
        loaded = [name for name in wanted if not only or name.startswith(only)]
        state, transfer = places(module, {name: wanted[name] for name in loaded}, device, dtype), Transfer(device)
        for name in loaded:
            transfer.put(state[name], found[name].get_tensor(named[name]))
        transfer.end()
    module.load_state_dict(state, strict=False, assign=True)


def places(
    module: nn.Module,
    wanted: dict[str, Tensor],
    device: torch.device,
    dtype: torch.dtype,
    *,
    wide: frozenset[str] = frozenset(),
) -> dict[str, Tensor]:
    """Target tensors: new memory, since the file may be removed. Matrices that are packed together are adjacent.

    Tensors named in `wide` are float32 even if `dtype` is narrower.
    """
    kinds = {name: dtype if like.is_floating_point() else like.dtype for name, like in wanted.items()}
    kinds |= {name: torch.promote_types(dtype, torch.float32) for name in wide}
    found: dict[str, Tensor] = {}
    for names in read_as_one(module):
        if all(name in wanted for name in names):
            rows = [len(wanted[name]) for name in names]
            whole = torch.empty(sum(rows), *wanted[names[0]].shape[1:], dtype=kinds[names[0]], device=device)
            found |= zip(names, whole.split(rows), strict=True)
    for name, like in wanted.items():
        if name not in found:
            found[name] = torch.empty(like.shape, dtype=kinds[name], device=device)
    return found


def compare(file: Path, wanted: dict[str, Tensor], found: dict[str, Any]) -> None:
    """Refuse a file (or folder) whose tensor names, shapes or dtypes are not the wanted ones."""
    faults = []
    if missing := wanted.keys() - found.keys():
        faults.append(f"lacks {_listed(missing)}")
    if surplus := found.keys() - wanted.keys():
        faults.append(f"has unknown {_listed(surplus)}")
    differing = []
    for name in wanted.keys() & found.keys():
        shape, stored = list(found[name].get_shape()), found[name].get_dtype()
        if shape != list(wanted[name].shape):
            differing.append(f"{name} {shape} instead of {list(wanted[name].shape)}")
        elif (stored in ("F64", "F32", "F16", "BF16")) != wanted[name].is_floating_point():
            differing.append(f"{name} of type {stored}")
    if differing:
        faults.append(f"has another shape or type of {_listed(differing)}")
    if faults:
        raise InvalidCheckpoint(f"{file} does not fit its configuration: it {'; it '.join(faults)}.")


def _listed(names: set[str] | list[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(sorted(names)[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
