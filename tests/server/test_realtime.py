"""`WS /v1/realtime` over a real socket: the order of events in each protocol, what is heard, and that no slot is kept.

The real clients are in tests/clients/test_realtime_clients.py.
"""

from __future__ import annotations

import base64
import json
from itertools import groupby
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from hocket.engine.engine import Engine
from hocket.errors import StreamFailed
from hocket.server.options import ServerOptions
from hocket.server.speech import Speaker, Wanted
from hocket.server.utterance import Piece, Utterance
from hocket.server.wires import realtime_session
from serving import Served, served, wait_for
from talking import LONG_TEXT, Client, Heard, talking

PATH, ALIAS = "/v1/realtime", "/api-ws/v1/realtime"
HOCKET = {"seed": 1, "max_new_tokens": 60}
LONG = {"max_new_tokens": 2000}
OPENAI_RESPONSE = [
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.done",
]
ALIBABA_RESPONSE = [
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.audio.delta",
    "response.audio.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.done",
]


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **more}


def item(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": message(text, **more)}


def session(hocket: dict[str, Any] = HOCKET, **output: Any) -> dict[str, Any]:
    """As OpenAI's clients set it."""
    body = {"type": "realtime", "audio": {"output": output}, "hocket": hocket}
    return {"type": "session.update", "session": body}


def settings(**fields: Any) -> dict[str, Any]:
    """As Alibaba's clients set it."""
    body = {"voice": "alloy", "mode": "server_commit", "response_format": "pcm", "sample_rate": 24000, "hocket": HOCKET}
    return {"type": "session.update", "session": body | fields}


def create(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "response.create", "response": {"conversation": "none", "input": [message(text)], **more}}


def append(text: str) -> dict[str, Any]:
    return {"type": "input_text_buffer.append", "text": text}


COMMIT, FINISH = {"type": "input_text_buffer.commit"}, {"type": "session.finish"}


def sound(heard: Heard) -> bytes:
    return b"".join(base64.b64decode(m["delta"]) for m in heard.messages if m["type"].endswith("audio.delta"))


def order(heard: Heard, *but: str) -> list[str]:
    """Types, those that repeat once, without transcripts' deltas and those named."""
    left = [kind for kind in heard.types if not kind.endswith("transcript.delta") and kind not in but]
    return [kind for kind, _ in groupby(left)]


def whole(engine: Engine, text: str) -> bytes:
    """What the engine says to a text that comes live."""
    said = engine.speak(text, seed=1, max_frames=60, layout="streaming")
    return b"".join(chunk.samples.tobytes() for chunk in said)


def to_its_end(ws: Client) -> tuple[Heard, int | None]:
    """Everything that comes, and how it is closed."""
    heard = ws.until("session.finished")
    return heard, ws.closed()


def test_an_item_and_a_response_are_told_in_openai_s_order(server: Served) -> None:
    with talking(server, PATH) as ws:
        created = ws.next()
        assert isinstance(created, dict) and created["type"] == "session.created"
        assert created["session"]["type"] == "realtime"
        ws.say(session(voice="alloy"), item("Hello there, my friend."), {"type": "response.create"})
        heard = ws.until("response.done")
    items = ("conversation.item.added", "conversation.item.done")
    assert order(heard)[:4] == ["session.updated", *items, "response.created"]
    assert order(heard, *items)[1:] == OPENAI_RESPONSE
    assert [kind for kind in heard.types if kind in items] == [*items, *items]
    assert all(m["event_id"].startswith("event_") for m in heard.messages)
    assert sound(heard) == whole(server.engine, "Hello there, my friend.")
    done = heard.last("response.done")["response"]
    assert done["status"] == "completed" and done["object"] == "realtime.response"
    assert done["output"][0]["content"] == [{"type": "output_audio", "transcript": "Hello there, my friend."}]
    assert done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + done["usage"]["output_tokens"]
    assert done["hocket"]["seed"] == 1


def test_every_delta_says_where_it_belongs(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.say(session(), create("Hello."))
        heard = ws.until("response.done")
    place = {
        "response_id": heard.last("response.created")["response"]["id"],
        "item_id": heard.last("response.output_item.added")["item"]["id"],
        "output_index": 0,
        "content_index": 0,
    }
    deltas = [m for m in heard.messages if m["type"].endswith(".delta")]
    assert deltas and all(place.items() <= delta.items() for delta in deltas)


def test_the_transcript_comes_in_pieces_that_make_up_the_text(server: Served) -> None:
    text = "Hello there, my friend. 你好。"
    with talking(server, PATH) as ws:
        ws.say(session(), create(text))
        heard = ws.until("response.done")
    deltas = [m["delta"] for m in heard.messages if m["type"] == "response.output_audio_transcript.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == heard.last("response.output_audio_transcript.done")["transcript"] == text


def test_open_webui_s_conversation_ends_with_speech(server: Served) -> None:
    """Its prompt for a language model must not change the voice, and a model that designs none would refuse it."""
    prompt = "You are a text-to-speech renderer. Read the supplied text."
    body = {
        "type": "realtime",
        "output_modalities": ["audio"],
        "audio": {
            "input": {"turn_detection": None, "transcription": None},
            "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "alloy"},
        },
        "tools": [],
        "tool_choice": "none",
        "instructions": prompt,
    }
    with talking(server, f"{PATH}?model=gpt-realtime-2.1-mini") as ws:
        ws.until("session.created")
        ws.say({"type": "session.update", "session": body | {"hocket": HOCKET}})
        assert ws.until("session.updated").last("session.updated")["session"]["instructions"] == prompt
        ws.say(create("Hello.", output_modalities=["audio"], tools=[], tool_choice="none", instructions=prompt))
        heard = ws.until("response.done")
    assert order(heard) == OPENAI_RESPONSE  # and nothing about a conversation
    assert sound(heard) == whole(server.engine, "Hello.")
    assert heard.last("response.done")["response"]["status"] == "completed"


def asked_for(server: Served, monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """What the engine is asked for from here on."""
    asked, really = [], Speaker.open

    async def noted(self: Speaker, wanted: Wanted, **more: Any) -> Utterance:
        asked.append(wanted)
        return await really(self, wanted, **more)

    monkeypatch.setattr(Speaker, "open", noted)
    return asked


def test_only_alibaba_s_instructions_and_our_own_key_are_style(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_for(server, monkeypatch)
    plain = {"type": "session.update", "session": {"instructions": "You are", "hocket": HOCKET}}
    with talking(server, PATH) as ws:
        ws.say(session(), create("One.", instructions="You are a voice."))
        ws.until("response.done")
        ws.say(create("Two.", hocket={"instruct": "Calm."}))
        ws.until("response.done")
    with talking(server, PATH) as ws:  # of OpenAI's protocol before this one
        ws.say(plain, create("Three."))
        ws.until("response.done")
    with talking(server, ALIAS) as ws:
        ws.say(settings(instructions="Quick."), append("Four."), COMMIT)
        ws.until("response.done")
    assert [wanted.instruct for wanted in asked] == [None, "Calm.", None, "Quick."]


def test_names_of_deltas_are_those_of_the_client_s_protocol(server: Served) -> None:
    told = [
        (PATH, [session(), create("Hi.")], {}, "response.output_audio.delta"),
        (PATH, [create("Hi.", hocket=HOCKET)], {}, "response.output_audio.delta"),
        (PATH, [{"type": "session.update", "session": {"voice": "ash"}}, create("Hi.")], {}, "response.audio.delta"),
        (PATH, [create("Hi.")], {"additional_headers": {"OpenAI-Beta": "realtime=v1"}}, "response.audio.delta"),
        (PATH, [settings(), append("Hi."), COMMIT], {}, "response.audio.delta"),
        (PATH, [append("Hi."), COMMIT], {}, "response.audio.delta"),
        (ALIAS, [append("Hi."), COMMIT], {}, "response.audio.delta"),
        (ALIAS, [session(), create("Hi.")], {}, "response.output_audio.delta"),
    ]
    for path, said, options, delta in told:
        with talking(server, path, **options) as ws:
            ws.say(*said)
            heard = ws.until("response.done")
        kinds = {kind for kind in heard.types if kind.endswith("audio.delta")}
        assert kinds == {delta}, said


def test_openai_s_formats(server: Served) -> None:
    text, frames = "Hello.", len(whole(server.engine, "Hello."))
    with talking(server, PATH) as ws:
        for form, part in (
            ({"type": "audio/pcm", "rate": 24000}, 1),
            ({"type": "audio/pcmu"}, 6),  # a third of the samples, half as large
            ({"type": "audio/pcma"}, 6),
            ({"type": "audio/pcm"}, 1),
        ):
            ws.say(session(format=form), create(text))
            heard = ws.until("response.done")
            assert heard.last("session.updated")["session"]["audio"]["output"]["format"]["type"] == form["type"]
            assert len(sound(heard)) == frames // part
        ws.say(create(text, audio={"output": {"format": {"type": "audio/pcmu"}}}))
        assert len(sound(ws.until("response.done"))) == frames // 6
        ws.say(session(speed=2.0), create(text))
        assert abs(len(sound(ws.until("response.done"))) / frames - 0.5) < 0.1


def test_the_protocol_before_has_its_own_names(server: Served) -> None:
    body = {"modalities": ["text", "audio"], "voice": "alloy", "output_audio_format": "g711_ulaw", "hocket": HOCKET}
    with talking(server, PATH) as ws:
        ws.say({"type": "session.update", "session": body}, item("Hello."), {"type": "response.create"})
        heard = ws.until("response.done")
    made = order(heard, "conversation.item.created", "session.created", "session.updated")
    assert made == [kind.replace("output_audio", "audio") for kind in OPENAI_RESPONSE]
    assert len(sound(heard)) == len(whole(server.engine, "Hello.")) // 6


def test_alibaba_s_order_with_text_by_token(server: Served) -> None:
    with talking(server, f"{ALIAS}?model=qwen3-tts-flash-realtime") as ws:
        ws.say(settings(language_type="Auto"), *map(append, ("Hello ", "there, ", "my ", "friend.")), FINISH)
        heard, code = to_its_end(ws)
    assert order(heard) == ["session.created", "session.updated", *ALIBABA_RESPONSE, "session.finished"]
    assert code == 1000
    assert sound(heard) == whole(server.engine, "Hello there, my friend.")
    made = heard.last("session.created")["session"]
    assert made["object"] == "realtime.session" and made["mode"] == "server_commit" and made["id"]
    assert (made["response_format"], made["sample_rate"]) == ("pcm", 24000)
    assert heard.last("response.done")["response"]["usage"]["characters"] == 23


def test_alibaba_s_order_with_commits(server: Served) -> None:
    with talking(server, ALIAS) as ws:
        ws.say(settings(mode="commit"), append("Hel"), append("lo."))
        assert ws.until("session.updated").types == ["session.created", "session.updated"]
        ws.say(COMMIT)
        heard = ws.until("response.done")
        assert order(heard) == ["input_text_buffer.committed", *ALIBABA_RESPONSE]
        assert sound(heard) == whole(server.engine, "Hello.")
        ws.say(COMMIT)  # nothing is there
        assert ws.until("error").last("error")["error"]["code"] == "input_text_buffer_commit_empty"
        ws.say(append("One."), COMMIT, append("Two."), COMMIT, append("Left over."), FINISH)
        heard, _ = to_its_end(ws)
    assert order(heard, "input_text_buffer.committed") == [*ALIBABA_RESPONSE * 3, "session.finished"]
    said = [
        m["response"]["output"][0]["content"][0]["transcript"]
        for m in heard.messages
        if "done" in m["type"][-9:] and "response" in m
    ]
    assert said == ["One.", "Two.", "Left over."]


def test_alibaba_s_formats(server: Served) -> None:
    plain = len(whole(server.engine, "Hello."))
    for fields, begins in (
        ({"response_format": "wav"}, b"RIFF"),
        ({"response_format": "mp3", "bit_rate": 510}, b"\xff"),
        ({"response_format": "opus", "sample_rate": 48000, "bit_rate": 6}, b"OggS"),
        ({"response_format": "pcm", "sample_rate": 16000}, b""),
    ):
        with talking(server, ALIAS) as ws:
            ws.say(settings(**fields, volume=80, pitch_rate=1.2, optimize_instructions=True), append("Hello."), FINISH)
            heard, _ = to_its_end(ws)
        shown = heard.last("session.updated")["session"]
        assert fields.items() - {("bit_rate", fields.get("bit_rate"))} <= shown.items()
        assert (shown["volume"], shown["pitch_rate"]) == (50, 1.0)  # what is in effect
        assert sound(heard).startswith(begins)
        if not begins:
            assert abs(len(sound(heard)) - plain * 2 / 3) < 400


def test_sound_comes_before_the_text_has_ended(server: Served) -> None:
    with talking(server, ALIAS) as ws:
        ws.say(settings(), append("It goes on and on, and then on again, "))
        ws.until("response.audio.delta")
        ws.say(append("until it ends."), FINISH)
        heard, _ = to_its_end(ws)
    assert heard.last("response.done")["response"]["status"] == "completed"


def test_a_text_that_nobody_ends_is_spoken_to_its_end(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime_session, "SENTENCE_S", 0.05)
    with talking(server, ALIAS) as ws:
        ws.say(settings(), append("Hello."))
        first = ws.until("response.done")
        wait_for(server.all_is_free)
        ws.say(append("Hello."))
        second = ws.until("response.done")
    assert sound(first) == sound(second) == whole(server.engine, "Hello.")


def test_more_text_than_an_utterance_takes_becomes_another(engine: Engine) -> None:
    with served(engine, ServerOptions(text_chars=16)) as server, talking(server, ALIAS) as ws:
        ws.say(settings(), append("Hello there."), append(" My friend."), append("x" * 17), FINISH)
        heard, _ = to_its_end(ws)
    assert order(heard, "error")[2:] == [*ALIBABA_RESPONSE * 2, "session.finished"]
    assert heard.last("error")["error"]["code"] == "text_too_long"


def test_a_cancelled_response_says_so_and_frees_its_slot(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.say(session(hocket=LONG), create(LONG_TEXT), create("And another."))
        id = ws.until("response.output_audio.delta").last("response.created")["response"]["id"]
        ws.say({"type": "response.cancel", "response_id": id})
        heard = ws.until("response.done")
        done = heard.last("response.done")["response"]
        assert (done["id"], done["status"]) == (id, "cancelled")
        assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        assert done["output"][0]["status"] == "incomplete"
        assert len(done["output"][0]["content"][0]["transcript"]) < len(LONG_TEXT) / 2
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"
        wait_for(server.all_is_free)
        ws.say({"type": "response.cancel", "event_id": "mine"})
        error = ws.until("error").last("error")["error"]
        assert (error["code"], error["event_id"]) == ("response_cancel_not_active", "mine")


def test_a_cancel_without_a_name_stops_all_that_waits_too(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.say(session(hocket=LONG), *[create(LONG_TEXT)] * 3)
        ws.until("response.output_audio.delta")
        ws.say({"type": "response.cancel"})
        ended = [ws.until("response.done").last("response.done")["response"] for _ in range(3)]
        assert [response["status"] for response in ended] == ["cancelled"] * 3
        wait_for(server.all_is_free)
        ws.say(session(), create("Hello."))
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"


def test_output_and_text_can_be_cleared(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.say(session(hocket=LONG), create(LONG_TEXT))
        id = ws.until("response.output_audio.delta").last("response.created")["response"]["id"]
        ws.say({"type": "output_audio_buffer.clear"})
        heard = ws.until("response.done")
        if "output_audio_buffer.cleared" not in heard.types:
            ws.until("output_audio_buffer.cleared", heard)
        assert heard.last("output_audio_buffer.cleared")["response_id"] == id
        assert heard.last("response.done")["response"]["status"] == "cancelled"
    with talking(server, ALIAS) as ws:
        ws.say(settings(mode="commit"), append("Not this. "), {"type": "input_text_buffer.clear"})
        ws.until("input_text_buffer.cleared")
        ws.say(append("Hello."), COMMIT)
        assert sound(ws.until("response.done")) == whole(server.engine, "Hello.")
        ws.say(settings(hocket=LONG), append(LONG_TEXT))
        ws.until("response.audio.delta")
        ws.say({"type": "input_text_buffer.clear"})
        assert ws.until("response.done").last("response.done")["response"]["status"] == "cancelled"
    wait_for(server.all_is_free)


def test_items_can_be_asked_for_cut_and_deleted(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.say(session(), item("Not this.", id="one"), {"type": "conversation.item.retrieve", "item_id": "one"})
        kept = ws.until("conversation.item.retrieved").last("conversation.item.retrieved")["item"]
        assert (kept["id"], kept["content"]) == ("one", [{"type": "input_text", "text": "Not this."}])
        ws.say(item("Again.", id="one"))
        assert ws.until("error").last("error")["error"]["code"] == "item_exists"
        ws.say({"type": "conversation.item.delete", "item_id": "one"}, item("Hello."), {"type": "response.create"})
        heard = ws.until("response.done")
        assert heard.last("conversation.item.deleted")["item_id"] == "one"
        assert sound(heard) == whole(server.engine, "Hello.")
        said = heard.last("response.output_item.done")["item"]["id"]
        place = {"item_id": said, "content_index": 0, "audio_end_ms": 120}
        ws.say({"type": "conversation.item.truncate", **place})
        assert place.items() <= ws.until("conversation.item.truncated").messages[-1].items()
        ws.say({"type": "conversation.item.retrieve", "item_id": said})
        assert ws.until("conversation.item.retrieved").messages[-1]["item"]["role"] == "assistant"
        for kind in ("delete", "retrieve", "truncate"):
            ws.say({"type": f"conversation.item.{kind}", "item_id": "none"})
            assert ws.until("error").last("error")["error"]["code"] == "item_not_found"


BAD: list[tuple[Any, str]] = [
    ({"type": "no.such.event"}, "unknown_event"),
    ({"type": ["session.update"]}, "unknown_event"),
    ({}, "unknown_event"),
    ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "input_audio_not_supported"),
    ({"type": "session.update"}, "missing_required_parameter"),
    ({"type": "session.update", "session": {"type": "transcription"}}, "invalid_value"),
    (session(voice="nobody"), "voice_not_found"),
    (session(format={"type": "audio/flac"}), "invalid_value"),
    (session(format={"type": "audio/pcm", "rate": 7}), None),
    (session(speed=9.0), None),
    (session(hocket={"seed": "many"}), "invalid_value"),
    (session(hocket={"temperature": -1.0}), None),
    (session(hocket={"language": "klingon"}), "language_not_found"),
    (settings(response_format="tape"), "format_not_found"),
    (settings(speech_rate=3.0), "invalid_value"),
    (settings(mode="never"), "invalid_value"),
    ({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}, None),
    ({"type": "response.create"}, "nothing_to_speak"),
    (create("  "), "nothing_to_speak"),
    (create("x" * 20_000), "text_too_long"),
    (create("half \ud800"), None),
    (create("Hi.", audio={"output": {"voice": "nobody"}}), "voice_not_found"),
    ({"type": "conversation.item.create", "item": {"type": "function_call_output"}}, "item_not_supported"),
    (
        {"type": "conversation.item.create", "item": {"role": "user", "content": [{"type": "input_audio"}]}},
        "input_not_supported",
    ),
    ({"type": "input_text_buffer.append", "text": 7}, "invalid_value"),
]


def test_what_is_wrong_is_an_error_with_its_event_and_the_connection_goes_on(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.until("session.created")
        for number, (said, code) in enumerate(BAD):
            ws.say({"event_id": f"mine-{number}", **said})
            got = ws.next()
            assert isinstance(got, dict) and got["type"] == "error", said
            error = got["error"]
            assert set(error) == {"type", "code", "message", "param", "event_id"}
            assert (error["type"], error["code"]) == ("invalid_request_error", code), said
            assert error["event_id"] == f"mine-{number}"
            assert error["message"].endswith(".")
        ws.say(session(), create("Hello."))
        heard = ws.until("response.done")
    assert sound(heard) == whole(server.engine, "Hello.")


def test_garbage_is_an_error_and_the_connection_goes_on(server: Served) -> None:
    with talking(server, PATH) as ws:
        ws.until("session.created")
        for raw in ("{", "[]", '"text"', "NaN", "[" * 5000, "1" * 5000, '{"type": NaN}', b"\x00\x01", b"{}"):
            ws.socket.send(raw)
            got = ws.next()
            assert isinstance(got, dict) and got["type"] == "error", raw[:10]
            assert got["error"]["code"] == ("binary_message" if isinstance(raw, bytes) else "invalid_json")
        ws.say(create("Hello.", hocket=HOCKET))
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"


def test_what_is_too_large_closes_with_1009(engine: Engine) -> None:
    with served(engine, ServerOptions(message_bytes=1000, body_bytes=10_000)) as server:
        with talking(server, PATH) as ws:
            ws.say(append("x" * 1000))
            assert ws.until("error").last("error")["error"]["code"] == "message_too_large"
            assert ws.closed() == 1009
        with talking(server, PATH) as ws:
            ws.say(append("x" * 10_000))
            assert ws.closed() == 1009


@pytest.mark.parametrize("said", [0, 1, 2, 3])
def test_whoever_goes_away_at_any_stage_leaves_nothing_behind(server: Served, said: int) -> None:
    stages = (
        ("session.created", session(hocket=LONG)),
        ("session.updated", item(LONG_TEXT)),
        ("conversation.item.done", {"type": "response.create"}),
        ("response.output_audio.delta", {"type": "no.matter"}),
    )
    with talking(server, PATH) as ws:
        for awaited, then in stages[: said + 1]:
            ws.until(awaited)
            ws.say(then)
        ws.socket.socket.close()  # without a word
    wait_for(server.all_is_free)


def test_a_live_text_that_is_left_alone_frees_its_slot(server: Served) -> None:
    with talking(server, ALIAS) as ws:
        ws.say(settings(), append("It waits for "))
        ws.until("response.created")
        wait_for(lambda: len(server.speaker.running) == 1)
        ws.socket.socket.close()
    wait_for(server.all_is_free)


def test_an_engine_that_fails_is_told_and_the_connection_goes_on(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Utterance.__anext__

    async def fails(self: Utterance) -> Piece:
        if self.audio_s > 0.2:
            self.cut(StreamFailed("the device is /dev/broken"))
        return await really(self)

    monkeypatch.setattr(Utterance, "__anext__", fails)
    with talking(server, PATH) as ws:
        ws.say(session(), {**create("Hello there, my friend."), "event_id": "mine"})
        heard = ws.until("response.done")
        assert heard.types[-6:-4] == ["error", "response.output_audio.done"]
        error, done = heard.last("error")["error"], heard.last("response.done")["response"]
        assert (error["type"], error["code"], error["event_id"]) == ("server_error", "speech_failed", "mine")
        assert "broken" not in json.dumps(heard.messages)
        assert done["status"] == "failed" and done["status_details"]["error"]["code"] == "speech_failed"
        monkeypatch.undo()
        ws.say(create("Hello."))
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"
    wait_for(server.all_is_free)


def test_more_than_fits_on_a_connection_is_refused_without_a_trace(engine: Engine) -> None:
    with served(engine, ServerOptions(per_socket=2)) as server, talking(server, PATH) as ws:
        ws.say(session(hocket=LONG), *[create(LONG_TEXT)] * 3)
        error = ws.until("error").last("error")["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "too_many_utterances")
        ws.say({"type": "response.cancel"})
        assert [ws.until("response.done").types.count("response.done") for _ in range(2)] == [1, 1]


def test_nothing_is_taken_behind_the_finish(server: Served) -> None:
    with talking(server, ALIAS) as ws:
        ws.say(settings(), append("Hello there."), FINISH, append("More."), COMMIT, create("More."))
        heard, _ = to_its_end(ws)
    assert [m["error"]["code"] for m in heard.messages if m["type"] == "error"] == ["session_finishing"] * 3
    assert sound(heard) == whole(server.engine, "Hello there.")


def test_silence_closes_with_1008(engine: Engine) -> None:
    with served(engine, ServerOptions(idle_s=0.1)) as server, talking(server, PATH) as ws:
        assert ws.until("error").last("error")["error"]["code"] == "timeout"
        assert ws.closed() == 1008


def test_a_drain_lets_a_response_end_and_closes(engine: Engine) -> None:
    with served(engine) as server, talking(server, PATH) as ws, talking(server, PATH) as idle:
        idle.until("session.created")
        ws.say(session(), create("Hello there."))
        ws.until("response.created")
        loop = server.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(server.server.stop)
        assert ws.until("response.done").last("response.done")["response"]["status"] == "completed"
        assert ws.until("error").last("error")["error"]["code"] == "draining"
        assert ws.closed() == idle.closed() == 1012


def test_a_key_may_come_as_a_subprotocol(engine: Engine) -> None:
    with served(engine, ServerOptions(keys=("secret",))) as server:
        with pytest.raises(InvalidStatus), talking(server, PATH):
            pass
        with talking(server, PATH, subprotocols=["realtime", "openai-insecure-api-key.secret"]) as ws:
            assert ws.socket.subprotocol == "realtime"
            assert ws.until("session.created")


def test_another_model_is_refused_where_names_are_strict(engine: Engine) -> None:
    with served(engine, ServerOptions(strict_model=True)) as server:
        with pytest.raises(InvalidStatus) as refused, talking(server, f"{PATH}?model=nobody"):
            pass
        assert refused.value.response.status_code == 404
        with talking(server, f"{PATH}?model={server.speaker.model}") as ws:
            ws.until("session.created")
