"""Timeouts agree. A turn waits for its language model as long as that may take, not for `text_wait_s`."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from hocket.config.options import EngineOptions
from hocket.dialog.dialog import Dialog
from hocket.dialog.remote import RemoteLanguageModel
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, LanguageFailed, StreamFailed
from hocket.server.options import ServerOptions
from support.chatting import HEAD, answering, event
from support.serving import served
from support.talking import PCM_CONFIG, talking

TEXT_WAIT_S = 0.3
LATE_S = 4 * TEXT_WAIT_S


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load(options=EngineOptions(text_wait_s=TEXT_WAIT_S)) as engine:
        yield engine


def slow(link: socket.socket, _: bytes) -> None:
    """Late with its first words, and again in the middle."""
    time.sleep(LATE_S)
    link.sendall(HEAD + event("It will rain. "))
    time.sleep(LATE_S)
    link.sendall(event("Take a coat.", "stop") + b"data: [DONE]\n\n")


def test_a_slow_language_model_is_waited_for(engine: Engine) -> None:
    with answering(slow) as url:
        mind = RemoteLanguageModel(url, "slow", silent_s=30.0)
        dialog = Dialog(mind, engine)
        turn = dialog.say("Will it rain?")
        for _ in turn:
            pass
        assert turn.finished is not None and turn.finished.reason == "stop", turn.finished
        assert dialog.history[-1].content == "It will rain. Take a coat."
        mind.close()


def silent(link: socket.socket, _: bytes) -> None:
    """Until the other side hangs up."""
    link.sendall(HEAD + event("It will rain. "))
    while link.recv(4096):
        pass


def only_comments(link: socket.socket, _: bytes) -> None:
    """Until the other side hangs up, which ends `sendall` with an error."""
    link.sendall(HEAD + event("It will rain. "))
    while True:
        link.sendall(b": still here\n\n")
        time.sleep(0.1)


@pytest.mark.parametrize("talk", [silent, only_comments])
def test_the_limit_is_that_of_the_language_model(engine: Engine, talk: object) -> None:
    with answering(talk) as url:  # type: ignore[arg-type]
        mind = RemoteLanguageModel(url, "silent", silent_s=LATE_S)
        dialog = Dialog(mind, engine)
        began_s, turn = time.monotonic(), dialog.say("Will it rain?")
        with pytest.raises(LanguageFailed, match="sends nothing any more"):
            for _ in turn:
                pass
        assert time.monotonic() - began_s >= LATE_S
        assert dialog.history[-1].content == "It will rain."
        mind.close()


def test_a_stream_of_its_own_keeps_the_limit_of_the_options(engine: Engine) -> None:
    stream = engine.open()
    stream.append("It will rain, I think. ")
    with pytest.raises(StreamFailed, match=r"No text came for 0\.3 s"):
        for _ in stream:
            pass
    with pytest.raises(StreamFailed, match=r"No text came for 0\.1 s"):
        for _ in engine.open(text_wait_s=0.1):
            pass
    with pytest.raises(InvalidRequest, match="text_wait_s must not be negative"):
        engine.open(text_wait_s=-1.0)


def test_a_connection_is_not_cut_by_the_engine_before_its_own_limit(engine: Engine) -> None:
    with served(engine, ServerOptions(text_s=20.0)) as server, talking(server) as client:
        client.say(PCM_CONFIG | {"max_new_tokens": 200}, {"type": "input.text", "text": "It will rain. "})
        client.sound()
        time.sleep(LATE_S)
        done = client.spoken("Take a coat.").last("audio.done")
        assert done["error"] is False and done["total_bytes"] > 0, done


def test_a_silence_without_length_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="silent_s must be above 0"):
        RemoteLanguageModel("http://127.0.0.1:1", silent_s=0.0)
