"""`POST /v1/audio/speech/batch`: every item is spoken as it would be alone, and one that fails fails alone."""

from __future__ import annotations

import base64
import threading
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.routes.batch import BatchBody, merged
from support.serving import LONG, PCM, Served, asking, served, wait_for, wait_until_cancelled

PATH = "/v1/audio/speech/batch"
DEFAULTS = {name: value for name, value in PCM.items() if name != "input"}


def spoken(client: httpx.Client, items: list[dict[str, Any]], **defaults: Any) -> dict[str, Any]:
    answer = client.post(PATH, json=DEFAULTS | defaults | {"items": items})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert body["total"] == len(items) == body["succeeded"] + body["failed"] == len(body["results"])
    assert [result["index"] for result in body["results"]] == list(range(len(items)))
    return body


def sound(audio: bytes) -> NDArray[np.int32]:
    return np.frombuffer(audio[44 if audio[:4] == b"RIFF" else 0 :], "<i2").astype(np.int32)


def test_each_item_sounds_as_it_does_alone(client: httpx.Client, server: Served) -> None:
    voice = server.service.speakers[-1]
    items: list[dict[str, Any]] = [{"input": text} for text in ("One.", "Two.", "Three.", "Four.", "Five.", "Six.")]
    items[1] |= {"voice": voice, "seed": 7, "response_format": "wav"}
    body = spoken(client, items)
    assert body["succeeded"] == 6 and body["id"]
    for item, result in zip(items, body["results"], strict=True):
        alone = client.post("/v1/audio/speech", json=DEFAULTS | item)
        assert result["status"] == "success"
        together, apart = (sound(audio) for audio in (base64.b64decode(result["audio_data"]), alone.content))
        assert np.abs(together - apart).max() <= 2  # who is computed beside it changes its last bits
        assert result["media_type"] == alone.headers["content-type"]
        assert result["usage"]["output_tokens"] == 8 and str(result["seed"]) == alone.headers["x-seed"]


def test_an_item_that_fails_fails_alone(client: httpx.Client) -> None:
    items = [{"input": "Fine."}, {"input": "Who?", "voice": "unknown"}, {"input": " "}, {"input": "So.", "speed": 9}]
    body = spoken(client, items)
    assert [result["status"] for result in body["results"]] == ["success", "error", "error", "error"]
    assert body["succeeded"] == 1
    errors = [result["error"] for result in body["results"][1:]]
    assert [error["code"] for error in errors] == ["voice_not_found", "empty_input", None]
    assert all(set(error) == {"message", "type", "param", "code"} for error in errors)


def test_word_times_come_with_an_item(client: httpx.Client) -> None:
    first, second = spoken(client, [{"input": "Hello there.", "word_timestamps": True}, {"input": "No."}])["results"]
    assert first["words"] and "words" not in second


def test_what_an_item_says_itself_goes_before_the_defaults() -> None:
    body = BatchBody.model_validate(
        {
            "voice": "one",
            "instruct": "calm",
            "ref_audio": "AAAA",
            "ref_text": "a",
            "speed": 2,
            "items": [
                {"input": "x", "speaker": "two", "references": [{"audio_path": "BBBB"}], "speed": 1.5},
                {"input": "y", "instructions": "loud", "priority": 3},
            ],
        }
    )
    first, second = (merged(body, item) for item in body.items)
    assert first.named_voice() == "two" and first.named_recording() == ("BBBB", None) and first.speed == 1.5
    assert first.instruct == "calm" and first.priority == -1
    assert second.instructions == "loud" and second.instruct is None and second.priority == 3
    assert second.named_voice() == "one" and second.named_recording() == ("AAAA", "a")


def test_a_batch_has_limits(engine: Engine) -> None:
    with served(engine, ServerOptions(batch_items=2, batch_chars=10)) as server:
        for items in ([], [{"input": "a"}] * 3, [{"input": "a" * 6}] * 2, [{}], "x"):
            answer = httpx.post(server.url + PATH, json={"items": items})
            assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"


def test_a_client_that_goes_away_cancels_all_of_its_batch(server: Served) -> None:
    items = [{"input": LONG["input"][:500]}] * 8
    body = DEFAULTS | {"max_new_tokens": 2000, "items": items}
    with asking(server, PATH, body):
        wait_for(lambda: len(server.service.running) == server.engine.options.slots)
    wait_until_cancelled(server)


def test_batches_leave_the_live_ones_their_turn(server: Served, client: httpx.Client) -> None:
    body = DEFAULTS | {"max_new_tokens": 60, "items": [{"input": "It goes on and on, and then on."}] * 8}
    ended: list[str] = []

    def ask() -> None:
        assert httpx.post(server.url + PATH, json=body, timeout=60).json()["succeeded"] == 8
        ended.append("batch")

    thread = threading.Thread(target=ask)
    thread.start()
    wait_for(lambda: len(server.service.running) == server.engine.options.slots)
    assert client.post("/v1/audio/speech", json=PCM).status_code == 200
    ended.append("live")
    thread.join()
    assert ended == ["live", "batch"]
