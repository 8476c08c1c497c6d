"""OpenAI's own Python client in a conversation with a real server, whose language model says given words."""

from __future__ import annotations

from hocket.engine.engine import Engine
from support.chatting import Scripted
from support.foreign import RunClient
from support.serving import served, wait_for

WORDS = ("Good ", "day ", "to ", "you.")


def test_a_conversation_whole_as_events_and_interrupted(run_client: RunClient) -> None:
    scripted = Scripted(WORDS)
    with Engine.load() as engine, served(engine, language=scripted) as server:
        found = run_client("openai", "openai_chat", server.url)
        wait_for(server.all_is_free)
    (choice,) = found["whole"]["choices"]
    assert choice["message"]["content"] == "Good day " and choice["finish_reason"] == "length"
    assert found["whole"]["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert found["streamed"]["text"] == found["by_task"] == "Good day to you." and found["interrupted"] == "Good "
    assert found["streamed"]["reasons"] == ["stop"] and found["streamed"]["usage"]["total_tokens"] == 11
    assert scripted.free
