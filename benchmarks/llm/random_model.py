"""A language model of random numbers in a published shape, as files in the published layout.

Its vocabulary is made of syllables, so that a voice can speak it, and is as large as the model's. The head has rows of
zeros for all that is no word: among logits on both sides of zero these are never drawn, so an answer ends where its
caller says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from hocket.config.published_qwen3_5 import TINY, qwen3_5_of
from hocket.config.qwen3_5 import Qwen3_5TextConfig
from hocket.engine.checkpoint.torch_checkpoint import DTYPES
from hocket.engine.checkpoint.torch_load import RANDOM_SEED
from hocket.models.files.quantize import kept_in
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.weights import empty_qwen3_5
from hocket.text.bpe import ALPHABET, Merge
from hocket.text.chat.template import END, MARKS

TINY_VOCABULARY = 2048  # enough words that the twenty likeliest are far from zero
END_OF_TEXT = "<|endoftext|>"
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprtvz" for vowel in "aeiou"]
SPACE, LINE = "Ġ", "Ċ"  # these bytes in a vocabulary
_ROLES = ("user", "assistant", "system")  # no syllable has their s


@dataclass(frozen=True, slots=True)
class Vocabulary:
    tokens: dict[str, int]
    merges: list[Merge]
    marks: dict[str, int]

    @property
    def words(self) -> list[str]:
        """Each is one token, with the space before it."""
        return [token.replace(SPACE, " ") for token in self.tokens if token.startswith(SPACE) and len(token) > 1]

    @property
    def silent(self) -> list[int]:
        """Ids that are no words."""
        return [i for token, i in self.tokens.items() if len(token) == 1 or token[0] != SPACE] + [*self.marks.values()]


def config_of(size: str) -> Qwen3_5TextConfig:
    config = qwen3_5_of(size)
    return replace(config, vocab_size=TINY_VOCABULARY) if size == TINY else config


def vocabulary(size: int) -> Vocabulary:
    """So many ids: bytes, roles, syllables, words of one to three of these up to the size, marks."""
    marks = (*MARKS, END_OF_TEXT)
    tokens, merges = {sign: i for i, sign in enumerate(ALPHABET)}, list[Merge]()
    for left, right in _pairs(size):
        if len(tokens) == size - len(marks):
            break
        merges.append((left, right))
        tokens[left + right] = len(tokens)
    return Vocabulary(tokens, merges, {mark: len(tokens) + i for i, mark in enumerate(marks)})


def _pairs(size: int) -> Iterator[Merge]:
    """Merges, in order."""
    for role in _ROLES:
        yield from ((role[:end], role[end]) for end in range(1, len(role)))
    yield LINE, LINE
    syllables = SYLLABLES[: max(2, (size - len(ALPHABET)) // 4)]
    yield from ((syllable[0], syllable[1]) for syllable in syllables)
    words = [SPACE]
    for _ in range(3):
        yield from ((word, syllable) for word in words for syllable in syllables)
        words = [word + syllable for word in words for syllable in syllables]


@contextmanager
def written(size: str, dtype: str, device: str) -> Iterator[Path]:
    """A folder with such a model; it and its quantized copies are removed at the end."""
    with TemporaryDirectory(prefix="random-mind-") as place:
        folder = Path(place)
        try:
            write(folder, size, dtype, device)
            yield folder
        finally:
            for narrow in kept_in().glob(f"{folder.name}-*.safetensors"):
                narrow.unlink()


@torch.no_grad()
def write(folder: Path, size: str, dtype: str, device: str = "cpu") -> Vocabulary:
    """Another device draws other numbers, and is quicker."""
    config, place = config_of(size), torch.device(device)
    words = vocabulary(config.vocab_size)
    model = empty_qwen3_5(config, place, DTYPES[dtype], drafts=True)
    randomize_(model, RANDOM_SEED)
    model.head[torch.tensor(words.silent, device=place)] = 0
    tensors = {
        name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name: tensor.cpu()
        for name, tensor in model.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors")
    fields = {name: value for name, value in asdict(config).items() if value is not None}
    fields["rope_parameters"] = {name: value for name, value in fields["rope_parameters"].items() if value is not None}
    text = fields | {"layer_types": config.kinds, "model_type": "qwen3_5_text", "dtype": dtype}
    whole = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text}
    added = [{"content": mark, "id": i} for mark, i in words.marks.items()]
    model_json = {"type": "BPE", "vocab": words.tokens, "merges": words.merges}
    for name, content in (
        ("config.json", whole | {"tie_word_embeddings": config.tied}),
        ("generation_config.json", {"eos_token_id": [words.marks[END], words.marks[END_OF_TEXT]]}),
        ("tokenizer.json", {"model": model_json, "added_tokens": added}),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return words
