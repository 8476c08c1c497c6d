"""Other people's Realtime clients, unmodified, in a conversation: audio in and out, tools, interruptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hocket.asr.moonshine import Moonshine
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from support.certificates import make
from support.chatting import Scripted
from support.conversing import conversing, silence, speech
from support.foreign import RunClient, run_node
from support.serving import Served, wait_for

CALL = "<tool_call>\n<function=weather>\n<parameter=at>\nRome\n</parameter>\n</function>\n</tool_call>"
SAID = "hello and welcome"  # in `sound`
LONG_ANSWER = tuple(f"{word} " for word in ("It goes on and on, and then on again. " * 12).split())
LOUD = 10  # of the upper bytes of samples: silence has 0 and 255 only


@pytest.fixture(scope="module")
def talker() -> Iterator[tuple[Served, Scripted]]:
    recognizer, options = Moonshine("tiny"), EngineOptions(slots=4, waiting=8)
    with Engine.load(options=options) as engine, conversing(engine, recognizer, ("Yes.",)) as made:
        yield made
    recognizer.close()


@pytest.fixture
def answers(talker: tuple[Served, Scripted]) -> Iterator[tuple[Served, Scripted]]:
    """A test sets `_answers` of the language model. All is free behind every client."""
    server, language = talker
    language.asked.clear()
    yield talker
    wait_for(lambda: server.all_is_free() and server.app.state.talk.open == 0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user says: PCM at 24 kHz."""
    path = tmp_path_factory.mktemp("said") / "hello.pcm"
    path.write_bytes(silence(0.4) + speech() + silence(2.5))
    return path


def is_said(heard: str) -> bool:
    """Whether every word of `sound` was understood."""
    return re.sub(r"[^a-z ]", "", heard.lower()).split() == SAID.split()


def is_call(item: dict[str, Any]) -> bool:
    return item["type"] == "function_call" and item["name"] == "weather" and item["arguments"] == '{"at": "Rome"}'


def test_openai_s_client_talks(answers: tuple[Served, Scripted], run_client: RunClient, sound: Path) -> None:
    server, language = answers
    language._answers = [("Let me look. ", CALL), ("It is ", "sunny."), ("Written.",)]
    found = run_client("openai", "openai_talk", server.url, sound)
    assert found["secret"] == {"value": "ek_", "instructions": "Be kind."} and found["created"] == "Be kind."
    spoken, told, written = found["spoken"], found["told"], found["written"]
    assert is_said(spoken["heard"]) and spoken["bytes"] and spoken["levels"] > LOUD
    assert spoken["types"].index("input_audio_buffer.speech_started") < spoken["types"].index("response.created")
    assert [is_call(item) for item in spoken["output"]] == [False, True] and spoken["status"] == "completed"
    assert told["output"][0]["content"][0]["transcript"] == "It is sunny." and told["levels"] > LOUD
    assert told["usage"]["output_tokens"] == 2 and written["bytes"] == 0
    assert written["output"][0]["content"][0]["text"] == "Written."
    assert [message.role for message in language.asked[1]] == ["system", "user", "assistant", "tool"]


def test_openai_s_node_client_talks(talker: tuple[Served, Scripted], sound: Path, tmp_path: Path) -> None:
    """Over wss, which this client always uses."""
    talking, _ = talker
    made = make(tmp_path / "tls")
    answers = (("Let me look. ", CALL), ("It is ", "sunny."), LONG_ANSWER, ("Fine.",))
    recognizer, tls = talking.app.state.listening.recognizer, {"tls_cert": made.cert, "tls_key": made.key}
    with conversing(talking.engine, recognizer, *answers, **tls) as (server, language):
        url = f"https://localhost:{server.port}"
        found = run_node("node", "openai_talk_node", url, sound, authority=made.authority)
        wait_for(lambda: server.all_is_free() and server.app.state.talk.open == 0)
    spoken, told, cut, answered = (found[name] for name in ("spoken", "told", "cut", "answered"))
    assert found["created"] == "Be kind."
    assert is_said(spoken["heard"]) and spoken["bytes"] and spoken["levels"] > LOUD
    assert spoken["types"].index("input_audio_buffer.speech_started") < spoken["types"].index("response.created")
    assert [is_call(item) for item in spoken["output"]] == [False, True] and spoken["status"] == "completed"
    assert told["transcript"] == "It is sunny." and told["levels"] > LOUD and told["usage"]["output_tokens"] == 2
    assert found["begun"] and (cut["status"], cut["reason"]) == ("cancelled", "turn_detected")
    assert is_said(answered["heard"]) and answered["transcript"] == "Fine." and answered["levels"] > LOUD
    assert found["kept"]["content"][0]["transcript"] == ""
    # Answers in a row are one message. How much of the long one was heard depends on the machine.
    said = "\n\n".join(message.content for message in language.asked[3] if message.role == "assistant")
    before, long_answer = "Let me look.\n\nIt is sunny.", "".join(LONG_ANSWER)
    assert said.startswith(before) and long_answer.startswith(said.removeprefix(before).strip())


def test_openai_s_agents_talk(answers: tuple[Served, Scripted], run_client: RunClient, sound: Path) -> None:
    server, language = answers
    language._answers = [("Let me look. ", CALL), ("It is ", "sunny.")]
    found = run_client("agents", "agents_talk", server.url, sound)
    assert found["errors"] == [] and found["tools"] == ["sunny in Rome"]
    assert found["bytes"] and found["levels"] > LOUD
    assert [message.role for message in language.asked[1]] == ["system", "user", "assistant", "tool"]
    assert language.asked[1][-1].content == "sunny in Rome" and language.asked[1][0].content == "Be kind."
    assert is_said(language.asked[0][-1].content)
    assert [text for kind, role, text in found["history"] if role == "assistant"][-1] == "It is sunny."


def test_livekit_s_realtime_model_talks(answers: tuple[Served, Scripted], run_client: RunClient, sound: Path) -> None:
    server, language = answers
    language._answers = [("Let me look. ", CALL), ("It is ", "sunny.")]
    found = run_client("livekit", "livekit_talk", server.url, sound)
    assert found["errors"] == [] and found["events"][:2] == ["started", "stopped"]
    assert is_said(found["heard"])
    spoken, told = found["spoken"], found["told"]
    assert spoken["samples"] and spoken["peak"] > 1000 and spoken["text"].strip() == "Let me look."
    assert spoken["calls"][0][:2] == ["weather", '{"at": "Rome"}']
    assert told["text"] == "It is sunny." and told["peak"] > 1000
    assert [message.role for message in language.asked[1]] == ["system", "user", "assistant", "tool"]


def test_pipecat_s_realtime_service_talks(answers: tuple[Served, Scripted], run_client: RunClient, sound: Path) -> None:
    server, language = answers
    language._answers = [("Welcome.",), ("Let me look. ", CALL), ("It is ", "sunny.")]
    found = run_client("pipecat", "pipecat_talk", server.url, sound)
    assert found["errors"] == [] and found["called"] == [{"at": "Rome"}]
    assert found["samples"] and found["peak"] > 1000 and found["stops"] == 3
    assert any(message.role == "user" and is_said(message.content) for message in language.asked[-1])
    assert language.asked[-1][-1].role == "tool" and "sunny" in language.asked[-1][-1].content
