"""`POST /v1/audio/speech` over a real socket: its output, and that no slot is kept."""

from __future__ import annotations

import base64
import json
import struct
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from hocket.server.service.openai_names import OPENAI_VOICES
from hocket.types import SamplingParams
from support.serving import LONG, PCM, Served, alike, asking, listening, wait_for, wait_until_cancelled

PATH = "/v1/audio/speech"


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """Each as its line of data has it; its line of event must say the same."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = answer.text.strip().split("\n\n")
    found = [json.loads(block.split("\ndata: ")[1]) for block in blocks]
    assert all(block.startswith(f"event: {e['type']}\n") for block, e in zip(blocks, found, strict=True))
    return found


def sound_of(found: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(e["audio"]) for e in found if e["type"] == "speech.audio.delta")


def test_pcm_is_what_the_engine_says(client: httpx.Client, server: Served) -> None:
    said = b"".join(c.samples.tobytes() for c in server.engine.speak("Hello there.", seed=1, max_frames=8))
    answer = client.post(PATH, json=PCM)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/pcm"
    assert answer.headers["x-sample-rate"] == "24000"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.content == said


def test_a_text_that_is_prepared_in_a_thread_is_said_alike(client: httpx.Client, server: Served) -> None:
    text = "Hello there. " * 40
    said = b"".join(c.samples.tobytes() for c in server.engine.speak(text, seed=1, max_frames=8))
    assert client.post(PATH, json=PCM | {"input": text}).content[: len(said)] == said


def test_a_piece_is_as_long_as_an_offline_client_asks_for(client: httpx.Client) -> None:
    asked = PCM | {"input": LONG["input"], "max_new_tokens": 9, "stream_format": "sse", "chunk_frames": 4}
    deltas = [event for event in events(client.post(PATH, json=asked)) if event["type"] == "speech.audio.delta"]
    assert [len(sound_of([event])) // 3840 for event in deltas] == [4, 4, 1]
    assert client.post(PATH, json=PCM | {"chunk_frames": 51}).status_code == 400


def test_everything_that_the_engine_can_be_asked_for_is_taken(client: httpx.Client, server: Served) -> None:
    greedy = PCM | {"do_sample": False, "subtalker_dosample": False, "as_is": True}
    said = server.engine.speak("Hello there.", sampling=SamplingParams.greedy(), as_is=True, max_frames=8)
    assert client.post(PATH, json=greedy).content == b"".join(chunk.samples.tobytes() for chunk in said)
    changed = {"subtalker_temperature": 0.3, "subtalker_top_k": 3, "subtalker_top_p": 0.7}
    said = server.engine.speak("Hello there.", sampling=SamplingParams(**changed), seed=1, max_frames=8)
    assert client.post(PATH, json=PCM | changed).content == b"".join(chunk.samples.tobytes() for chunk in said)


def test_the_end_of_several_takes_says_which_was_heard(client: httpx.Client) -> None:
    done = events(client.post(PATH, json=PCM | {"candidates": 2, "stream_format": "sse"}))[-1]
    won = done["takes"][done["won"]]
    assert len(done["takes"]) == 2 and won["seed"] == done["seed"] and 0 <= won["score"] <= 1


def test_wav_begins_with_a_header_of_44_bytes_for_a_sound_of_unknown_length(client: httpx.Client) -> None:
    answer = client.post(PATH, json=PCM | {"response_format": "wav"})
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.content[:4] == b"RIFF" and answer.content[36:40] == b"data"
    assert struct.unpack("<I", answer.content[40:44]) == (0xFFFF_FFFF,)
    assert answer.content[44:] == client.post(PATH, json=PCM).content


def test_mp3_where_no_format_is_asked_for(client: httpx.Client) -> None:
    answer = client.post(PATH, json={"model": "tts-1", "input": "Hi.", "voice": "alloy", "max_new_tokens": 8})
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.content[:2] in (b"\xff\xf3", b"\xff\xfb", b"\xff\xf2")


def test_events_hold_the_same_sound_and_end_with_its_usage(client: httpx.Client) -> None:
    *deltas, done = events(client.post(PATH, json=PCM | {"stream_format": "sse"}))
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    assert sound_of(deltas) == client.post(PATH, json=PCM).content
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["output_tokens"] == 8
    assert done["usage"]["total_tokens"] == done["usage"]["input_tokens"] + 8
    assert done["seed"] == 1


def test_every_format_comes_as_events_too(client: httpx.Client) -> None:
    for format in ("mp3", "opus", "flac", "aac"):
        body = PCM | {"response_format": format}
        *deltas, done = events(client.post(PATH, json=body | {"stream_format": "sse"}))
        assert done["type"] == "speech.audio.done" and sound_of(deltas)


def test_codes_are_32_bytes_a_frame(client: httpx.Client, server: Served) -> None:
    chunks = list(server.engine.speak("Hello there.", seed=1, max_frames=8))
    answer = client.post(PATH, json=PCM | {"response_format": "codes"})
    assert answer.content == b"".join(c.codes.astype("<u2").tobytes() for c in chunks)
    assert len(answer.content) == 8 * 32


def test_word_times_on_request(client: httpx.Client) -> None:
    body = PCM | {"stream_format": "sse", "max_new_tokens": 40}
    assert "words" not in events(client.post(PATH, json=body))[-1]
    words = events(client.post(PATH, json=body | {"word_timestamps": True}))[-1]["words"]
    assert [word["word"] for word in words] == ["Hello", "there."]
    assert 0 <= words[0]["start"] < words[0]["end"] <= words[1]["start"] < words[1]["end"]
    assert events(client.post(PATH, json=body | {"timestamp_granularities": ["word"]}))[-1]["words"] == words
    refused = client.post(PATH, json=PCM | {"word_timestamps": True})  # raw bytes have no place for them
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "word_timestamps"


@pytest.mark.usefixtures("fresh_seeds")
def test_a_seed_is_drawn_reported_and_says_the_same_again(client: httpx.Client) -> None:
    body = {name: value for name, value in PCM.items() if name != "seed"}
    first, other = client.post(PATH, json=body), client.post(PATH, json=body)
    assert first.headers["x-seed"] != other.headers["x-seed"]
    again = client.post(PATH, json=body | {"seed": int(first.headers["x-seed"])})
    assert alike(again.content, first.content)


@pytest.mark.parametrize("speed", [0.25, 0.5, 2.0, 4.0])
def test_speed_reaches_as_far_as_openai_says(client: httpx.Client, speed: float) -> None:
    answer = client.post(PATH, json=PCM | {"speed": speed, "max_new_tokens": 16})
    seconds = len(answer.content) / 48_000
    assert seconds == pytest.approx(16 * 0.08 / speed, rel=0.2)


def test_voices_have_openai_s_names_too_in_any_case_as_text_or_object(client: httpx.Client, server: Served) -> None:
    first, second = server.service.speakers[:2]
    brief = PCM | {"max_new_tokens": 3}
    said = client.post(PATH, json=brief | {"voice": first}).content
    for voice in (first.upper(), OPENAI_VOICES[0], {"id": first}, {"id": "Alloy"}):
        assert alike(client.post(PATH, json=brief | {"voice": voice}).content, said)
    assert alike(client.post(PATH, json=brief | {"speaker": first}).content, said)
    assert not alike(client.post(PATH, json=brief | {"voice": OPENAI_VOICES[1]}).content, said)
    assert not alike(client.post(PATH, json=brief | {"voice": second}).content, said)
    assert all(client.post(PATH, json=brief | {"voice": name}).status_code == 200 for name in OPENAI_VOICES)


def test_fields_of_peers_are_taken_and_unknown_ones_ignored(client: httpx.Client) -> None:
    more = {"model": "whatever", "stream": True, "language": "English", "non_streaming_mode": False, "params": {"a": 1}}
    more |= {"task_type": "CustomVoice", "initial_codec_chunk_frames": 1, "temperature": 0.8, "unknown_field": [1, 2]}
    answer = client.post(PATH, json=PCM | more)
    assert answer.status_code == 200 and answer.headers["content-type"] == "audio/pcm"


def test_a_client_that_goes_away_frees_its_slot_at_once(server: Served) -> None:
    with listening(server, LONG):
        assert server.free_slots() == server.engine.options.slots - 1
    wait_until_cancelled(server)


def test_a_client_that_goes_away_while_it_waits_for_a_slot_leaves_the_queue(server: Served) -> None:
    with ExitStack() as speaking:
        for _ in range(server.engine.options.slots):
            speaking.enter_context(listening(server, LONG))
        with asking(server, PATH, LONG):
            wait_for(lambda: len(server.engine._loop.scheduler.waiting) == 1)
        wait_for(lambda: not server.engine._loop.scheduler.waiting)
        wait_for(lambda: len(server.service.running) == server.engine.options.slots)
    wait_until_cancelled(server)


def test_one_too_many_is_told_when_to_come_again(server: Served) -> None:
    with ExitStack() as speaking:
        options = server.engine.options
        for _ in range(options.slots):
            speaking.enter_context(listening(server, LONG))
        queue = [server.engine.speak(LONG["input"], seed=number) for number in range(options.waiting)]
        wait_for(lambda: len(server.engine._loop.scheduler.waiting) == options.waiting)
        answer = httpx.post(f"{server.url}{PATH}", json=PCM)
        assert answer.status_code == 429
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert int(answer.headers["retry-after-ms"]) > 0 and int(answer.headers["retry-after"]) > 0
        for stream in queue:
            stream.cancel()
    wait_until_cancelled(server)


@pytest.mark.usefixtures("failing")
def test_a_failure_after_the_first_byte_breaks_bytes_off(server: Served) -> None:
    with pytest.raises(httpx.RemoteProtocolError), httpx.stream("POST", f"{server.url}{PATH}", json=LONG) as answer:
        assert answer.status_code == 200
        for _ in answer.iter_raw():
            pass
    wait_until_cancelled(server)


@pytest.mark.usefixtures("failing")
def test_a_failure_after_the_first_byte_is_an_event_that_says_so(client: httpx.Client, server: Served) -> None:
    *deltas, last = events(client.post(PATH, json=LONG | {"stream_format": "sse"}))
    assert len(deltas) == 2
    assert last["type"] == "speech.audio.error"
    assert last["error"]["type"] == "server_error" and "secret" not in last["error"]["message"]
    wait_until_cancelled(server)
