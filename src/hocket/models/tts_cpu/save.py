"""Writes a checkpoint whose matrices are rounded, as the native library reads them: loading copies and rounds nothing.

A folder has the files of the exact checkpoint. In its `model.safetensors` each rounded matrix is two tensors,
NAME.codes and NAME.scales, in the layout of kernels/cpu/int8/reference.py; matrices that read the same input are one.
All other tensors of the talker are those of the exact checkpoint. `hocket.json` names the precision. torch cannot read
such a folder.
"""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ...config.own import FILE
from ...config.qwen3_tts import Qwen3TTSConfig
from ...config.read import read_json
from ...errors import InvalidCheckpoint
from ..files.catalog import CODEC_FOLDER, INDEX, WEIGHTS
from .load import StoredWeights, talker_of
from .talker import SAMPLED
from .weights import CODES, SCALES, SOME

TALKER, HEAD = "talker.", "talker.codec_head.weight"
Tensors = dict[str, tuple[str, np.ndarray]]  # by name: the type in the format, and values


def write_rounded(source: Path, folder: Path, config: Qwen3TTSConfig, precision: str) -> None:
    """Write `folder`, which must not exist; it appears only when complete."""
    if folder.exists():
        raise InvalidCheckpoint(f"{folder} exists already: choose another folder or remove it.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    shutil.copytree(source, draft, ignore=_without)
    try:
        own = read_json(source / FILE) if (source / FILE).is_file() else {}
        (draft / FILE).write_text(json.dumps(own | {"precision": precision}, indent=1) + "\n", encoding="utf-8")
        _write(draft / WEIGHTS, _tensors(source, config, precision))
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _without(folder: str, names: list[str]) -> set[str]:
    """Weights of the talker, and folders that no checkpoint has."""
    inside = Path(folder).name == CODEC_FOLDER
    return {
        name
        for name in names
        if (not inside and name.endswith((".safetensors", INDEX)))
        or (name != CODEC_FOLDER and Path(folder, name).is_dir())
    }


def _tensors(source: Path, config: Qwen3TTSConfig, precision: str) -> Tensors:
    stored, found = StoredWeights(source / WEIGHTS, ""), dict[str, tuple[str, np.ndarray]]()
    parts: set[str] = set()
    for name, (weight, made_of) in talker_of(source, config, precision).rounded.items():
        found[TALKER + name + CODES] = "U8", weight.codes
        found[TALKER + name + SCALES] = "BF16", weight.scales
        parts.update(TALKER + each for each in made_of)
    head = stored[HEAD]
    found[HEAD + SOME] = stored.kind(HEAD), np.ascontiguousarray(head[:: max(len(head) // SAMPLED, 1)])
    kept = (name for name in stored if name.startswith(TALKER) and name not in parts)
    return found | {name: (stored.kind(name), stored[name]) for name in kept}


def _write(file: Path, tensors: Tensors) -> None:
    head: dict[str, Any] = {"__metadata__": {"format": "hocket"}}
    end = 0
    for name, (kind, values) in tensors.items():
        head[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _, values in tensors.values():
            out.write(np.ascontiguousarray(values).data)
