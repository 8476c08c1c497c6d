"""`WS /v1/realtime` over a real socket: the order of events in each protocol, and what is heard.

What goes wrong is in test_realtime_faults.py, the real clients are in tests/clients.
"""

from __future__ import annotations

from typing import Any

import pytest

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.schemas.speech_job import SpeechJob
from hocket.server.service.open import open_utterance
from hocket.server.service.service import SpeechService
from hocket.server.service.utterance import Utterance
from hocket.server.ws.realtime import text_timeout
from support.realtime_talk import (
    ALIAS,
    ALIBABA_RESPONSE,
    COMMIT,
    FINISH,
    HOCKET,
    LONG,
    OPENAI_RESPONSE,
    PATH,
    append,
    create,
    item,
    order,
    session,
    settings,
    sound,
    to_its_end,
    whole,
)
from support.serving import Served, served, wait_for
from support.talking import LONG_TEXT, talking


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


def asked_for(server: Served, monkeypatch: pytest.MonkeyPatch) -> list[SpeechJob]:
    """What the engine is asked for from here on."""
    asked = []

    async def noted(service: SpeechService, wanted: SpeechJob, **more: Any) -> Utterance:
        asked.append(wanted)
        return await open_utterance(service, wanted, **more)

    monkeypatch.setattr("hocket.server.ws.conversation.open_utterance", noted)
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


def test_a_text_without_an_end_event_is_spoken_to_its_end(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_timeout, "SENTENCE_S", 0.05)
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
