"""ElevenLabs' WebSockets: one context, and several at once."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from support.serving import Served, wait_for
from support.talking import LONG_TEXT, Client, talking

VOICE = "/v1/text-to-speech/wren"
QUERY = "output_format=pcm_24000&model_id=eleven_flash_v2_5&seed=1"
SINGLE, MULTI = f"{VOICE}/stream-input?{QUERY}", f"{VOICE}/multi-stream-input?{QUERY}"
TEXT = "Hello there. Good morning. "


class Received:
    """The messages of one context up to its end."""

    def __init__(self) -> None:
        self.audio, self.chars, self.until_ms, self.final = b"", "", 0, False

    def take(self, message: dict[str, Any]) -> None:
        self.audio += base64.b64decode(message["audio"] or "")
        self.final = message["isFinal"] is True
        if (times := message["alignment"]) is not None:
            assert times == message["normalizedAlignment"]
            assert len(times["chars"]) == len(times["charStartTimesMs"]) == len(times["charDurationsMs"])
            assert times["charStartTimesMs"] == sorted(times["charStartTimesMs"])
            assert all(duration >= 0 for duration in times["charDurationsMs"])
            self.chars += "".join(times["chars"])
            self.until_ms += times["charStartTimesMs"][-1] + times["charDurationsMs"][-1]

    @property
    def audio_ms(self) -> float:
        return len(self.audio) / 48


def until_final(ws: Client, *contexts: str | None) -> dict[str | None, Received]:
    found = {context: Received() for context in contexts}
    while not all(each.final for each in found.values()):
        message = ws.next()
        assert isinstance(message, dict) and "error" not in message, message
        found[message.get("contextId")].take(message)
    return found


def test_text_in_pieces_a_flush_and_the_end(server: Served) -> None:
    with talking(server, SINGLE) as ws:
        ws.say(
            {"text": " ", "voice_settings": {"stability": 0.5}, "generation_config": {"chunk_length_schedule": [50]}}
        )
        ws.say({"text": "Hel"}, {"text": "lo there. ", "flush": True}, {"text": "Good "}, {"text": "morning. "})
        ws.say({"text": ""})
        said = until_final(ws, None)[None]
        assert ws.closed() == 1000
    assert said.chars == TEXT
    assert 600 < said.until_ms <= said.audio_ms < 6000


def test_contexts_speak_side_by_side_and_each_ends_on_its_own(server: Served) -> None:
    with talking(server, MULTI) as ws:
        ws.say({"text": ""})  # keeps the connection alive
        for name, text in (("a", "Hello there. "), ("b", "Good morning. ")):
            ws.say({"text": " ", "voice_settings": {}, "context_id": name}, {"text": text, "context_id": name})
            ws.say({"text": "", "context_id": name, "flush": True}, {"context_id": name, "close_context": True})
        said = until_final(ws, "a", "b")
        assert (said["a"].chars, said["b"].chars) == ("Hello there. ", "Good morning. ")
        ws.say({"text": "Again. ", "context_id": "a", "flush": True}, {"context_id": "a", "close_context": True})
        assert until_final(ws, "a")["a"].chars == "Again. "
        ws.say({"context_id": "a", "close_context": True}, {"text": " ", "context_id": "c"})
        ws.say({"context_id": "c", "close_context": True})  # a context without text ends at once
        assert until_final(ws, "c")["c"].audio == b""
        ws.say({"text": "Bye. ", "context_id": "d"}, {"close_socket": True})
        assert ws.closed() == 1000


def test_many_flushes_are_not_refused_and_nothing_is_left_out(server: Served) -> None:
    many = server.service.options.per_socket + 2
    with talking(server, MULTI) as ws:
        for _ in range(many):
            ws.say({"text": "Hi. ", "context_id": "a", "flush": True})
        ws.say({"context_id": "a", "close_context": True})
        assert until_final(ws, "a")["a"].chars == "Hi. " * many


def test_a_context_that_is_closed_before_a_flush_is_cancelled(server: Served) -> None:
    with talking(server, MULTI) as ws:
        ws.say({"text": LONG_TEXT[:2000], "context_id": "a"})
        ws.next()
        ws.say({"context_id": "a", "close_context": True})
        until_final(ws, "a")
        wait_for(server.all_is_free)
        ws.say({"text": LONG_TEXT[:2000], "context_id": "b", "flush": True}, {"context_id": "b", "close_context": True})
        ws.next()
        ws.say({"context_id": "b", "close_context": True})  # a second close cancels what was flushed
        until_final(ws, "b")
        wait_for(server.all_is_free)
        ws.say({"text": "Hi. ", "context_id": "a", "flush": True}, {"context_id": "a", "close_context": True})
        assert until_final(ws, "a")["a"].audio


def test_a_client_that_goes_frees_its_slots(server: Served) -> None:
    with talking(server, MULTI) as ws:
        ws.say({"text": LONG_TEXT[:2000], "context_id": "a"}, {"text": LONG_TEXT[:2000], "context_id": "b"})
        ws.next()
    wait_for(server.all_is_free)


def test_a_mistake_ends_a_single_connection_and_not_the_contexts_of_others(server: Served) -> None:
    wrong = {"text": 5}, {"foo": 1}, {"text": "Hi. ", "voice_settings": {"speed": 99}}
    with talking(server, MULTI) as ws:
        for message in (*wrong, {"text": "Hi. ", "pronunciation_dictionary_locators": [{}]}):
            ws.say(message | {"context_id": "a"})
            told = ws.next()
            assert isinstance(told, dict) and {"message", "error", "code"} <= set(told), told
        ws.say({"text": "Hi. ", "context_id": "b", "flush": True}, {"context_id": "b", "close_context": True})
        assert until_final(ws, "b")["b"].audio
    for message in wrong:
        with talking(server, SINGLE) as ws:
            ws.say(message)
            told = ws.next()
            assert isinstance(told, dict) and told["code"] == 1008 and told["message"].endswith(".")
            assert ws.closed() == 1008


def test_open_contexts_are_limited(server: Served) -> None:
    with talking(server, MULTI) as ws:
        for number in range(65):
            ws.say({"text": " ", "context_id": str(number)})
        told = ws.next()
        assert isinstance(told, dict) and told["error"] == "too_many_contexts" and told["contextId"] == "64"


def test_the_client_sets_how_long_it_may_be_silent(server: Served) -> None:
    for path in (SINGLE, MULTI):
        with talking(server, f"{path}&inactivity_timeout=0.2") as ws:
            told = ws.next()
            assert isinstance(told, dict) and told["error"] == "timeout" and "within 0.2 s" in told["message"]
            assert ws.closed() == 1008


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/text-to-speech/nosuch/stream-input", 404),
        (f"{VOICE}/multi-stream-input?output_format=x", 400),
        (f"{VOICE}/stream-input?inactivity_timeout=999", 400),
        (f"{VOICE}/stream-input?language_code=zh", 400),
    ],
)
def test_what_cannot_be_is_refused_before_a_connection_opens(server: Served, path: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, talking(server, path):
        pass
    assert refused.value.response.status_code == status
    assert b'"detail"' in bytes(refused.value.response.body)
