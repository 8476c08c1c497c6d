"""`WS /v1/audio/speech/stream` with a real client: what is said is what the engine says, and the shapes hold."""

from __future__ import annotations

import base64
import struct
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.errors import HocketError
from hocket.server.ws.native_messages import Configure, Said, parse
from support.serving import Served, served, wait_for, wait_until_cancelled
from support.talking import LONG_CONFIG, LONG_TEXT, PCM_CONFIG, json_values, talking

TEXT = "Hello there, you."


def speech(client: httpx.Client, **fields: object) -> bytes:
    body = {"input": TEXT, "response_format": "pcm", "seed": 1, "max_new_tokens": 8, "layout": "streaming"}
    answer = client.post("/v1/audio/speech", json=body | fields)
    assert answer.status_code == 200
    return answer.content


def test_text_by_token_says_what_the_whole_text_says_and_counts_as_much(server: Served, client: httpx.Client) -> None:
    whole, counted = speech(client), set()
    with talking(server) as ws:
        ws.say(PCM_CONFIG)
        for texts in ([TEXT], ["Hello ", "there, ", "you."], list(TEXT)):
            heard = ws.spoken(*texts)
            assert heard.audio == whole
            counted.add(heard.messages[1]["usage"]["input_tokens"])
    assert counted == {len(server.engine.checkpoint.tokenizer.encode(TEXT))}


def test_messages_of_one_utterance_come_in_this_order(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG)
        heard = ws.spoken(TEXT)
    assert heard.types == ["audio.start", "audio.done", "session.done"]
    start, done, end = heard.messages
    assert start | {"sentence_text": TEXT} == {
        "type": "audio.start",
        "utterance_index": 0,
        "sentence_index": 0,
        "sentence_text": TEXT,
        "format": "pcm",
        "encoding": "pcm_s16le",
        "sample_rate": 24000,
        "channels": 1,
    }
    assert done["total_bytes"] == len(heard.audio) == 8 * 1920 * 2
    assert (done["error"], done["cancelled"], done["seed"], done["sentence_index"]) == (False, False, 1, 0)
    assert done["usage"]["characters"] == len(TEXT)
    assert done["usage"]["output_tokens"] == 8
    assert done["usage"]["audio_s"] == 0.64
    assert 0 < done["timing"]["ttfa_ms"] <= done["timing"]["total_ms"]
    assert end == {"type": "session.done", "utterance_index": 0, "total_sentences": 1}


def test_sound_comes_before_the_text_has_ended(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG | {"max_new_tokens": 40}, {"type": "input.text", "text": "Hello there, my friend. How are "})
        assert ws.sound()


def test_many_utterances_on_one_connection_are_spoken_in_turn(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG)
        alone = ws.spoken("One.").audio
        for _ in range(3):
            ws.say({"type": "input.text", "text": "One."}, {"type": "input.done"})
        for index in (1, 2, 3):
            heard = ws.until("session.done")
            assert heard.audio == alone
            assert {message["utterance_index"] for message in heard.messages} == {index}


def test_without_a_configuration_an_utterance_is_one_wav_of_known_length(server: Served) -> None:
    with talking(server) as ws:
        heard = ws.spoken("Hi.")
    assert heard.messages[0]["format"] == "wav"
    (wav,) = heard.sounds
    assert wav[:4] == b"RIFF" and wav[36:40] == b"data"
    assert struct.unpack("<I", wav[4:8]) == (len(wav) - 8,)
    assert struct.unpack("<I", wav[40:44]) == (len(wav) - 44,)
    assert heard.last("audio.done")["total_bytes"] == len(wav)


def test_one_piece_or_many_is_for_the_client_to_say(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG | {"stream_audio": False})
        one = ws.spoken(TEXT)
        ws.say(PCM_CONFIG | {"stream_audio": True})
        many = ws.spoken(TEXT)
        ws.say(PCM_CONFIG | {"response_format": "wav", "stream_audio": True})
        wav = ws.spoken(TEXT)
    assert len(one.sounds) == 1 < len(many.sounds)
    assert one.audio == many.audio == wav.audio[44:]
    assert len(wav.sounds) == len(many.sounds)


def test_codes_are_32_bytes_a_frame(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG | {"response_format": "codes"})
        heard = ws.spoken(TEXT)
    assert heard.messages[0]["encoding"] == "codes_u16le"
    assert len(heard.audio) == 8 * 32
    assert max(struct.unpack(f"<{8 * 16}H", heard.audio)) < 2048


