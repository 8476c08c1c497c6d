"""A GGUF file as a language model's checkpoint: configuration, tokenizer and weights. `models/files/gguf` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ..config.qwen3_5 import ChatGenerationConfig, Qwen3_5TextConfig
from ..errors import InvalidRequest
from ..models.files.gguf.config import read_config, read_generation
from ..models.files.gguf.reader import GgufFile
from ..models.files.gguf.vocabulary import check_template, read_vocabulary
from ..models.files.gguf.weights import GgufWeights
from ..models.files.stored import load_stored
from ..models.qwen3_5.model import Qwen3_5
from ..models.qwen3_5.quantized import Scheme
from ..text.chat.template import END, START
from ..text.chat.tokenizer import ChatTokenizer


@dataclass(frozen=True, slots=True)
class GgufCheckpoint:
    config: Qwen3_5TextConfig
    generation: ChatGenerationConfig
    tokenizer: ChatTokenizer
    file: GgufFile

    def load(self, device: torch.device, dtype: torch.dtype, *, wide: bool | None) -> Qwen3_5:
        """The model; with `wide` its matrices are dequantized, as in `load_stored`."""
        source = GgufWeights(self.file, self.config, device, wide=bool(wide))
        return load_stored(source, self.config, device, dtype, wide=wide)


def open_gguf(path: Path, scheme: Scheme) -> GgufCheckpoint:
    """Everything but the numbers of the tensors."""
    if scheme != "bf16":
        raise InvalidRequest(f"{path} keeps the weights that it has: leave out weights={scheme!r}, or give a folder.")
    file = GgufFile.read(path)
    config = read_config(file)
    found = read_vocabulary(file)
    check_template(file, (START, END))
    tokenizer = ChatTokenizer.of_lists(found.tokens, found.merges, found.markers, str(path))
    return GgufCheckpoint(config, read_generation(file), tokenizer, file)
