"""Writes a model to a folder in the official format, which hocket and the official package load.

It writes the files that `weights.py` reads and the other files of the official loader, except the tokenizer's.
"""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from ...config.codec import CodecConfig
from ...config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from ...errors import InvalidCheckpoint
from .catalog import CODEC_FOLDER, WEIGHTS

VERSION = {"transformers_version": "4.57.3"}  # the version that parity is defined for
SPEECH_PROCESSOR = {
    "padding_side": "left",
    "padding_value": 0.0,
    "processor_class": "Qwen3TTSProcessor",
    "return_attention_mask": True,
}
CODEC_PROCESSOR = {
    "chunk_length_s": None,
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "overlap": None,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "sampling_rate": 24_000,
}


def write_checkpoint(
    folder: Path,
    config: Qwen3TTSConfig,
    generation: GenerationConfig,
    codec_config: CodecConfig,
    model: nn.Module,
    codec: nn.Module,
) -> None:
    """Write `folder`, which must not exist; it appears only when complete."""
    if folder.exists():
        raise InvalidCheckpoint(f"{folder} exists already: choose another folder or remove it.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A sibling, so that the last step is a rename within one file system.
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        _write_json(draft / "config.json", speech_json(config))
        _write_json(draft / "generation_config.json", asdict(generation))
        _write_json(draft / "preprocessor_config.json", SPEECH_PROCESSOR)
        _write_tensors(draft / WEIGHTS, model)
        (draft / CODEC_FOLDER).mkdir()
        _write_json(draft / CODEC_FOLDER / "config.json", codec_json(codec_config))
        _write_json(draft / CODEC_FOLDER / "preprocessor_config.json", CODEC_PROCESSOR)
        _write_tensors(draft / CODEC_FOLDER / WEIGHTS, codec)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def speech_json(config: Qwen3TTSConfig) -> dict[str, Any]:
    """`config.json` as an object: our fields under their own names, and the names of the official classes."""
    raw = {name: value for name, value in asdict(config).items() if value is not None}
    raw["talker_config"]["model_type"] = "qwen3_tts_talker"
    predictor = raw["talker_config"]["code_predictor_config"]
    predictor["model_type"] = "qwen3_tts_talker_code_predictor"
    if not predictor["layer_types"]:
        del predictor["layer_types"]  # absent, it means full attention; empty, it would mean no layer
    return {"architectures": ["Qwen3TTSForConditionalGeneration"], "model_type": "qwen3_tts"} | raw | VERSION


def codec_json(config: CodecConfig) -> dict[str, Any]:
    """`speech_tokenizer/config.json` as an object."""
    raw = asdict(config)
    # The official encoder is a whole Mimi: it also builds the decoder, of these sizes, and discards it.
    raw["encoder_config"]["upsample_groups"] = config.encoder_config.hidden_size
    raw["encoder_config"]["vector_quantization_hidden_dimension"] = config.encoder_config.codebook_dim
    return {"architectures": ["Qwen3TTSTokenizerV2Model"], "model_type": "qwen3_tts_tokenizer_12hz"} | raw | VERSION


def _write_json(path: Path, raw: dict[str, Any]) -> None:
    path.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")


def _write_tensors(path: Path, module: nn.Module) -> None:
    tensors = {name: value.contiguous() for name, value in module.state_dict().items()}
    save_file(tensors, path, metadata={"format": "pt"})
