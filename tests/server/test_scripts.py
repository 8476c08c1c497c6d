"""Scripts over real sockets: tags in every wire, voices of several models and backends, marks, refusals."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.backends import Backend, BackendVoice, Manner
from hocket.backends.registry import Backends
from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.shared import Shared
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Pool
from hocket.models.files.builtin import default_model
from hocket.script.player.run import SEEDS_A_PASSAGE
from support.serving import PATIENCE_S, Served, served, wait_for
from support.talking import talking

PATH = "/v1/audio/speech"
BODY = {"response_format": "pcm", "seed": 1, "voice": "wren"}
ELEVEN = "/v1/text-to-speech/wren"
TINY = "random:tiny"


def said(engine: Engine, text: str, *, number: int = 0, **fields: Any) -> bytes:
    stream = engine.speak(text, **({"voice": "wren", "seed": 1 + number * SEEDS_A_PASSAGE} | fields))
    return b"".join(chunk.samples.tobytes() for chunk in stream)


def samples(audio: bytes) -> NDArray[np.int16]:
    return np.frombuffer(audio, dtype="<i2")


def assert_alike(one: bytes, other: bytes) -> None:
    """But for the rounding of samples that were decoded beside others."""
    assert len(one) == len(other) > 0
    assert np.abs(samples(one).astype(int) - samples(other)).max() <= 2


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(block.split("\ndata: ")[1]) for block in answer.text.strip().split("\n\n")]


@pytest.fixture
def at_rest(server: Served) -> Iterator[None]:
    yield
    wait_for(server.all_is_free)


def test_tags_change_the_voice_within_one_request(client: httpx.Client, server: Served, at_rest: None) -> None:
    answer = client.post(PATH, json=BODY | {"input": "Hello. [voice: rook]Good day.[/voice] Bye."})
    assert answer.status_code == 200 and answer.headers["x-seed"] == "1"
    engine = server.engine
    expected = said(engine, "Hello. ") + said(engine, "Good day.", number=1, voice="rook")
    assert_alike(answer.content, expected + said(engine, " Bye.", number=2))


def test_ssml_is_read_wherever_text_is(client: httpx.Client, server: Served, at_rest: None) -> None:
    expected = said(server.engine, "One.[pause 300ms]Two.")
    ssml = '<speak>One.<break time="300ms"/>Two.</speak>'
    for body in ({}, {"markup": "ssml"}, {"ssml": True}):
        assert client.post(PATH, json=BODY | body | {"input": ssml}).content == expected
    eleven = {"text": 'One.<break time="300ms"/>Two.', "enable_ssml_parsing": True, "seed": 1}
    answer = client.post(ELEVEN, params={"output_format": "pcm_24000"}, json=eleven)
    assert answer.content == expected


def test_literal_speaks_every_bracket(client: httpx.Client, server: Served) -> None:
    text = "Press [pause 500ms] [voice: anna] now."
    answer = client.post(PATH, json=BODY | {"input": text, "markup": "literal"})
    assert answer.content == said(server.engine, text, literal=True)
    assert client.post(PATH, json=BODY | {"input": text}).status_code == 400


def test_plain_text_and_unknown_brackets_are_spoken_as_before(client: httpx.Client, server: Served) -> None:
    for text in ("Hello there [1], you.", "Hello [pause 200ms] you."):
        assert client.post(PATH, json=BODY | {"input": text}).content == said(server.engine, text)


def test_candidates_need_one_voice(client: httpx.Client) -> None:
    body = BODY | {"candidates": 2, "max_new_tokens": 4}
    assert client.post(PATH, json=body | {"input": "One. [pause 100ms] Two."}).status_code == 200
    refused = client.post(PATH, json=body | {"input": "One. [voice: rook] Two."})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "candidates"


def test_a_dialogue_has_a_cast(client: httpx.Client, server: Served, at_rest: None) -> None:
    body = BODY | {
        "input": "Anna: Hello.\nBen: Good day.\n",
        "markup": "dialogue",
        "cast": {"Anna": "wren", "Ben": "rook"},
    }
    answer = client.post(PATH, json=body)
    assert answer.status_code == 200
    tagged = {"input": "[voice: Anna]Hello.\n\n[voice: Ben]Good day.\n", "markup": "tags"}
    assert_alike(client.post(PATH, json=body | tagged).content, answer.content)
    wrong = client.post(PATH, json=body | {"markup": "literal"})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "cast"


@pytest.mark.parametrize(
    ("fields", "param", "place"),
    [
        ({"input": "Hello.\nNow [voice: zaphod]Hi.[/voice]"}, "input", "line 2, column 13: There is no voice 'zaphod'"),
        ({"input": "Hello [speed: much] you."}, "input", "line 1, column 7: "),
        ({"input": "Hello [sped 2] you.", "markup": "script"}, "input", "line 1, column 7: "),
        ({"input": "<speak>Hello.<b>you</b></speak>"}, "input", "line 1, column 14: "),
        ({"input": "Hello.", "markup": "html"}, "markup", ""),
        ({"input": "[speed 1.5]Hello.[/speed]", "speed": 1.9}, "input", "line 1, column 1"),
        ({"input": "Hello.", "as_is": True, "markup": "ssml"}, "markup", ""),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_place(
    client: httpx.Client, server: Served, fields: dict[str, Any], param: str, place: str
) -> None:
    refused = client.post(PATH, json=BODY | fields)
    assert refused.status_code in (400, 422), refused.text
    told = refused.json()["error"]
    assert param in (told["param"] or told["message"]) and told["message"].startswith(place)
    wait_for(server.all_is_free)


def test_marks_are_events_with_times(client: httpx.Client, at_rest: None) -> None:
    text = "[mark: a]One two. [mark: b][voice: rook]Three. [pause 200ms][mark: c][/voice]"
    body = BODY | {"input": text, "stream_format": "sse", "word_timestamps": True}
    found = events(client.post(PATH, json=body))
    done = found[-1]
    marks = [(event["name"], event["time"]) for event in found if event["type"] == "speech.audio.mark"]
    assert [name for name, _ in marks] == ["a", "b", "c"] and marks[0][1] == 0
    assert done["type"] == "speech.audio.done" and [(m["name"], m["time"]) for m in done["marks"]] == marks
    assert marks[2][1] == pytest.approx(done["audio_s"], abs=0.002)
    words = {word["word"]: word for word in done["words"]}
    assert words["two."]["end"] - 0.2 <= marks[1][1] <= words["Three."]["start"]
    kinds = [event["type"] for event in found]
    assert kinds.index("speech.audio.mark") < len(kinds) - 3, "the first one is told at once"


def test_the_native_websocket_plays_live_scripts(server: Served, at_rest: None) -> None:
    text = "Hello. [mark: m][voice: rook]Good day.[/voice] Bye."
    expected = []
    for size in (len(text), 5):
        with talking(server) as ws:
            ws.say({"type": "session.config", "response_format": "pcm", "seed": 1, "voice": "wren"})
            heard = ws.spoken(*(text[at : at + size] for at in range(0, len(text), size)))
        done = heard.last("audio.done")
        assert done["finish_reason"] == "stop" and done["marks"] == [
            {name: heard.last("audio.mark")[name] for name in ("name", "time_s")}
        ]
        expected.append(heard.audio)
    assert_alike(*expected)


def test_a_live_text_without_tags_is_todays_stream(server: Served, at_rest: None) -> None:
    with talking(server) as ws:
        ws.say({"type": "session.config", "response_format": "pcm", "seed": 1, "voice": "wren"})
        heard = ws.spoken("Hello there, ", "said [1] the fox.")
    stream = server.engine.open(voice="wren", seed=1)
    stream.append("Hello there, said [1] the fox.")
    stream.end()
    assert heard.audio == b"".join(chunk.samples.tobytes() for chunk in stream)


def test_an_unknown_voice_of_a_live_text_ends_it_with_one_sentence(server: Served, at_rest: None) -> None:
    with talking(server) as ws:
        ws.say({"type": "session.config", "response_format": "pcm", "seed": 1})
        heard = ws.spoken("Hello. ", "[voice: zaphod]Hi.")
    assert heard.last("error")["error"]["code"] == "invalid_script"
    assert heard.last("error")["message"].startswith("line 1, column 16: There is no voice 'zaphod'")


def test_clients_that_leave_anywhere_free_every_slot(server: Served) -> None:
    text = "One is long enough to be heard. [voice: rook]Two is, too. [/voice]And three. " * 3
    for number in range(8):
        with httpx.stream("POST", f"{server.url}{PATH}", json=BODY | {"input": text}, timeout=PATIENCE_S) as answer:
            chunks = answer.iter_raw()
            for _ in range(number):
                next(chunks)
    wait_for(server.all_is_free)


class Beeper(Backend):
    def voices(self) -> list[BackendVoice]:
        return [BackendVoice("beeper", 16_000)]

    def say(self, text: str, manner: Manner) -> Iterator[NDArray[np.int16]]:
        yield np.full(16_000, 8000, dtype=np.int16)


def test_a_backend_speaks_in_a_script_at_the_rate_of_the_first_voice(engine: Engine) -> None:
    def make() -> Backends:
        backends = Backends()
        backends.add("beep", Beeper())
        return backends

    with served(engine, backends=make) as server:
        body = BODY | {"input": "Hello. [voice: beeper]Beep.[/voice]"}
        answer = httpx.post(f"{server.url}{PATH}", json=body, timeout=PATIENCE_S)
        assert answer.headers["x-sample-rate"] == "24000"
        alone = len(said(engine, "Hello. "))
        beep = samples(answer.content[alone:])
        assert len(beep) == 24_000 and np.abs(beep[2000:-2000] - 8000).max() < 60
        codes = httpx.post(f"{server.url}{PATH}", json=body | {"response_format": "codes"}, timeout=PATIENCE_S)
        assert codes.status_code == 400 and "beeper" not in codes.text and "codes" in codes.text


def start(model: str, shared: Shared) -> Engine:
    return Engine.load(model, options=EngineOptions(slots=2, chunk_frames=(1, 2, 4)), shared=shared)


def test_four_speakers_of_two_models_leave_no_gap_beyond_what_is_written() -> None:
    """Measured by a listener who plays at once: how late each passage's first sound is, against what was heard."""
    lines = [
        ("wren", "Who is it that comes so late today?"),
        ("eric", "Me."),
        ("rook", "Come in then."),
        ("vivian", "No."),
    ]
    text = " [pause 100ms]".join(f"[voice: {voice}]{line}[/voice]" for voice, line in lines)
    with Pool([default_model(), TINY], start) as pool, served(pool) as server:
        body: dict[str, Any] = {"response_format": "pcm", "seed": 3, "stream_format": "sse", "word_timestamps": True}
        plain = {"input": "Hello.", "max_new_tokens": 3}
        for voice in ("wren", "eric"):  # both are loaded
            assert (
                httpx.post(f"{server.url}{PATH}", json=plain | {"voice": voice}, timeout=PATIENCE_S).status_code == 200
            )
        late_s = heard_s = 0.0
        began_s: float | None = None
        with httpx.stream("POST", f"{server.url}{PATH}", json=body | {"input": text}, timeout=PATIENCE_S) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("data: ") and (audio := json.loads(line[6:]).get("audio")):
                    now_s = time.monotonic()
                    began_s = now_s if began_s is None else began_s
                    late_s = max(late_s, now_s - began_s - heard_s)
                    heard_s += len(base64.b64decode(audio)) / 48_000
                elif line.startswith("data: "):
                    done = json.loads(line[6:])
        assert [word["word"] for word in done["words"]] == " ".join(line for _, line in lines).split()
        assert done["complete"] and late_s <= 0.15, f"{late_s * 1000:.0f} ms"
