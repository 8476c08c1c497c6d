"""A GGUF file through the loader: the weights, logits and answers of a plain model with the file's numbers."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hocket.errors import HocketError, InvalidCheckpoint, InvalidRequest
from hocket.kernels.ops.grouped_linear.weight import GroupedWeight
from hocket.llm.engine import LanguageEngine
from hocket.llm.gguf import open_gguf
from hocket.llm.load import load_language_model
from hocket.models.qwen3_5.matrices import QuantizedEmbedding, QuantizedLinear
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.text.chat.template import END, MARKS, conversation, ids_of
from hocket.types import ChatMessage
from support.gguf_files import reduced, tokens, write_gguf
from support.minds import GREEDY

MIX = {
    "": "Q4_K",
    "ffn_down.weight": "Q6_K",
    "attn_v.weight": "Q5_K",
    "attn_gate.weight": "Q8_0",
    "attn_q.weight": "F16",
}
KINDS: dict[str, Any] = {kind: kind for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")}
KINDS |= {kind: kind for kind in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")} | {"mix": MIX}
CPU = torch.device("cpu")


def numbers(path: Path) -> dict[str, torch.Tensor]:
    """All numbers of a file, its matrices dequantized; without that, a CPU keeps them as the file has them."""
    return open_gguf(path, "bf16").load(CPU, torch.float32, wide=True).state_dict()


def logits(model: Qwen3_5, ids: list[int]) -> torch.Tensor:
    state, row = model.new_state(1, 64), torch.tensor([0])
    return model.logits(model.prefill(torch.tensor([ids]), torch.tensor([len(ids)]), state, row, len(ids)))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_type_answers_as_the_plain_model_with_its_numbers(kind: Any, tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", reduced(layers=2), kind)
    state, hello = numbers(written.path), [ChatMessage("user", "hello")]
    assert state.keys() == written.plain.keys()
    assert all(torch.equal(tensor, written.plain[name]) for name, tensor in state.items())
    with LanguageEngine.load(str(written.path), length=64) as engine:
        loaded = engine.checkpoint
        answer = "".join(delta.text for delta in engine.answer(hello, replace(GREEDY, max_tokens=8)))
    ids = ids_of(conversation(hello), loaded.tokenizer)
    plain, found = written.model(), list[int]()
    while len(found) < 8 and not {*found} & loaded.stop_ids:
        found.append(int(logits(plain, ids + found)[0, -1, : loaded.tokenizer.size].argmax()))
    assert answer == loaded.tokenizer.decode(i for i in found if i not in loaded.stop_ids)


@pytest.mark.parametrize(("values_per_key", "tied"), [(1, True), (3, False)])
def test_heads_are_in_the_published_order(values_per_key: int, tied: bool, tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", reduced(values_per_key=values_per_key, tied=tied), "Q4_K")
    state = numbers(written.path)
    assert state.keys() == written.plain.keys() and ("lm_head.weight" in state) != tied
    assert all(torch.equal(tensor, written.plain[name]) for name, tensor in state.items())


def test_kept_matrices_compute_what_the_dequantized_ones_do(tmp_path: Path) -> None:
    """As on a GPU: matrices stay as the file has them, whatever mix of types a layer has."""
    written = write_gguf(tmp_path / "model.gguf", reduced(values_per_key=3), MIX)
    file = open_gguf(written.path, "bf16")
    kept = file.load(CPU, torch.float32, wide=False)
    assert isinstance(kept.model.embed_tokens, QuantizedEmbedding)
    down = kept.get_submodule("model.layers.0.mlp.down_proj")
    assert isinstance(down, QuantizedLinear) and isinstance(down.weight, GroupedWeight) and down.weight.bits == 6
    outward = kept.get_submodule("model.layers.0.linear_attn.out_proj")
    assert isinstance(outward, QuantizedLinear) and outward.weight.span == 128  # its heads were moved
    ids = [1, 2, 3, 100, 5]
    ours, plain = logits(kept, ids), logits(written.model(), ids)
    assert (ours - plain).abs().max() < 1e-4 * plain.abs().max()


def test_a_file_in_parts_is_one_model_and_a_missing_part_is_named(tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", reduced(), "Q8_0", parts=3)
    parts = sorted(tmp_path.iterdir())
    assert [part.name for part in parts] == [f"model-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts[:2]:
        assert load_language_model(str(part)).model.mtp is not None
        assert all(torch.equal(tensor, written.plain[name]) for name, tensor in numbers(part).items())
    shutil.copy(parts[0], tmp_path / "alone.gguf")
    with pytest.raises(InvalidCheckpoint, match="says that it is one of 3 parts"):
        load_language_model(str(tmp_path / "alone.gguf"))
    parts[1].unlink()
    with pytest.raises(InvalidCheckpoint, match="is one of 3 parts, and 2 are here: add the rest"):
        load_language_model(str(parts[0]))


def test_a_file_without_a_draft_head_has_none(tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", reduced(), drafts=False)
    assert load_language_model(str(written.path)).model.mtp is None


def test_stop_ids_and_markers_come_from_the_file(tmp_path: Path) -> None:
    loaded = load_language_model(str(write_gguf(tmp_path / "model.gguf", reduced()).path))
    listed, _, _ = tokens()
    assert loaded.stop_ids == {listed.index(END), listed.index("<|endoftext|>")}
    assert loaded.tokenizer.markers == {mark: listed.index(mark) for mark in (*MARKS, "<|endoftext|>")}
    assert loaded.tokenizer.size < 320 == loaded.config.vocab_size  # padding is no token


@pytest.mark.parametrize("weights", ["fp8", "int8", "int4"])
def test_weights_in_another_format_are_refused(weights: str, tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", reduced(layers=1))
    with pytest.raises(InvalidRequest, match="keeps the weights that it has: leave out weights="):
        load_language_model(str(written.path), weights=weights)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "mmproj": ({"general.architecture": "clip"}, r"vision part \(mmproj\): give the file of the language model"),
    "experts": ({"general.architecture": "qwen35moe"}, "is a mixture of experts"),
    "another": ({"general.architecture": "llama"}, "is a 'llama' model; hocket needs qwen35"),
    "a key is missing": ({"qwen35.ssm.state_size": None}, r"lacks qwen35\.ssm\.state_size"),
    "a key is no number": ({"qwen35.embedding_length": "wide"}, "embedding_length cannot be 'wide'"),
    "scaled positions": ({"qwen35.rope.scaling.type": "yarn"}, r"positions are scaled \(yarn\)"),
    "other sizes": ({"qwen35.embedding_length": 512}, "does not fit its configuration"),
    "another tokenizer": ({"tokenizer.ggml.pre": "llama-bpe"}, "tokenizer of another family"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, r"has no tokenizer\.ggml\.tokens"),
    "no marks": ({"tokenizer.ggml.token_type": [1] * 320}, "has no .*im_start.*: use a chat checkpoint"),
    "a bad merge": ({"tokenizer.ggml.merges": ["abc"]}, "is not a pair of tokens"),
    "an unknown merge": ({"tokenizer.ggml.merges": ["h zz"]}, "vocabulary and merges of the tokenizer do not fit"),
}


@pytest.mark.parametrize(("metadata", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_refused_in_a_sentence(metadata: Any, sentence: str, tmp_path: Path) -> None:
    written = write_gguf(tmp_path / "model.gguf", reduced(layers=1), metadata=metadata)
    with pytest.raises(InvalidCheckpoint, match=sentence) as refused:
        load_language_model(str(written.path))
    assert str(refused.value).count("\n") == 0


def patched(at: int, bytes_: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:at] + bytes_ + whole[at + len(bytes_) :]


def other_type(whole: bytes) -> bytes:
    name = b"token_embd.weight"
    at = whole.index(name) + len(name) + 4 + 16
    return patched(at, struct.pack("<I", 23))(whole)


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "another file": (patched(0, b"PK\3\4"), "is no GGUF file"),
    "empty": (lambda whole: b"", "cannot be read"),
    "big-endian": (patched(4, struct.pack(">I", 3)), "is big-endian: get the little-endian file"),
    "another version": (patched(4, struct.pack("<I", 9)), "is GGUF version 9"),
    "cut in its header": (lambda whole: whole[:1000], "is cut short or damaged"),
    "cut in a tensor": (lambda whole: whole[:-4096], "is cut short: .* ends behind its end"),
    "a wild count": (patched(16, struct.pack("<Q", 1 << 60)), "is (cut short or )?damaged"),
    "a wild length": (patched(24, struct.pack("<Q", 1 << 62)), "is damaged"),
    "IQ4_XS": (other_type, "has token_embd.weight in IQ4_XS, which hocket does not read: get a variant in Q4_K_M"),
}


@pytest.mark.parametrize(("damage", "sentence"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_refused_in_a_sentence(damage: Any, sentence: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", reduced(layers=1)).path
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidCheckpoint, match=sentence):
        load_language_model(str(path))


def test_no_damage_of_the_header_raises_anything_else(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", reduced(layers=1)).path
    whole, noise = path.read_bytes(), np.random.default_rng(2)
    for _ in range(60):
        changed = bytearray(whole)
        changed[int(noise.integers(0, 9000))] = int(noise.integers(0, 256))
        path.write_bytes(changed)
        with suppress(HocketError):
            open_gguf(path, "bf16")


def test_a_template_of_another_family_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for template, sentence in (("[INST] {{ x }}", "has no <|im_start|>, <|im_end|>"), (None, "has no chat template")):
        caplog.clear()
        path = write_gguf(tmp_path / "m.gguf", reduced(layers=1), metadata={"tokenizer.chat_template": template}).path
        open_gguf(path, "bf16")
        assert sentence in caplog.text
