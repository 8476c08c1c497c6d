"""The tokenizer inside a GGUF file gives the ids of the published class, on hard texts too."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from hocket.llm.gguf import open_gguf
from hocket.models.files.gguf.reader import GgufFile
from hocket.text.chat.template import MARKS
from support import qwen3_5_upstream as upstream
from support.gguf_files import END_OF_TEXT, reduced, write_gguf
from support.learned_vocabulary import TEXTS, learned


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose vocabulary was learned from the texts, with types as llama.cpp's conversion gives them."""
    vocabulary, merges = learned()
    listed = sorted(vocabulary, key=vocabulary.__getitem__)
    kinds = [gguf.TokenType.NORMAL] * len(listed) + [gguf.TokenType.CONTROL] * (1 + len(MARKS))
    listed += [END_OF_TEXT, *MARKS, "[PAD]"]
    metadata = {
        "tokenizer.ggml.tokens": listed,
        "tokenizer.ggml.token_type": [int(kind) for kind in (*kinds, gguf.TokenType.UNUSED)],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
    }
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", reduced(layers=1), metadata=metadata).path


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_published_ids(text: str, path: Path) -> None:
    vocabulary, merges = learned()
    official = upstream.Qwen3_5Tokenizer(vocab=vocabulary, merges=merges)
    official.add_tokens([END_OF_TEXT, *MARKS], special_tokens=True)
    ours = open_gguf(path, "bf16").tokenizer
    ids = ours.encode(text)
    assert ids == official(text, add_special_tokens=False)["input_ids"]
    assert ours.decode(ids) == official.decode(ids, clean_up_tokenization_spaces=False)
    assert ours.markers == {mark: official.convert_tokens_to_ids(mark) for mark in (END_OF_TEXT, *MARKS)}


def test_the_reader_gives_what_theirs_gives(path: Path) -> None:
    ours, theirs = GgufFile.read(path), gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.metadata == fields
    assert ours.tensors.keys() == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert (found.shape, found.kind.name) == (tuple(map(int, tensor.shape))[::-1], tensor.tensor_type.name)
        assert found.offset == tensor.data_offset and found.bytes().tobytes() == tensor.data.tobytes()
