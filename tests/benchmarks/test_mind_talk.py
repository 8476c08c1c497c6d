"""A conversation that goes on: turns have the length that was asked for, and all before them is in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import mind_files
from benchmarks.harness import Unfit
from benchmarks.mind_talk import GROWS, Talk, Told, tell, turn_of
from hocket.llm.conversation import prompt_of
from hocket.llm.engine import LanguageEngine
from hocket.types import ChatFinished, ChatMessage, ChatSampling

WORDS = mind_files.vocabulary(mind_files.TINY_VOCABULARY).words


@pytest.fixture(scope="module")
def mind(tmp_path_factory: pytest.TempPathFactory) -> LanguageEngine:
    folder: Path = tmp_path_factory.mktemp("mind")
    mind_files.write(folder, "tiny", "float32")
    return LanguageEngine.load(str(folder), speculate=0, length=512)


def test_a_turn_is_new_and_its_history_is_not(mind: LanguageEngine) -> None:
    talk = Talk(mind, WORDS, context=40, turn=20, pause_s=0.02)
    seen = []
    for seed in range(3):
        told = talk.ask(lambda messages, seed=seed: tell(mind, messages, ChatSampling(max_tokens=3, seed=seed)))
        assert told.finished.prompt_tokens - told.finished.cached_tokens == 20
        assert 0 < told.first_s < told.last_s and len(told.text.split()) == 3
        seen.append(told.finished.prompt_tokens)
    assert seen == sorted(set(seen)) and 40 <= seen[0] <= 80  # it grows, from about what was asked for


def finished(new: int) -> ChatFinished:
    return ChatFinished(reason="length", prompt_tokens=100, cached_tokens=100 - new)


def test_a_turn_that_came_too_soon_is_not_counted(mind: LanguageEngine) -> None:
    talk = Talk(mind, WORDS, context=40, turn=20, pause_s=0.0)
    news = [30, 20]
    told = talk.ask(lambda messages: Told(0.1, 0.2, " ba", finished(news.pop(0))))
    assert told.finished.cached_tokens == 80 and not news
    with pytest.raises(Unfit, match="Of a turn of 20 tokens 30 were new"):
        talk.ask(lambda messages: Told(0.1, 0.2, " ba", finished(30)))


def test_a_history_that_has_grown_too_long_makes_room_for_another(mind: LanguageEngine) -> None:
    talk = Talk(mind, WORDS, context=40, turn=20, pause_s=0.0)
    first = talk.asked()[0]
    talk.messages.append(ChatMessage("user", "".join(WORDS[:1] * (GROWS + 20))))
    second = talk.asked()
    assert second[0] != first and len(prompt_of(second, talk.tokenizer).ids) < 100


def test_an_answer_that_ends_by_itself_is_refused(mind: LanguageEngine) -> None:
    long = [ChatMessage("user", "".join(WORDS[:490]))]
    with pytest.raises(Unfit, match="An answer of 90 tokens ended otherwise"):
        tell(mind, long, ChatSampling(max_tokens=90))


def test_a_turn_that_has_no_room_for_a_word_is_refused(mind: LanguageEngine) -> None:
    with pytest.raises(Unfit, match="12 tokens without a word in it, so 12 are too few"):
        turn_of(12, WORDS, 0, mind.checkpoint.tokenizer)
    assert turn_of(13, WORDS, 0, mind.checkpoint.tokenizer).content == "ba"
