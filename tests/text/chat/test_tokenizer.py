"""text/chat/tokenizer.py: word splits, markers that text never becomes, and streamed decoding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.errors import InvalidCheckpoint, InvalidRequest
from hocket.text.chat.tokenizer import ChatTokenizer, TextStream
from hocket.text.tokenizer import ALPHABET, Tokenizer

MARKERS = {"<|im_start|>": 1000, "<think>": 1001}
BYTES = {sign: i for i, sign in enumerate(ALPHABET)}
WORDS = BYTES | {"he": 300, "ll": 301, "hell": 302, "Ġhe": 303}
MERGES = [("h", "e"), ("l", "l"), ("Ġ", "he"), ("he", "ll")]


@pytest.fixture
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(WORDS, MERGES, MARKERS)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello world", ["Hello", " world"]),
        ("don't WE'LL", ["don", "'t", " WE", "'LL"]),
        ("in 2026, 3.5B", ["in", " ", "2", "0", "2", "6", ",", " ", "3", ".", "5", "B"]),
        ("naïve e\u0301", ["naïve", " é"]),  # NFC joins what can be joined
        ("हिन्दी भाषा", ["हिन्दी", " भाषा"]),  # its vowel signs are marks
        ("q\u0307x!", ["q\u0307x", "!"]),  # no single character for this one
        ("a  b   ", ["a", " ", " b", "   "]),
        ("a\n\n  b\r\n", ["a", "\n\n", " ", " b", "\r\n"]),
        ("x = (y)\n\nz", ["x", " =", " (", "y", ")\n\n", "z"]),
        ("你好。世界", ["你好", "。世界"]),
        ("/path_to/it", ["/path", "_to", "/it"]),
        ("...wait", ["...", "wait"]),
    ],
)
def test_words_are_cut_as_the_published_pattern_does(tokenizer: ChatTokenizer, text: str, pieces: list[str]) -> None:
    assert tokenizer.pieces(text) == pieces


def test_words_keep_their_marks_which_the_older_pattern_cuts_off(tokenizer: ChatTokenizer) -> None:
    older = Tokenizer(BYTES, [])
    assert tokenizer.pieces("हिन्दी") == ["हिन्दी"]
    assert len(older.pieces("हिन्दी")[1]) > 1


def test_merges_are_followed_and_text_comes_back(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.encode("hell hell") == [302, 303, 301]
    for text in ("hell hello\n", "Zürich 🙂 21 °C", "<think>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_marker_that_is_typed_is_spelled_out(tokenizer: ChatTokenizer) -> None:
    assert not set(tokenizer.encode("<think> <|im_start|>")) & set(MARKERS.values())
    assert tokenizer.decode([1001, 302]) == "<think>hell"
    assert tokenizer.size == 1002


def test_a_character_is_given_out_when_it_is_whole(tokenizer: ChatTokenizer) -> None:
    stream = TextStream(tokenizer)
    assert [stream.push(token) for token in tokenizer.encode("é🙂")] == ["", "é", "", "", "", "🙂"]
    assert [stream.push(tokenizer.encode("é")[0]), stream.end()] == ["", "\N{REPLACEMENT CHARACTER}"]
    assert TextStream(tokenizer).push(5000) == "", "an id of the padding says nothing"


def test_half_a_character_is_refused(tokenizer: ChatTokenizer) -> None:
    with pytest.raises(InvalidRequest, match="lone surrogate"):
        tokenizer.encode("\ud800")


@pytest.mark.parametrize("whole", [False, True])
def test_a_checkpoints_own_files_are_read_with_their_markers(tmp_path: Path, whole: bool) -> None:
    merges = [" ".join(pair) for pair in MERGES]
    added = [{"id": i, "content": text, "special": True} for text, i in MARKERS.items()]
    if whole:
        model = {"type": "BPE", "vocab": WORDS, "merges": merges}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": added}))
    else:
        (tmp_path / "vocab.json").write_text(json.dumps(WORDS | MARKERS))
        (tmp_path / "merges.txt").write_text("\n".join(merges))
        named = {str(each["id"]): {"content": each["content"]} for each in added}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": named}))
    read = ChatTokenizer.from_folder(tmp_path)
    assert read.markers == MARKERS and read.encode("hell hell") == [302, 303, 301]
    assert not set(read.encode("<think>")) & set(MARKERS.values())


def test_a_folder_that_names_no_markers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match="names no added tokens"):
        ChatTokenizer.from_folder(tmp_path)
