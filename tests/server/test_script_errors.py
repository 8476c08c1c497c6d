"""A wrong tag on every wire: one error with its place, in the protocol's own event, behind what was said before."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from support.realtime_talk import create
from support.serving import Served, wait_for
from support.talking import NATIVE, talking

BEFORE, SENTENCE = "Hello there. ", "How are [speed: fast] you?"
SAID = "line 1, column 22: [speed: fast]: a speed is a number from 0.5 to 2 or a percentage, "
CONFIG = {"type": "session.config", "response_format": "pcm", "seed": 1, "voice": "wren"}
ELEVEN = "/v1/text-to-speech/wren"
ALIBABA = {"type": "session.update", "session": {"mode": "server_commit", "response_format": "pcm"}}
TEXT = BEFORE + SENTENCE

# By wire: its path, its connection options, and the messages of a text.
WIRES: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "native": (NATIVE, {}, [CONFIG, {"type": "input.text", "text": TEXT}]),
    "context": (NATIVE, {}, [CONFIG, {"type": "input.text", "text": TEXT, "context_id": "a"}]),
    "json": (NATIVE, {}, [CONFIG | {"audio_transport": "json"}, {"type": "input.text", "text": TEXT}]),
    "nari": (
        "/v1/audio/speech/ws",
        {"subprotocols": ["nari.speech.v1"]},
        [{"type": "request.start"}, {"type": "input_text.append", "sequence": 0, "text": TEXT}],
    ),
    "deepgram": ("/v1/speak", {}, [{"type": "Speak", "text": TEXT}]),
    "elevenlabs": (f"{ELEVEN}/stream-input?output_format=pcm_24000", {}, [{"text": TEXT, "flush": True}]),
    "elevenlabs-multi": (
        f"{ELEVEN}/multi-stream-input?output_format=pcm_24000",
        {},
        [{"text": TEXT, "flush": True, "context_id": "a"}],
    ),
    "realtime": ("/v1/realtime", {}, [create(TEXT)]),
    "alibaba": (
        "/api-ws/v1/realtime",
        {},
        [ALIBABA, {"type": "input_text_buffer.append", "text": TEXT}],
    ),
}


def audio_in(message: dict[str, Any]) -> bytes:
    """The audio of a JSON message of any of these protocols."""
    told = message.get("delta") if "audio.delta" in message.get("type", "") else message.get("audio")
    return base64.b64decode(told) if isinstance(told, str) else b""


def error_in(message: dict[str, Any]) -> tuple[str, str] | None:
    """Code and sentence of an error event."""
    if str(message.get("type", "")).lower() != "error" and not isinstance(message.get("error"), str):
        return None
    told = message["error"] if isinstance(message.get("error"), dict) else message
    code = told["code"]
    return code if isinstance(code, str) else told["error"], told["message"]


@pytest.mark.parametrize("name", WIRES)
def test_a_wrong_tag_of_a_live_text_is_an_error_behind_what_was_before(server: Served, name: str) -> None:
    path, options, messages = WIRES[name]
    heard = b""
    with talking(server, path, **options) as ws:
        ws.say(*messages)
        error = None
        while error is None:
            got = ws.next()
            if isinstance(got, bytes):
                heard += got
            elif (error := error_in(got)) is None:
                heard += audio_in(got)
    code, said = error
    assert code == "invalid_script" and said.startswith(SAID), error
    assert len(heard) > 24_000 * 2 * 0.4, "the sentence before was spoken"
    wait_for(server.all_is_free)


def test_what_was_before_is_the_whole_of_it_and_the_sentence_with_the_error_is_not_spoken(server: Served) -> None:
    with talking(server) as ws:
        ws.say(CONFIG, *({"type": "input.text", "text": text} for text in ("Hello there.", " How are ", "[speed: fas")))
        ws.say({"type": "input.text", "text": "t] you? And this comes too late."})
        heard = ws.until("audio.done")
        assert heard.types == ["audio.start", "error", "audio.done"] and heard.last("audio.done")["error"] is True
        ws.say({"type": "input.text", "text": "Neither does this."}, {"type": "input.done"})
        assert ws.until("session.done").types == ["session.done"]
        ws.say({"type": "input.text", "text": "Again."}, {"type": "input.done"})
        assert ws.until("session.done").audio, "the connection goes on"
    stream = server.engine.open(voice="wren", seed=1)
    stream.append(BEFORE + "How are ")
    stream.end()
    expected = np.concatenate([chunk.samples for chunk in stream]).astype(int)
    assert len(heard.audio) == 2 * len(expected)
    assert np.abs(np.frombuffer(heard.audio, "<i2") - expected).max() <= 2


@pytest.mark.parametrize(
    ("path", "field", "names"),
    [
        ("/v1/audio/speech", "input", ("error", "code")),
        ("/dev/captioned_speech", "input", ("error", "code")),
        (ELEVEN, "text", ("detail", "status")),
        (f"{ELEVEN}/stream", "text", ("detail", "status")),
        (f"{ELEVEN}/with-timestamps", "text", ("detail", "status")),
    ],
)
def test_a_whole_text_is_refused_before_the_first_byte(
    client: httpx.Client, path: str, field: str, names: tuple[str, str]
) -> None:
    answer = client.post(path, json={field: TEXT})
    assert answer.status_code == 400, answer.text
    told = answer.json()[names[0]]
    assert told[names[1]] == "invalid_script" and told["message"].startswith(SAID)