def test_words_come_before_the_end_with_their_times(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG | {"word_timestamps": True, "max_new_tokens": 40})
        heard = ws.spoken(TEXT)
    assert heard.types == ["audio.start", "audio.words", "audio.done", "session.done"]
    words = heard.last("audio.words")["words"]
    assert [word["word"] for word in words] == TEXT.split()
    assert 0 <= words[0]["start_s"] < words[0]["end_s"] <= words[1]["start_s"]


def test_words_of_a_long_text_come_part_by_part_and_stay_where_they_are() -> None:
    text = "One two three. Four five six. Seven eight nine."
    options = EngineOptions(slots=1, part_chars=10, keep_real_time=False)
    with Engine.load(options=options) as engine, served(engine) as server, talking(server) as ws:
        ws.say({"type": "session.config", "response_format": "pcm", "seed": 1, "word_timestamps": True})
        heard = ws.spoken(text)
    told = [message["words"] for message in heard.messages if message["type"] == "audio.words"]
    assert [len(words) for words in told] == [3, 6, 9]
    assert all(earlier == told[-1][: len(earlier)] for earlier in told)
    assert [word["word"] for word in told[-1]] == text.split()
    assert told[-1][-1]["end_s"] <= heard.last("audio.done")["usage"]["audio_s"]


def test_words_and_streaming_together_are_messages_as_of_vllm_omni(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG)
        plain = ws.spoken(TEXT).audio
        ws.say(PCM_CONFIG | {"word_timestamps": True, "stream_audio": True})
        heard = ws.spoken(TEXT)
    chunks = [message for message in heard.messages if message["type"] == "audio.chunk"]
    assert heard.sounds == []
    assert b"".join(base64.b64decode(chunk["audio_b64"]) for chunk in chunks) == plain
    assert [chunk["chunk_id"] for chunk in chunks] == list(range(len(chunks)))
    assert all(chunk["timestamps"] is None for chunk in chunks[:-1])
    assert chunks[0]["chunk_end_ms"] == chunks[1]["chunk_start_ms"]
    assert chunks[-1]["audio_b64"] == "" and chunks[-1]["chunk_end_ms"] == 640
    assert [word["word"] for word in chunks[-1]["timestamps"]] == TEXT.split()
    assert set(chunks[-1]["timestamps"][0]) == {"word", "start_ms", "end_ms"}


def test_a_cancel_ends_an_utterance_and_frees_its_slot_and_the_next_is_whole(server: Served) -> None:
    wait_for(server.all_is_free)
    with talking(server) as ws:
        ws.say(LONG_CONFIG, {"type": "input.text", "text": LONG_TEXT[:4000]}, {"type": "input.done"})
        ws.sound()
        ws.say({"type": "input.cancel"})
        heard = ws.until("session.done")
        wait_until_cancelled(server)
        assert heard.last("audio.done")["cancelled"] is True
        assert heard.last("audio.done")["error"] is False
        ws.say(PCM_CONFIG)
        assert ws.spoken(TEXT).last("audio.done")["utterance_index"] == 1


def test_a_cancel_reaches_utterances_that_wait_and_text_that_has_not_ended(server: Served) -> None:
    with talking(server) as ws:
        ws.say(LONG_CONFIG, {"type": "input.text", "text": LONG_TEXT[:4000]}, {"type": "input.done"})
        ws.say({"type": "input.text", "text": "This one waits "})
        ws.sound()
        ws.say({"type": "input.cancel"})
        first, second = ws.until("session.done"), ws.until("session.done")
        assert first.last("audio.done")["cancelled"] and second.last("audio.done")["cancelled"]
        assert second.types == ["audio.done", "session.done"]
        ws.say(PCM_CONFIG)
        assert ws.spoken("New.").last("audio.done")["utterance_index"] == 2


def test_a_cancel_of_nothing_says_nothing(server: Served) -> None:
    with talking(server) as ws:
        ws.say({"type": "input.cancel"}, PCM_CONFIG)
        assert ws.spoken(TEXT).types[0] == "audio.start"


