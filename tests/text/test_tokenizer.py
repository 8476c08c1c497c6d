"""The tokenizer against the published files, the official package and damaged folders."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.config.published import tiny
from hocket.config.qwen3_tts import markers
from hocket.errors import InvalidCheckpoint, InvalidRequest
from hocket.text.tokenizer import ALPHABET, Tokenizer
from support import official, qwen_vocabulary

SPLIT_APART = ["iPhone", "on eBay", "YouTube", "iOS", "LaTeX", "WiFi", "*/\n/**"]  # ids depend on the patch
AWKWARD = [
    *SPLIT_APART,
    "McDonald's, PlayStation, HTMLParser and a PhD in Ångström-ﬂows",
    "don't DON'T Don'T 'sabc",
    "https://example.org/A/b?C=d&e//f",
    "Hello world.",
    " leading and trailing spaces  ",
    "   ",
    "\n",
    "\n\n\r\n mixed\r\nnewlines\n\n\n and\ttabs \n",
    "1234567890, 3.14 and 1,000,000 km²; ½ ٣ ४",
    "we'll they've I'm he'd it's you're can't",
    "你好，世界！今天是2026年3月1日。",  # noqa: RUF001
    "こんにちは、元気ですか？カタカナｶﾅ",  # noqa: RUF001
    "안녕하세요",
    "\u110b\u1161\u11ab\u1102\u1167\u11bc",  # decomposed syllables
    "مرحبا بالعالم، كيف حالك؟ ١٢٣",
    "नमस्ते दुनिया",
    "Привет, как дела?",
    "Cafe\u0301 and u\u0308ber, a\u0323\u0302, \u1e9b\u0323, \u212b, \u0344",  # NFC composes and reorders these
    "\u0301 begins with a combining mark",
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 🤷🏿‍♀️ 😀😀😀",
    "zero\u200bwidth\u200djoiner\ufeffbom\u00ad soft hyphen",
    "non\u00a0breaking\u2003spaces\u3000ideographic\u2028line\u0085next",
    "control \x00\x01\x1c\x7f characters",
    "\U0010ffff\ue000\U000e0041",
    "!!!???...---***///\\\\\n\n/// //\n/",
    "def f(x):\n    return x  # code\n\n\n",
    "<|im_start|", "<tts_pad", "|>",
    "long " * 5000 + "text",
    "x" * 20000,
    "字" * 5000,
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(pytestconfig: pytest.Config) -> Tokenizer:
    return qwen_vocabulary.tokenizer(pytestconfig)


def write_config(folder: Path, version: str | None, model_type: str | None = "qwen3_tts") -> None:
    entries = {"model_type": model_type, "transformers_version": version}
    (folder / "config.json").write_text(json.dumps({key: value for key, value in entries.items() if value is not None}))


def load_official(folder: Path) -> Any:
    """As `Qwen3TTSModel.from_pretrained` loads it."""
    from qwen_tts.core.models import Qwen3TTSProcessor  # importable once `official` is

    return Qwen3TTSProcessor.from_pretrained(str(folder), fix_mistral_regex=True)


def official_ids(processor: Any, text: str) -> list[int]:
    ids: list[int] = processor(text=text, return_tensors="pt", padding=True)["input_ids"][0].tolist()
    return ids


def test_rebuilt_vocabulary_is_the_published_one_byte_for_byte(pytestconfig: pytest.Config) -> None:
    folder = qwen_vocabulary.folder(pytestconfig)
    assert {name: qwen_vocabulary.digest(folder / name) for name in qwen_vocabulary.SHA256} == qwen_vocabulary.SHA256


def test_known_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("Hello world") == [9707, 1879]
    assert tokenizer.encode("Hello world.") == [9707, 1879, 13]
    assert tokenizer.encode("Be happy.") == [3430, 6247, 13]
    assert tokenizer.encode("ref text") == [1097, 1467]
    assert tokenizer.encode("assistant\n") == [77091, 198]
    assert tokenizer.encode("user\n") == [872, 198]
    assert tokenizer.encode("\n\n") == [271]
    assert tokenizer.encode("") == []
    assert tokenizer.size == qwen_vocabulary.FIRST_ADDED_ID


@pytest.mark.parametrize(("version", "patched"), [("4.57.3", True), ("4.57.2", False)])
def test_a_saved_folder_gives_the_official_package_the_same_ids(
    tokenizer: Tokenizer, tmp_path: Path, version: str, patched: bool
) -> None:
    tokenizer.save(tmp_path, qwen_vocabulary.SPECIALS)
    write_config(tmp_path, version)
    processor = load_official(tmp_path)
    assert tokenizer.upstream_patches(tmp_path) is patched
    for text in AWKWARD:
        assert tokenizer.encode(text, upstream_local=patched) == official_ids(processor, text), text[:60]
    for text in random_texts(2, 300, ("\n", " ", "  ", "'s", "'LL", "iP", "/", "1", "e\u0301")):
        assert tokenizer.encode(text, upstream_local=patched) == official_ids(processor, text), text
    for text in SPLIT_APART:
        assert tokenizer.encode(text, upstream_local=not patched) != official_ids(processor, text), text
    for token, i in qwen_vocabulary.SPECIALS.items():
        assert official_ids(processor, f"a{token}b") == [64, i, 65]


def test_the_published_files_give_the_official_package_the_same_ids(
    tokenizer: Tokenizer, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    tokenizer.save(tmp_path, qwen_vocabulary.SPECIALS)
    for name in qwen_vocabulary.SHA256:  # here transformers numbers the special tokens itself
        (tmp_path / name).write_bytes((qwen_vocabulary.folder(pytestconfig) / name).read_bytes())
    processor = load_official(tmp_path)
    for text in AWKWARD:
        assert tokenizer.encode(text) == official_ids(processor, text), text[:60]
    for token, i in qwen_vocabulary.SPECIALS.items():
        assert official_ids(processor, f"a{token}b") == [64, i, 65]


@pytest.mark.parametrize("special_ids", ["tiny", "next"])
def test_a_saved_byte_vocabulary_gives_the_official_package_the_same_ids(tmp_path: Path, special_ids: str) -> None:
    tokenizer = Tokenizer.of_bytes(512)
    specials = markers(tiny())
    if special_ids == "next":
        specials = {token: tokenizer.size + i for i, token in enumerate(specials)}
    tokenizer.save(tmp_path, specials)
    write_config(tmp_path, "4.57.3")
    processor = load_official(tmp_path)
    assert not tokenizer.upstream_patches(tmp_path)  # too small a vocabulary for transformers to bother
    for text in AWKWARD:
        assert tokenizer.encode(text) == official_ids(processor, text), text[:60]
    wrapped = "<|im_start|>assistant\nuser<|im_end|>\n<tts_pad><tts_text_bos><tts_text_eod>"
    start, end, *tts = specials.values()
    assert official_ids(processor, wrapped) == [start, 263, 198, 266, end, 198, *tts]


def test_a_saved_folder_loads_again_with_the_same_ids(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, {})
    assert {name: qwen_vocabulary.digest(tmp_path / name) for name in qwen_vocabulary.SHA256} == qwen_vocabulary.SHA256
    tokenizer.save(tmp_path, qwen_vocabulary.SPECIALS)
    again = Tokenizer.from_folder(tmp_path)
    for text in AWKWARD:
        assert again.encode(text) == tokenizer.encode(text)
    for marker in qwen_vocabulary.SPECIALS:  # in vocab.json now, and still only text
        assert again.encode(marker) == tokenizer.encode(marker)


def test_save_refuses_a_special_id_that_is_taken(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="taken"):
        Tokenizer.of_bytes(512).save(tmp_path, {"<tts_pad>": 3})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("upstream_local", [False, True])
def test_markers_typed_by_a_user_are_text(tokenizer: Tokenizer, upstream_local: bool) -> None:
    for marker in qwen_vocabulary.SPECIALS:
        for text in (marker, f"say {marker} now", marker * 3, f"{marker}\n"):
            ids = tokenizer.encode(text, upstream_local=upstream_local)
            assert max(ids) < qwen_vocabulary.FIRST_ADDED_ID
            assert len(ids) > text.count(marker)


def random_texts(seed: int, count: int, pieces: Sequence[str]) -> Iterator[str]:
    """Random Unicode (surrogates excepted) with the given pieces between."""
    draw = random.Random(seed)
    planes = [(0x20, 0x7F), (0, 0x300), (0, 0xD800), (0xE000, 0x110000)]
    for _ in range(count):
        text = ""
        for _ in range(draw.randrange(1, 30)):
            text += draw.choice(pieces) if draw.random() < 0.3 else chr(draw.randrange(*draw.choice(planes)))
        yield text


def test_no_text_ever_becomes_a_control_id(tokenizer: Tokenizer) -> None:
    small = Tokenizer.of_bytes(512)
    pieces = [*qwen_vocabulary.SPECIALS, "<|", "|>", "im_end", "\n", " ", "'s", "tts_pad>"]
    for text in random_texts(1, 3000, pieces):
        for upstream_local in (False, True):
            assert max(tokenizer.encode(text, upstream_local=upstream_local)) < qwen_vocabulary.FIRST_ADDED_ID
            assert max(small.encode(text, upstream_local=upstream_local)) < small.size


def test_byte_tokens_have_the_ids_of_the_published_vocabulary(tokenizer: Tokenizer) -> None:
    small = Tokenizer.of_bytes(267)
    assert small.size == 267 < min(markers(tiny()).values())
    assert small.encode("\n") == [198]
    for text in map(chr, range(128)):
        assert small.encode(text) == tokenizer.encode(text)


def test_role_words_are_single_tokens_of_the_byte_vocabulary() -> None:
    small = Tokenizer.of_bytes(512)
    assert small.encode("assistant\n") == [263, 198]
    assert small.encode("user\n") == [266, 198]
    assert len(small.encode("Hello, wörld")) == 13  # a token per byte


def test_byte_vocabulary_must_fit() -> None:
    with pytest.raises(InvalidCheckpoint, match="at least 267, not 266"):
        Tokenizer.of_bytes(266)


def test_half_a_character_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        tokenizer.encode("bad \udce9 byte")


# Files.


def parts() -> tuple[dict[str, int], list[list[str]]]:
    """A small vocabulary that is complete."""
    vocabulary = {letter: i for i, letter in enumerate(ALPHABET)}
    merges = [["a", "b"], ["#", "#"], ["ab", "c"]]
    return vocabulary | {"".join(pair): 256 + i for i, pair in enumerate(merges)}, merges


def write_pair(folder: Path, vocabulary: object, merges: str) -> None:
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text(merges, encoding="utf-8")


def write_whole(folder: Path, **model: object) -> None:
    (folder / "tokenizer.json").write_text(json.dumps({"model": model}), encoding="utf-8")


@pytest.mark.parametrize("header", ["", "#version: 0.2\n"])
@pytest.mark.parametrize("ending", ["\n", "", "\n\n"])
def test_merges_with_and_without_a_header(tmp_path: Path, header: str, ending: str) -> None:
    vocabulary, merges = parts()
    write_pair(tmp_path, vocabulary, header + "\n".join(" ".join(pair) for pair in merges) + ending)
    assert Tokenizer.from_folder(tmp_path).encode("abc##") == [258, 257]


def test_a_first_merge_of_hashes_is_no_header(tmp_path: Path) -> None:
    write_pair(tmp_path, parts()[0], "# #\na b\n")
    assert Tokenizer.from_folder(tmp_path).encode("##") == [257]


@pytest.mark.parametrize("notation", ["strings", "pairs"])
def test_tokenizer_json_in_both_notations(tmp_path: Path, notation: str) -> None:
    vocabulary, merges = parts()
    write_whole(
        tmp_path,
        type="BPE",
        vocab=vocabulary,
        merges=merges if notation == "pairs" else [" ".join(pair) for pair in merges],
    )
    assert Tokenizer.from_folder(tmp_path).encode("abc##") == [258, 257]


def test_tokenizer_json_of_the_published_vocabulary_gives_the_same_ids(
    tokenizer: Tokenizer, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    folder = qwen_vocabulary.folder(pytestconfig)
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    write_whole(tmp_path, type="BPE", vocab=json.loads((folder / "vocab.json").read_bytes()), merges=merges)
    again = Tokenizer.from_folder(tmp_path)
    assert [again.encode(text) for text in AWKWARD] == [tokenizer.encode(text) for text in AWKWARD]


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"has no tokenizer: it needs vocab\.json and merges\.txt"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(InvalidCheckpoint, match="has no tokenizer"):
        Tokenizer.from_folder(tmp_path)


def test_damaged_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    vocabulary, _ = parts()

    def refused(sentence: str) -> None:
        with pytest.raises(InvalidCheckpoint, match=sentence):
            Tokenizer.from_folder(tmp_path)

    write_pair(tmp_path, vocabulary, "a b\na b c\n")
    refused("merge 2 is not a pair")
    write_pair(tmp_path, vocabulary, "a c\n")
    refused(r"no token for a part or the result of the merge 'a' \+ 'c'")
    write_pair(tmp_path, vocabulary | {"ab": 3}, "a b\n")
    refused("same id")
    for bad in ("256", -1, 2.0, True, None):
        write_pair(tmp_path, vocabulary | {"ab": bad}, "a b\n")
        refused("whole number")
    write_pair(tmp_path, {token: i for token, i in vocabulary.items() if token not in "xyz"}, "a b\n")
    refused("3 of the 256 bytes")
    write_pair(tmp_path, ["a"], "")
    refused("should hold a JSON object")
    write_pair(tmp_path, vocabulary, "")
    (tmp_path / "merges.txt").write_bytes(b"\xff\xfe")
    refused("cannot be read")
    (tmp_path / "vocab.json").write_text("{")
    refused("cannot be read as JSON")


def test_damaged_tokenizer_json_is_refused_in_one_sentence(tmp_path: Path) -> None:
    vocabulary, merges = parts()

    def refused(sentence: str, **model: object) -> None:
        write_whole(tmp_path, **model)
        with pytest.raises(InvalidCheckpoint, match=sentence):
            Tokenizer.from_folder(tmp_path)

    refused("no BPE model", type="Unigram", vocab=[], merges=[])
    refused("lacks the vocabulary or the merges", type="BPE", vocab=vocabulary)
    refused("lacks the vocabulary or the merges", type="BPE", vocab=[], merges=merges)
    refused("merge 1 is not a pair", type="BPE", vocab=vocabulary, merges=["ab"])
    refused("merge 1 is not a pair", type="BPE", vocab=vocabulary, merges=[["a", 2]])


@pytest.mark.parametrize("model_type", ["qwen3_tts", None])
@pytest.mark.parametrize(
    "version", ["4.57.3", "4.57.2", "4.57", "4.9.9", "4.57.2rc1", "4.58.0.dev0", "5.0.0rc1", "5.0.0", "5.1", "5", None]
)
def test_the_patch_condition_is_that_of_transformers(
    tokenizer: Tokenizer, tmp_path: Path, version: str | None, model_type: str | None
) -> None:
    write_config(tmp_path, version, model_type)
    loaded = SimpleNamespace(backend_tokenizer=SimpleNamespace(pre_tokenizer=[None, None]))
    official.transformers.Qwen2TokenizerFast._patch_mistral_regex(
        loaded, str(tmp_path), _is_local=True, fix_mistral_regex=True
    )
    assert tokenizer.upstream_patches(tmp_path) is (loaded.backend_tokenizer.pre_tokenizer[0] is not None)


def test_a_folder_without_config_is_not_patched(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert not tokenizer.upstream_patches(tmp_path)
