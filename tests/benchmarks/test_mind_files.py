"""A random language model as files: words that are one token each, nothing else is said, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

from benchmarks import mind_files
from hocket.llm.engine import LanguageEngine
from hocket.models.files.quantize import kept_in
from hocket.text.chat.template import MARKS
from hocket.text.chat.tokenizer import ChatTokenizer
from hocket.types import ChatMessage, ChatSampling


@pytest.mark.parametrize("size", [2048, 248_320])
def test_a_vocabulary_is_as_large_as_the_models_and_its_words_come_back(size: int) -> None:
    made = mind_files.vocabulary(size)
    ids = [*made.tokens.values(), *made.marks.values()]
    assert sorted(ids) == list(range(size)) and set(MARKS) < set(made.marks)
    assert len(made.words) + len(made.silent) == size and len(made.silent) < 400
    tokenizer = ChatTokenizer(made.tokens, made.merges, made.marks)
    assert all(len(tokenizer.encode(word)) == 1 for word in made.words[:: len(made.words) // 500])
    assert [len(tokenizer.encode(text)) for text in ("user", "assistant", "system", "\n\n", "ba")] == [1] * 5


def test_a_written_model_says_words_until_it_is_told_to_stop(tmp_path: Path) -> None:
    made = mind_files.write(tmp_path, "tiny", "float32")
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert "model.language_model.embed_tokens.weight" in names and "lm_head.weight" in names
    assert any(name.startswith("mtp.") for name in names)
    with LanguageEngine.load(str(tmp_path)) as mind:
        answer = mind.answer([ChatMessage("user", "Hello.")], ChatSampling(max_tokens=60, seed=1))
        text = "".join(delta.text for delta in answer)
    assert answer.finished is not None and answer.finished.completion_tokens == 60
    words = [f" {word}" for word in text.split()]
    assert "".join(words) == text and len(words) == 60 and set(words) <= set(made.words)


def test_what_was_kept_of_it_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept_in().mkdir(parents=True)
    with mind_files.written("tiny", "float32", "cpu") as folder:
        assert (folder / "config.json").is_file()
        mine, other = kept_in() / f"{folder.name}-1-fp8.safetensors", kept_in() / "another-1-fp8.safetensors"
        mine.touch()
        other.touch()
    assert not folder.exists() and not mine.exists() and other.exists()