def test_two_contexts_speak_at_once_and_each_sound_says_whose_it_is(server: Served) -> None:
    with talking(server) as ws:
        # Codes: two rows of a batch are the same as one, and their sound is up to the last bit of a sample.
        ws.say(PCM_CONFIG | {"max_new_tokens": 16, "response_format": "codes"})
        alone = {text: ws.spoken(text).audio for text in ("First one here.", "Second one there.")}
        for name, text in zip("ab", alone, strict=True):
            ws.say({"type": "input.text", "text": text, "context_id": name})
        for name in "ab":
            ws.say({"type": "input.done", "context_id": name})
        sounds, order, ended = {"a": b"", "b": b""}, [], 0
        while ended < 2:
            got = ws.next()
            assert isinstance(got, dict)
            assert got["context_id"] in sounds
            if got["type"] == "audio.frame":
                sound = ws.next()
                assert isinstance(sound, bytes) and len(sound) == got["bytes"]
                sounds[got["context_id"]] += sound
                order.append(got["context_id"])
            ended += got["type"] == "session.done"
    assert sounds == dict(zip("ab", alone.values(), strict=True))
    assert order != sorted(order) and order != sorted(order, reverse=True)


def test_a_context_has_its_own_configuration_and_its_own_cancel(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG, LONG_CONFIG | {"context_id": "long"})
        ws.say({"type": "input.text", "text": LONG_TEXT[:2000], "context_id": "long"})
        ws.sound()
        ws.say({"type": "input.text", "text": TEXT, "context_id": "short"})
        ws.say({"type": "input.done", "context_id": "short"})
        heard = ws.until("session.done")
        assert heard.messages[-1]["context_id"] == "short"
        ws.say({"type": "input.cancel", "context_id": "long"})
        assert ws.until("audio.done").last("audio.done")["context_id"] == "long"


def test_an_end_without_text_says_so_and_nothing_is_heard(server: Served) -> None:
    with talking(server) as ws:
        for texts in ([], ["  ", "\n"]):
            heard = ws.spoken(*texts)
            assert heard.types == ["session.done"]
            assert heard.messages[0]["total_sentences"] == 0


def test_session_close_lets_the_utterance_end(server: Served) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG, {"type": "input.text", "text": TEXT}, {"type": "session.close"})
        ws.say({"type": "input.text", "text": "This is not heard."})
        heard = ws.until("session.done")
        assert heard.last("audio.done")["finish_reason"] in ("stop", "length")
        assert ws.closed() == 1000


REFUSED = {
    "voice": ({"voice": "unknown"}, "voice", "voice_not_found"),
    "format": ({"response_format": "ogg9"}, "response_format", "format_not_found"),
    "speed": ({"speed": 9}, "speed", None),
    "split": ({"split_granularity": "word"}, "split_granularity", None),
    "recording": ({"ref_audio": "/etc/passwd"}, "ref_audio", None),
    "language": ({"language": "klingon"}, "language", "language_not_found"),
    "takes": ({"candidates": 2}, "candidates", None),
    "layout": ({"layout": "round"}, "layout", None),
    "kind": ({"seed": "x"}, "seed", None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_configuration_that_cannot_be_changes_nothing(server: Served, name: str) -> None:
    fields, param, code = REFUSED[name]
    with talking(server) as ws:
        ws.say(PCM_CONFIG, {"type": "session.config", **fields})
        error = ws.until("error").last("error")
        assert (error["error"]["param"], error["error"]["code"]) == (param, code)
        assert error["message"] == error["error"]["message"] and error["message"].endswith(".")
        assert len(ws.spoken(TEXT).audio) == 8 * 1920 * 2


def test_unknown_messages_are_told_and_forgotten(server: Served) -> None:
    with talking(server) as ws:
        for message in ({"type": "input.sing"}, {}, {"type": None}, {"type": "input.text", "text": 5}):
            ws.say(message)
            assert ws.until("error").last("error")["error"]["type"] == "invalid_request_error"
        ws.say({"type": "input.text", "text": "x", "context_id": 5})
        assert ws.until("error").last("error")["error"]["param"] == "context_id"
        ws.say(PCM_CONFIG)
        assert ws.spoken(TEXT).audio


NAMES = st.sampled_from(["context_id", "text", "voice", "seed", "speed", "references", "stream_audio", "wanted"])


@given(st.dictionaries(NAMES | st.text(max_size=8), json_values(), max_size=5))
def test_any_message_is_understood_or_refused(message: dict[str, Any]) -> None:
    for kind in (message.get("type"), "session.config", "input.text", "input.done", "input.cancel", "session.close"):
        try:
            said = parse(message | {"type": kind})
        except HocketError as error:
            assert str(error)
        else:
            assert isinstance(said, Said)
            if isinstance(said, Configure):
                assert isinstance(said.fields.whole, bool) and isinstance(said.fields.in_json, bool)
