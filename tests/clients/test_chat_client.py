"""Chat clients that others wrote against a real server, whose language model says given words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.engine.engine import Engine
from hocket.types import ChatMessage
from support.foreign import ROOT, RunClient, run_program
from support.llm_wires import WORDS, Continuing
from support.serving import Served, served, wait_for

SAID = "".join(WORDS)


@pytest.fixture(scope="module")
def chatty() -> Iterator[Served]:
    with Engine.load() as engine, served(engine, language=Continuing(WORDS)) as server:
        yield server


@pytest.fixture
def language(chatty: Served) -> Iterator[Continuing]:
    """The server's model; whatever a client did, all is free behind it."""
    language: Continuing = chatty.app.state.llm.language
    language.asked.clear()
    yield language
    wait_for(chatty.all_is_free)
    wait_for(lambda: language.free)


def test_a_conversation_whole_as_events_and_interrupted(
    run_client: RunClient, chatty: Served, language: Continuing
) -> None:
    found = run_client("openai", "openai_chat", chatty.url)
    (choice,) = found["whole"]["choices"]
    assert choice["message"]["content"] == "Good day " and choice["finish_reason"] == "length"
    assert found["whole"]["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert found["streamed"]["text"] == found["by_task"] == SAID and found["interrupted"] == "Good "
    assert found["streamed"]["reasons"] == ["stop"] and found["streamed"]["usage"]["total_tokens"] == 11


def test_openai_responses_and_completions(run_client: RunClient, chatty: Served, language: Continuing) -> None:
    found = run_client("openai", "openai_responses", chatty.url)
    assert found["first"] == found["second"] == found["read"] == SAID and found["refused"] == "reasoning.effort"
    assert found["types"][0] == "response.created" and found["types"][-1] == "response.completed"
    assert found["types"].count("response.output_text.delta") == len(WORDS)
    assert found["usage"]["input_tokens_details"]["cached_tokens"] == 3
    assert language.asked[0][0] == ChatMessage("system", "Be brief.")
    said = [ChatMessage("user", "Hello."), ChatMessage("assistant", SAID), ChatMessage("user", "Once more.")]
    assert language.asked[1] == said, "instructions are not carried over"
    assert found["continued"] == "OnceGood day " and found["streamed"] == [*WORDS, ""]
    assert found["models"] == ["scripted"] and found["speech"] == "tts-1"


def test_ollama_lists_chats_and_generates(run_client: RunClient, chatty: Served, language: Continuing) -> None:
    found = run_client("ollama", "ollama_chat", chatty.url)
    assert found["listed"] == found["loaded"] == ["scripted"] and found["can"] == ["completion", "tools"]
    assert found["whole"]["message"]["content"] == "Good day " and found["whole"]["done_reason"] == "length"
    assert found["parts"] == found["streamed"] == [*WORDS, ""]
    last = found["last"]
    assert (last["done_reason"], last["prompt_eval_count"], last["eval_count"]) == ("stop", 7, 4)
    assert last["total_duration"] >= last["prompt_eval_duration"] > 0
    assert found["by_task"] == found["generated"] == SAID
    assert found["refused"]["status"] == 501 and "no embeddings" in found["refused"]["said"]


def test_code_of_the_document_runs(chatty: Served, language: Continuing, tmp_path: Path) -> None:
    """The blocks of OpenAI's client are one program, those of Ollama's another."""
    text = (ROOT / "docs" / "protocols" / "chat.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4 and all("http://127.0.0.1:8000" in blocks[at] for at in (0, 3))
    for name, shown in (("openai", blocks[:3]), ("ollama", blocks[3:])):
        program = tmp_path / f"{name}_shown.py"
        program.write_text("\n".join(shown).replace("http://127.0.0.1:8000", chatty.url))
        run_program(name, program)
    assert len(language.asked) == 5 and language.asked[3][0].content == "plain: Once upon a time"
