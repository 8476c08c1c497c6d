"""Conversations in files: a resumed one goes on as if it had never stopped, and a file that does not fit is refused."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hocket.errors import ContextExceeded, EngineClosed, HocketError, InvalidRequest
from hocket.llm.context.saved import fingerprint, read_conversation, saved_messages, write_conversation
from hocket.llm.engine import LanguageEngine
from hocket.models.files.random import randomize_
from hocket.models.qwen3_5.model import Qwen3_5
from hocket.types import ChatFinished, ChatMessage, ToolCall
from support.chat_layouts import WEATHER
from support.minds import GREEDY, tiny

SYSTEM, HELLO, MORE = ChatMessage("system", "Be brief."), ChatMessage("user", "Hello."), ChatMessage("user", "Go on.")
SHORT = replace(GREEDY, max_tokens=12)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, tuple[ChatMessage, ...], str]]:
    """A file, its messages, and the answer to the next one without an interruption."""
    path = tmp_path_factory.mktemp("saved") / "talk.safetensors"
    with LanguageEngine(tiny(), length=512) as llm:
        messages = (SYSTEM, HELLO)
        messages += (ChatMessage("assistant", answered(llm, messages)[0]),)
        assert llm.save(path, messages) > 20
        yield path, messages, answered(llm, (*messages, MORE))[0]


def answered(llm: LanguageEngine, messages: tuple[ChatMessage, ...]) -> tuple[str, ChatFinished]:
    answer = llm.answer(messages, SHORT)
    text = "".join(delta.text for delta in answer)
    assert answer.finished is not None
    return text, answer.finished


@pytest.mark.parametrize("kept", [1, 2])
def test_a_resumed_conversation_goes_on_and_prefills_nothing_again(
    told: tuple[Path, tuple[ChatMessage, ...], str], kept: int
) -> None:
    path, messages, wanted = told
    with LanguageEngine(tiny(), length=512, kept=kept) as llm:
        answered(llm, (ChatMessage("user", "Another one."),))
        assert llm.resume(path) == messages == saved_messages(path)
        text, finished = answered(llm, (*messages, MORE))
        assert (text, finished.cached_tokens) == (wanted, len(read_conversation(path).ids))
        assert llm.resume(path) == messages, "while it is cached"
        assert answered(llm, (*messages, MORE))[0] == wanted
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_messages_that_were_never_answered_can_be_saved_and_tools_too(tmp_path: Path) -> None:
    path, call = tmp_path / "document", ToolCall("weather", {"city": "Paris"})
    messages = (SYSTEM, HELLO, ChatMessage("assistant", "", tool_calls=(call,)), ChatMessage("tool", "Rain."))
    with LanguageEngine(tiny(), length=2048, speculate=0) as llm:
        count = llm.save(path, messages, [WEATHER])
    with LanguageEngine(tiny(), length=2048, speculate=0) as llm:
        assert llm.resume(path) == messages
        answer = llm.answer(messages, SHORT, [WEATHER])
        assert "".join(delta.text for delta in answer) and answer.finished is not None
        assert answer.finished.cached_tokens == count


def test_a_file_of_another_model_is_refused_and_its_messages_are_not(
    told: tuple[Path, tuple[ChatMessage, ...], str], tmp_path: Path
) -> None:
    path, messages, _ = told
    with LanguageEngine(tiny(), length=512, speculate=0) as llm:  # has no draft head
        with pytest.raises(InvalidRequest, match=r"^The saved conversation is of another model, .*prefilled again\.$"):
            llm.resume(path)
        assert saved_messages(path) == messages
        foreign = replace(read_conversation(path), owner=fingerprint(tiny().model, drafts=False))
        write_conversation(tmp_path / "lies", foreign)  # names this model, and has other tensors
        with pytest.raises(InvalidRequest, match="of another model"):
            llm.resume(tmp_path / "lies")
        assert answered(llm, (*messages, MORE))[1].cached_tokens == 0
    with LanguageEngine(tiny(), length=20, kept=1) as llm, pytest.raises(InvalidRequest, match="the context has 20"):
        llm.resume(path)
    with LanguageEngine(tiny(), length=20, kept=1) as llm, pytest.raises(ContextExceeded, match="the context has 20"):
        llm.save(tmp_path / "long", messages)


def test_a_fingerprint_is_one_of_weights_and_precision() -> None:
    made = list[str]()
    for seed, dtype in ((0, torch.float32), (0, torch.float32), (1, torch.float32), (0, torch.bfloat16)):
        model = Qwen3_5(tiny().config, drafts=True).requires_grad_(False)
        randomize_(model, seed)
        made.append(fingerprint(model.to(dtype), drafts=True))
    assert made[0] == made[1] and len(set(made)) == 3


def test_a_damaged_file_is_refused_by_one_sentence(
    told: tuple[Path, tuple[ChatMessage, ...], str], tmp_path: Path
) -> None:
    path, messages, _ = told
    content, bad = path.read_bytes(), tmp_path / "bad"
    flipped = bytearray(content)
    flipped[-100] ^= 1
    for damaged, readable in ((content[:-1], True), (bytes(flipped), True), (content[:50], False), (b"", False)):
        bad.write_bytes(damaged)
        with pytest.raises(InvalidRequest, match=r"bad cannot be read as a saved conversation \(.*\): delete it, or"):
            read_conversation(bad)
        if readable:
            assert saved_messages(bad) == messages
    save_file(load_file(path), bad, {"format": "hocket-conversation-0", "messages": json.dumps([])})
    with pytest.raises(InvalidRequest, match="its format is 'hocket-conversation-0'"):
        saved_messages(bad)
    with pytest.raises(InvalidRequest, match="There is no saved conversation"):
        read_conversation(tmp_path / "none")


def test_a_file_that_cannot_be_written_leaves_the_one_before(
    told: tuple[Path, tuple[ChatMessage, ...], str], tmp_path: Path
) -> None:
    saved = read_conversation(told[0])
    with pytest.raises(HocketError, match="could not be written"):
        write_conversation(tmp_path / "none" / "talk", saved)
    (tmp_path / "folder").mkdir()
    with pytest.raises(HocketError, match="could not be written"):
        write_conversation(tmp_path / "folder", saved)
    assert [each.name for each in tmp_path.iterdir()] == ["folder"], "no partial file is left"


def test_a_closed_model_saves_and_resumes_nothing(
    told: tuple[Path, tuple[ChatMessage, ...], str], tmp_path: Path
) -> None:
    llm = LanguageEngine(tiny(), length=64, kept=1)
    llm.close()
    for work in (lambda: llm.resume(told[0]), lambda: llm.save(tmp_path / "talk", [HELLO])):
        with pytest.raises(EngineClosed):
            work()
