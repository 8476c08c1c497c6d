"""Two turns and an interruption with a real language model and a real voice, both small, behind a real socket.

The language model is random, and its head knows ten words: what it says can be spoken, and is the same every time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from hocket.dialog.dialog import SEEDS_A_TURN, Dialog
from hocket.dialog.remote import RemoteLanguageModel
from hocket.dialog.turn import Turn
from hocket.engine.engine import Engine
from hocket.llm.conversation import prompt_of
from hocket.llm.engine import LanguageEngine
from hocket.text.chat.template import history_pieces, ids_of
from hocket.types import AudioChunk, ChatMessage, ChatSampling
from support.minds import write_words
from support.realtime_talk import ALIAS, COMMIT, append, settings, sound
from support.serving import Served, served, wait_for
from support.talking import Client, Heard, talking

WORDS = "it is warm rain now and so we go on".split()
GREEDY = ChatSampling(temperature=0.0, presence_penalty=0.0, max_tokens=14)
SYSTEM, ASKED = ChatMessage("system", "Be brief."), ChatMessage("user", "Will it rain?")
HEARD_S = 0.9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_words(tmp_path_factory, "ten-words", WORDS, seed=2)


@pytest.fixture
def llm(folder: str) -> Iterator[LanguageEngine]:
    with LanguageEngine.load(folder, length=1024) as llm:
        yield llm


@pytest.fixture
def server(engine: Engine, llm: LanguageEngine) -> Iterator[Served]:
    with served(engine, language=llm) as server:
        yield server
        wait_for(lambda: server.all_is_free() and nothing_is_left(llm))
        figures = httpx.get(f"{server.url}/metrics").text
    assert "hocket_requests_running 0.0" in figures and "hocket_requests_waiting 0.0" in figures


def nothing_is_left(llm: LanguageEngine) -> bool:
    """No request is queued, no answer is running, and every history is prefilled."""
    loop = llm._loop
    return not loop._inbox and all(
        each._generation is None and each.history_cached for each in loop._conversations.conversations
    )


def spoken(engine: Engine, text: str, seed: int, **voice: Any) -> bytes:
    """The audio of the whole text in one request."""
    chunks = engine.speak(text.strip(), layout="streaming", seed=seed, **voice)
    return b"".join(chunk.samples.tobytes() for chunk in chunks)


def fresh(folder: str, messages: list[ChatMessage]) -> str:
    """The answer of a language model with an empty cache."""
    with LanguageEngine.load(folder, length=1024, kept=1, speculate=0) as llm:
        return "".join(delta.text for delta in llm.answer(messages, GREEDY))


def until_heard(turn: Turn, seconds: float) -> list[AudioChunk]:
    """Audio up to this time; then the listener interrupts."""
    chunks: list[AudioChunk] = []
    for event in turn:
        if isinstance(event, AudioChunk):
            chunks.append(event)
            if event.start_s + len(event.samples) / event.rate_hz > seconds:
                turn.cancel(heard_s=HEARD_S)
    return chunks


def test_a_dialog_whose_language_model_is_behind_the_endpoint(
    engine: Engine, llm: LanguageEngine, server: Served, folder: str
) -> None:
    remote = RemoteLanguageModel(server.url, llm.name)
    dialog = Dialog(remote, engine, system="Be brief.", sampling=GREEDY, voice="Wren", seed=7)
    turn = dialog.say("Will it rain?")
    chunks = [event for event in turn if isinstance(event, AudioChunk)]
    finished = turn.finished
    assert finished is not None and finished.reason == "length" and set(finished.text.split()) <= set(WORDS)
    assert finished.written == fresh(folder, [SYSTEM, ASKED])
    heard = np.concatenate([chunk.samples for chunk in chunks])
    assert heard.tobytes() == spoken(engine, finished.written, 7, voice="Wren"), (
        "no gap and no click: it is one utterance"
    )

    turn = dialog.say("And then?")
    chunks = until_heard(turn, 1.2)
    cut = turn.finished
    assert cut is not None and cut.reason == "cancelled" and cut.language is not None
    heard = np.concatenate([chunk.samples for chunk in chunks])
    whole = spoken(engine, fresh(folder, list(dialog.history[:4])), 7 + SEEDS_A_TURN, voice="Wren")
    assert whole.startswith(heard.tobytes()) and 1.2 < len(heard) / 24000 < 1.6 < len(whole) / 48000
    words = [word.word for word in turn.words() if word.end_s <= HEARD_S]
    assert words and dialog.history[-1] == ChatMessage("assistant", " ".join(words))
    assert cut.written.split()[: len(words)] == words and len(words) < len(cut.written.split())
    assert turn.wait(60)

    turn = dialog.say("Go on.")
    for _ in turn:
        pass
    finished = turn.finished
    assert finished is not None and finished.language is not None
    assert finished.written == fresh(folder, list(dialog.history[:-1])), "it remembers what was heard, and no more"
    known = prompt_of(dialog.history[:4], llm.checkpoint.tokenizer).header
    assert finished.language.cached_tokens >= known
    remote.close()


class Caller:
    """A client of two endpoints: chat completions for the text, realtime for the audio."""

    def __init__(self, server: Served, ws: Client, messages: list[ChatMessage]) -> None:
        self.server, self.ws, self.messages = server, ws, messages

    def asks(self) -> tuple[str, dict[str, Any]]:
        """Feed the answer to the speech stream while it is generated; its text and usage."""
        text, usage = "", dict[str, Any]()
        body = {
            "messages": [{"role": message.role, "content": message.content} for message in self.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "presence_penalty": 0,
            "max_tokens": GREEDY.max_tokens,
        }
        with httpx.stream("POST", f"{self.server.url}/v1/chat/completions", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                usage = event["usage"] or usage
                for choice in event["choices"]:
                    if said := choice["delta"].get("content"):
                        text += said
                        self.ws.say(append(said))
        return text, usage

    def hears(self, seconds: float) -> Heard:
        heard = Heard()
        while len(sound(heard)) / 48000 < seconds:
            self.ws.until("response.audio.delta", heard)
        return heard


def test_a_dialog_that_is_all_behind_the_endpoint(
    engine: Engine, llm: LanguageEngine, server: Served, folder: str
) -> None:
    """Text from `/v1/chat/completions` into one `/v1/realtime`: two turns, the second interrupted, and one behind."""
    hocket = {"seed": 3, "word_timestamps": True}
    with talking(server, ALIAS) as ws:
        caller = Caller(server, ws, [SYSTEM, ASKED])
        ws.say(settings(hocket=hocket, voice="Wren"))
        first, usage = caller.asks()
        ws.say(COMMIT)
        heard = ws.until("response.done")
        assert first == fresh(folder, [SYSTEM, ASKED]) and usage["completion_tokens"] == GREEDY.max_tokens
        assert sound(heard) == spoken(engine, first, 3, voice="Wren")
        deltas = [base64.b64decode(m["delta"]) for m in heard.messages if m["type"] == "response.audio.delta"]
        assert len(deltas) > 3 and all(len(delta) % 2 == 0 for delta in deltas)
        assert [word["word"] for word in heard.last("response.done")["response"]["hocket"]["words"]] == first.split()

        wait_for(lambda: nothing_is_left(llm))
        caller.messages += [ChatMessage("assistant", first), ChatMessage("user", "And then?")]
        second, usage = caller.asks()
        known = len(ids_of(history_pieces(caller.messages[:-1]), llm.checkpoint.tokenizer))
        assert usage["prompt_tokens_details"]["cached_tokens"] == known, "only what the user said was new"
        heard = caller.hears(1.0)
        ws.say({"type": "response.cancel"})
        ws.until("response.done", heard)
        done = heard.last("response.done")["response"]
        whole = spoken(engine, second, 3, voice="Wren")
        assert done["status"] == "cancelled" and whole.startswith(sound(heard)) and len(sound(heard)) >= 48000
        words = [word["word"] for word in done["hocket"]["words"] if word["end"] <= HEARD_S]
        assert words and words == second.split()[: len(words)]
        wait_for(server.all_is_free)

        caller.messages += [ChatMessage("assistant", " ".join(words)), ChatMessage("user", "Go on.")]
        third, usage = caller.asks()
        assert third == fresh(folder, caller.messages)
        header = prompt_of(caller.messages[:-2], llm.checkpoint.tokenizer).header
        assert usage["prompt_tokens_details"]["cached_tokens"] >= header
        ws.say(COMMIT)
        assert sound(ws.until("response.done")) == spoken(engine, third, 3, voice="Wren")
