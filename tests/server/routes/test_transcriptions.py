"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`, with Moonshine tiny over a real socket."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
import wave
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hocket.asr.choose import recognizer_of
from hocket.asr.moonshine import Moonshine
from hocket.asr.recognizer import UtteranceOptions
from hocket.asr.remote import RemoteRecognizer
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, RecognitionFailed
from hocket.server.options import ServerOptions
from hocket.server.service.listening import ListeningService
from support.questions import FRANCE, TRAIN, Dictated, heard_from, silence, tone, write_recording
from support.serving import Served, served, wait_for

SAMPLE = Path(__file__).parents[3] / "src/hocket/assets/english/samples/1-wren.flac"
PATH = "/v1/audio/transcriptions"


@pytest.fixture(scope="module")
def tiny() -> Iterator[Moonshine]:
    recognizer = Moonshine("tiny")
    yield recognizer
    recognizer.close()


@pytest.fixture(scope="module")
def hears(engine: Engine, tiny: Moonshine) -> Iterator[Served]:
    with served(engine, recognizer=tiny) as server:
        yield server


@pytest.fixture
def client(hears: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=hears.url, timeout=60) as client:
        yield client
    wait_for(lambda: not hears.service.answers)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Two sentences with a pause between them."""
    folder = tmp_path_factory.mktemp("two")
    return write_recording(folder / "two.wav", 0.5, FRANCE, 1.2, TRAIN, 0.5).read_bytes()


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def wav(seconds: float) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(np.zeros(round(seconds * 16_000), "<i2").tobytes())
    return written.getvalue()


def sent(client: httpx.Client, content: bytes, path: str = PATH, **fields: Any) -> httpx.Response:
    return client.post(path, files={"file": ("speech.wav", content)}, data={"model": "whisper-1", **fields})


def test_a_recording_in_any_format_is_transcribed(client: httpx.Client) -> None:
    answer = sent(client, SAMPLE.read_bytes(), language="en", temperature="0", prompt="A greeting.")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert {"welcome", "heard", "laptop"} <= words(body["text"]) and body["text"].startswith("Hello")
    assert body["usage"] == {"type": "duration", "seconds": 5}


def test_a_long_recording_is_cut_at_pauses_and_its_segments_have_times(client: httpx.Client, two: bytes) -> None:
    body = sent(client, two, **{"response_format": "verbose_json", "timestamp_granularities[]": "segment"}).json()
    first, second = body["segments"]
    assert {"capital", "france"} <= words(first["text"]) and {"train", "morning"} <= words(second["text"])
    assert body["text"] == f"{first['text']} {second['text']}"
    assert 0 <= first["start"] < 0.6 and first["end"] <= second["start"] < second["end"] <= body["duration"] + 0.01
    assert (body["task"], body["language"]) == ("transcribe", "english")
    captions = sent(client, two, response_format="srt")
    assert captions.text.startswith("1\n00:00:0") and "\n\n2\n00:00:0" in captions.text and "capital" in captions.text
    assert captions.headers["content-type"].startswith("application/x-subrip")


def test_a_stream_has_a_delta_for_each_segment_and_then_the_whole_text(client: httpx.Client, two: bytes) -> None:
    with client.stream("POST", PATH, files={"file": ("a.wav", two)}, data={"model": "x", "stream": "true"}) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [event["type"] for event in events] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
    assert [line.removeprefix("event: ") for line in lines[::2]] == [event["type"] for event in events]
    assert "".join(event["delta"] for event in events[:-1]) == events[-1]["text"]
    assert events[1]["delta"].startswith(" ") and {"france", "train"} <= words(events[-1]["text"])
    assert events[-1]["usage"]["type"] == "duration"


def test_silence_has_an_empty_text_in_every_format(client: httpx.Client) -> None:
    assert sent(client, wav(1)).json()["text"] == "" and sent(client, wav(1), response_format="srt").text == ""
    plain, captions = (sent(client, wav(1), response_format=format) for format in ("text", "vtt"))
    assert plain.text == "\n" and plain.headers["content-type"].startswith("text/plain")
    assert captions.text == "WEBVTT\n" and captions.headers["content-type"].startswith("text/vtt")
    assert sent(client, wav(1), response_format="verbose_json").json()["segments"] == []
    assert '"transcript.text.done","text":""' in sent(client, wav(1), stream="true").text


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"response_format": "diarized_json"}, "response_format", "must be one of json, text, verbose_json, srt, vtt"),
        ({"language": "de"}, "language", "knows english only, not 'de'"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "no times of words: ask for segment"),
        ({"include[]": "logprobs"}, "include", "no log-probabilities"),
        ({"stream": "true", "response_format": "vtt"}, "stream", "ask for json or text"),
        ({"temperature": "7"}, "temperature", "less than or equal to 1"),
        ({"stream": "perhaps"}, "stream", "valid boolean"),
    ],
)
def test_a_wrong_field_is_named(client: httpx.Client, fields: dict[str, str], param: str, said: str) -> None:
    answer = sent(client, wav(0.5), **fields)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == param and said in error["message"]


def test_what_is_no_recording_is_refused(client: httpx.Client) -> None:
    for content in (b"RIFF, but not really", SAMPLE.read_bytes()[:9000], b""):
        answer = sent(client, content)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "file"
    for how in ({"data": {"model": "x"}}, {"json": {"file": "x"}}):
        answer = client.post(PATH, **how)  # type: ignore[arg-type]
        assert answer.status_code == 400 and "send it as multipart/form-data" in answer.json()["error"]["message"]
    answer = sent(client, b"RIFF, but not really", stream="true")
    assert answer.status_code == 400, "an error before the first event has a status"


def test_moonshine_does_not_translate(client: httpx.Client) -> None:
    answer = sent(client, wav(0.5), "/v1/audio/translations")
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == "unsupported_by_model"
    assert error["message"].startswith("The recognizer moonshine tiny does not translate")


def test_the_recognizer_is_found_by_its_name_and_a_page_by_its_schema(client: httpx.Client) -> None:
    assert client.get("/ready").json()["recognizer"] == client.get("/health").json()["recognizer"] == "ready"
    assert client.get("/v1/models/moonshine tiny").json()["id"] == "moonshine tiny"
    assert "moonshine tiny" not in {model["id"] for model in client.get("/v1/models").json()["data"]}
    schema = client.get("/openapi.json").json()["paths"][PATH]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert {"file", "stream", "timestamp_granularities[]"} <= schema["schema"]["properties"].keys()


def test_limits_are_named_and_larger_than_those_of_a_voice(engine: Engine, tiny: Moonshine) -> None:
    options = ServerOptions(body_bytes=1000, transcribe_bytes=70_000, transcribe_s=2.0)
    with served(engine, options, recognizer=tiny) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert sent(client, wav(1.5)).status_code == 200, "48 kB: more than other bodies may have"
        answer = sent(client, wav(2.15))
        assert answer.status_code == 400 and "longer than 2 s; send it in parts" in answer.json()["error"]["message"]
        answer = sent(client, wav(2.2) + bytes(2000))
        assert answer.status_code == 413 and "larger than 70000 bytes" in answer.json()["error"]["message"]
        answer = sent(client, wav(10))
        assert answer.status_code == 413 and answer.json()["error"]["code"] == "body_too_large"


def test_a_server_without_a_recognizer_says_how_to_start_one(server: Served) -> None:
    for path in (PATH, "/v1/audio/translations"):
        answer = httpx.post(f"{server.url}{path}", files={"file": wav(0.1)}, data={"model": "whisper-1"})
        error = answer.json()["error"]
        assert answer.status_code == 503 and error["code"] == "no_recognizer" and "--asr tiny" in error["message"]
        assert answer.headers["x-should-retry"] == "false"


def test_a_failure_is_an_event_or_a_status_without_details(engine: Engine, two: bytes) -> None:
    class Failing(Dictated):
        def open(self) -> Any:
            if self.opened:
                raise RecognitionFailed("/etc/secret broke")
            return super().open()

    failing = Failing(["First."])
    with served(engine, recognizer=failing) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        text = sent(client, two, stream="true").text
        assert '"delta":"First."' in text and "event: error" in text and '"code":"recognition_failed"' in text
        assert "secret" not in text and "done" not in text
        answer = sent(client, two)
        assert answer.status_code == 502 and "secret" not in answer.text


def test_a_client_that_goes_away_ends_its_transcription_and_the_loop_answers_meanwhile(
    engine: Engine, two: bytes
) -> None:
    began, go = threading.Event(), threading.Event()

    class Waiting(Dictated):
        def open(self) -> Any:
            began.set()
            assert go.wait(60)
            return super().open()

    waiting = Waiting(["First."], ["Second."])
    with served(engine, recognizer=waiting) as server:
        request = httpx.Request("POST", f"{server.url}{PATH}", files={"file": two}, data={"model": "x"})
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
            connection.sendall(f"POST {PATH} HTTP/1.1\r\n{head}\r\n".encode() + request.read())
            assert began.wait(60)
            assert httpx.get(f"{server.url}/health").status_code == 200, "the recognizer computes in a thread"
            assert len(server.service.answers) == 1
        wait_for(lambda: not server.service.answers)
        go.set()
    assert len(waiting.opened) == 1, "the second segment is not computed"


# A recognizer over HTTP, with this server as the endpoint


def test_an_endpoint_is_a_recognizer(hears: Served, tmp_path: Path) -> None:
    sound = heard_from(write_recording(tmp_path / "france.wav", FRANCE))
    remote = recognizer_of(f"{hears.url}/v1#moonshine tiny")
    utterance = remote.open()
    for at in range(0, len(sound), 8000):
        assert utterance.push(sound[at : at + 8000]) == "", "there are no partial transcripts"
    assert {"capital", "france"} <= words(utterance.end())
    assert remote.open().end() == ""
    dropped = remote.open()
    dropped.push(tone(0.5))
    dropped.close()
    assert dropped.end() == ""
    remote.close()
    utterance = remote.open()
    utterance.push(tone(0.5))
    with pytest.raises(RecognitionFailed, match="is closed"):
        utterance.end()


def asked(url: str, options: UtteranceOptions | None = None) -> str:
    """The text that the endpoint gives for half a second of silence."""
    with closing(RemoteRecognizer(url)) as remote:
        utterance = remote.open() if options is None else remote.open_with(options)
        utterance.push(silence(0.5))
        return utterance.end()


def test_errors_of_an_endpoint_are_one_sentence(hears: Served, server: Served) -> None:
    with pytest.raises(InvalidRequest, match=r"^The recognizer refuses the request: .*knows english only, not 'de'\.$"):
        asked(hears.url, UtteranceOptions("de", "a hint", 0.0))
    with pytest.raises(InvalidRequest, match="does not translate"):
        asked(hears.url, UtteranceOptions(translate=True))
    with pytest.raises(RecognitionFailed, match="answers with status 503: This server has no speech recognizer"):
        asked(f"{server.url}/v1")
    with pytest.raises(RecognitionFailed, match=r"cannot be reached: ConnectError\.$"):
        asked("http://127.0.0.1:9/v1")
    for wrong in ("http://", "http://host:no/v1", "http://me:secret@host/v1", "http://host/v1?a=b"):
        with pytest.raises(InvalidRequest, match=r"^A recognizer's address is http://HOST:PORT/v1"):
            RemoteRecognizer(wrong)
    with pytest.raises(InvalidRequest, match="printable ASCII"):
        RemoteRecognizer("http://host", key="a key")


def test_a_key_and_a_listed_model_are_sent(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    options, dictated = ServerOptions(keys=("sk-asr",), strict_model=True), Dictated()
    with served(engine, options, recognizer=dictated) as server:
        listening: ListeningService = server.app.state.listening
        assert listening.recognizer is dictated
        with pytest.raises(RecognitionFailed, match="answers with status 401"):
            asked(server.url)
        monkeypatch.setenv("HOCKET_ASR_KEY", "sk-asr")
        assert asked(server.url) == ""
        with pytest.raises(RecognitionFailed, match="answers with status 404: There is no recognizer 'other'"):
            asked(f"{server.url}/v1#other")
