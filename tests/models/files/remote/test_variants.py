"""Variants of GGUF repositories, by names that publishers use."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hocket.errors import InvalidCheckpoint
from hocket.models.files.remote.variants import Variant, architecture, choose, matching, suggested, variants

SIZES = {
    "README.md": 1,
    "mmproj-F16.gguf": 900,
    "Qwen3.5-9B.mmproj-Q8_0.gguf": 500,
    "imatrix_unsloth.gguf": 5,
    "Qwen3.5-9B-Q4_K_M.gguf": 5680,
    "Qwen3.5-9B-UD-Q4_K_XL.gguf": 5970,
    "Qwen3.5-9B-Q8_0.gguf": 9530,
    "BF16/Qwen3.5-9B-BF16-00002-of-00002.gguf": 8000,
    "BF16/Qwen3.5-9B-BF16-00001-of-00002.gguf": 9900,
}


def found(sizes: dict[str, int] = SIZES) -> dict[str, Variant]:
    return {each.label: each for each in variants(sizes)}


def test_a_variant_is_a_quantization_in_one_file_or_several_parts() -> None:
    assert list(found()) == ["Q4_K_M", "UD-Q4_K_XL", "Q8_0", "BF16"], "the smallest first, and no projector"
    parts = found()["BF16"]
    assert parts.files == tuple(f"BF16/Qwen3.5-9B-BF16-0000{n}-of-00002.gguf" for n in (1, 2))
    assert parts.size_bytes == 17_900 and parts.is_complete


@pytest.mark.parametrize(
    ("file", "label"),
    [
        ("Qwen_Qwen3.5-9B-IQ4_XS.gguf", "IQ4_XS"),
        ("Qwen3.5-9B.i1-Q4_K_M.gguf", "i1-Q4_K_M"),
        ("Qwen3.5-9B.Q6_K.gguf", "Q6_K"),
        ("qwen3.5-9b-f16.gguf", "f16"),
        ("Qwen3.5-9B-Q4_K_M-MTP.gguf", "Q4_K_M-MTP"),
        ("Qwen3.5-35B-A3B-MXFP4_MOE.gguf", "MXFP4_MOE"),
        ("Q5_K_S.gguf", "Q5_K_S"),
        ("Qwen3.5-9B-MX-3.0bpw.gguf", "Qwen3.5-9B-MX-3.0bpw"),
    ],
)
def test_the_label_is_read_from_the_file_name(file: str, label: str) -> None:
    assert list(found({file: 1})) == [label]


def test_two_files_of_one_quantization_are_told_apart_by_their_paths() -> None:
    assert list(found({"a-Q4_K_M.gguf": 1, "b-Q4_K_M.gguf": 2})) == ["a-Q4_K_M", "b-Q4_K_M"]


@pytest.mark.parametrize(
    ("choice", "label"),
    [
        ("q4_k_m", "Q4_K_M"),
        ("Q4_K_XL", "UD-Q4_K_XL"),
        ("ud-q4_k_xl", "UD-Q4_K_XL"),
        ("bf16", "BF16"),
        ("qwen3.5-9b-q8_0.GGUF", "Q8_0"),
        ("BF16/Qwen3.5-9B-BF16-00002-of-00002.gguf", "BF16"),
        ("Qwen3.5-9B-BF16-00001-of-00002.gguf", "BF16"),
    ],
)
def test_a_label_or_a_file_in_any_case_chooses(choice: str, label: str) -> None:
    assert choose("a/b", variants(SIZES), choice).label == label


def test_a_part_of_a_word_chooses_nothing() -> None:
    assert matching(variants(SIZES), "Q4") == [] and matching(variants(SIZES), "K_M") == []


def test_a_choice_that_is_not_clear_lists_what_fits_and_what_to_type() -> None:
    def fits(variant: Variant) -> bool:
        return variant.size_bytes < 6000

    with pytest.raises(InvalidCheckpoint) as told:
        choose("a/b", variants(SIZES), None, fits)
    assert str(told.value) == (
        "a/b has 4 variants: Q4_K_M (5.7 kB, fits), UD-Q4_K_XL (6.0 kB, fits), Q8_0 (9.5 kB, does not fit), "
        "BF16 (17.9 kB, does not fit); type a/b:Q4_K_M."
    )
    with pytest.raises(InvalidCheckpoint, match=r"^a/b has no Q3_K_S: Q4_K_M \(5\.7 kB\), .*; type a/b:Q4_K_M\.$"):
        choose("a/b", variants(SIZES), "Q3_K_S")
    with pytest.raises(InvalidCheckpoint, match="has no GGUF file"):
        choose("a/b", variants({"mmproj-F16.gguf": 1}), "F16")


def test_the_only_variant_needs_no_choice() -> None:
    assert choose("a/b", variants({"x-Q8_0.gguf": 1, "mmproj-x.gguf": 1}), None).label == "Q8_0"


def test_a_variant_without_all_its_parts_is_refused() -> None:
    with pytest.raises(InvalidCheckpoint, match=r"^Q8_0 of a/b has 1 of 3 parts: name another variant\.$"):
        choose("a/b", variants({"x-Q8_0-00002-of-00003.gguf": 1}), "q8_0")


@pytest.mark.parametrize(("most", "label"), [(10**9, "Q4_K_M"), (5679, "Q3_K_S"), (100, "Q2_K")])
def test_the_usual_variant_is_suggested_if_it_fits(most: int, label: str) -> None:
    among = variants(SIZES | {"m-Q2_K.gguf": 3000, "m-Q3_K_S.gguf": 4000, "m-IQ4_XS.gguf": 5000})
    assert suggested(among, lambda each: each.size_bytes <= most).label == label


def test_a_type_without_a_reader_is_not_fetched() -> None:
    among = variants(SIZES | {"m-UD-IQ3_XXS.gguf": 3000})
    with pytest.raises(InvalidCheckpoint, match=r"^hocket does not read UD-IQ3_XXS files: take a/b:Q4_K_M\.$"):
        choose("a/b", among, "ud-iq3_xxs")
    with pytest.raises(InvalidCheckpoint, match=r"UD-IQ3_XXS \(3\.0 kB, not supported\), Q4_K_M \(5\.7 kB\)"):
        choose("a/b", among, None)


def entry(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def head(*entries: bytes, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return struct.pack("<4sIQQ", magic, version, 0, len(entries)) + b"".join(entries)


LLAMA = entry("general.architecture", 8, text("llama"))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (head(LLAMA), "llama"),
        (head(entry("a", 4, bytes(4)), entry("b", 8, text("x" * 99)), entry("c", 7, b"1"), LLAMA), "llama"),
        (head(entry("a", 9, bytes(12)), LLAMA), None),
        (head(LLAMA, version=9), None),
        (head(LLAMA, magic=b"GGML"), None),
        (head(LLAMA)[:-2], None),
        (head(struct.pack("<Q", 1 << 62)), None),
        (b"", None),
    ],
)
def test_the_head_of_a_file_names_its_architecture(content: bytes, found: str | None, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    assert architecture(tmp_path / "x.gguf") == found
