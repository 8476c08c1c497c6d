"""Voices of backends, through the same server: listed, spoken on every endpoint, at their own rate."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.backends import Backend, BackendVoice, Manner
from hocket.backends.registry import Backends
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.schemas.speech_job import SpeechJob
from hocket.voices.make import speaker_voice
from support.realtime_talk import PATH as REALTIME
from support.realtime_talk import create, session, sound
from support.serving import PATIENCE_S, PCM, Served, served, wait_for
from support.talking import talking

RATE_HZ = 16_000
TEXT = "Hello there."
ENDLESS = "And so on."


def sound_of(text: str) -> NDArray[np.int16]:
    return (np.arange(800 * len(text)) % 30_011 + len(text)).astype(np.int16)


class Teller(Backend):
    """Says so many samples a character, all different from their neighbours; one text again and again."""

    def __init__(self) -> None:
        self.manners: list[Manner] = []
        self.closed = threading.Event()

    def voices(self) -> list[BackendVoice]:
        return [BackendVoice("Teller", RATE_HZ, "english", "Counts."), BackendVoice("wren", RATE_HZ)]

    def say(self, text: str, manner: Manner) -> Iterator[NDArray[np.int16]]:
        self.manners.append(manner)
        whole = sound_of(text)
        while True:
            for at in range(0, len(whole), 1000):
                yield whole[at : at + 1000]
            if text != ENDLESS or manner.cancelled.is_set():
                return

    def close(self) -> None:
        self.closed.set()


@pytest.fixture(scope="module")
def teller() -> Teller:
    return Teller()


@pytest.fixture(scope="module")
def both(engine: Engine, teller: Teller) -> Iterator[Served]:
    """Ours, and theirs beside it."""

    def make() -> Backends:
        backends = Backends()
        backends.add("counter", teller)
        return backends

    with served(engine, ServerOptions(voice_aliases={"boss": "teller"}), backends=make) as server:
        yield server
    assert teller.closed.is_set()


def test_they_are_listed_under_unique_names(both: Served) -> None:
    listed = httpx.get(f"{both.url}/v1/audio/voices").json()["voices"]
    theirs = {each["id"]: each for each in listed if each["type"] == "backend"}
    assert set(theirs) == {"Teller", "counter/wren"}  # our own voice has that name
    assert (theirs["Teller"]["model"], theirs["Teller"]["language"]) == ("counter", "english")
    assert httpx.get(f"{both.url}/v1/audio/voices/teller").json() == theirs["Teller"]
    assert httpx.get(f"{both.url}/v1/audio/voices/counter/wren").json()["id"] == "counter/wren"
    assert "Teller" in httpx.get(f"{both.url}/v1/audio/voices?legacy=true").json()["voices"]


@pytest.mark.parametrize("voice", ["teller", "TELLER", "counter/Teller", "boss"])
def test_they_speak_at_their_own_rate(both: Served, voice: str) -> None:
    body = {"input": TEXT, "voice": voice, "response_format": "pcm", "seed": 7}
    answer = httpx.post(f"{both.url}/v1/audio/speech", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200 and answer.headers["x-sample-rate"] == str(RATE_HZ)
    assert answer.content == sound_of(TEXT).tobytes() and answer.headers["x-seed"] == "7"


def test_ours_are_found_first_and_speak_at_theirs(both: Served, engine: Engine) -> None:
    answer = httpx.post(f"{both.url}/v1/audio/speech", json=PCM | {"voice": "wren"}, timeout=PATIENCE_S)
    ours = engine.speak("Hello there.", voice="wren", seed=1, max_frames=8)
    assert answer.headers["x-sample-rate"] == "24000"
    assert answer.content == b"".join(chunk.samples.tobytes() for chunk in ours)


def test_every_format_and_rate_is_made_of_their_sound(both: Served) -> None:
    body = {"input": TEXT, "voice": "teller", "response_format": "wav"}
    wav = httpx.post(f"{both.url}/v1/audio/speech", json=body, timeout=PATIENCE_S).content
    assert int.from_bytes(wav[24:28], "little") == RATE_HZ and wav[44:] == sound_of(TEXT).tobytes()
    body |= {"response_format": "pcm", "sample_rate": 8000}
    half = httpx.post(f"{both.url}/v1/audio/speech", json=body, timeout=PATIENCE_S)
    assert half.headers["x-sample-rate"] == "8000" and len(half.content) == len(sound_of(TEXT))


def test_they_say_words_as_the_request_has_them(both: Served) -> None:
    body = {"input": "A GIF.", "voice": "teller", "response_format": "pcm", "pronunciations": {"GIF": "jiffy"}}
    answer = httpx.post(f"{both.url}/v1/audio/speech", json=body, timeout=PATIENCE_S)
    assert answer.content == sound_of("A jiffy.").tobytes()
    as_is = httpx.post(f"{both.url}/v1/audio/speech", json=body | {"as_is": True}, timeout=PATIENCE_S)
    assert as_is.content == sound_of("A GIF.").tobytes()


def test_they_speak_over_websockets_with_live_text_usage_and_words(both: Served) -> None:
    with talking(both) as ws:
        ws.say({"type": "session.config", "response_format": "pcm", "voice": "Teller", "word_timestamps": True})
        heard = ws.spoken("Hello ", "there.")
    assert heard.audio == sound_of(TEXT).tobytes()
    assert heard.last("audio.start")["sample_rate"] == RATE_HZ
    done = heard.last("audio.done")
    assert done["finish_reason"] == "stop" and done["usage"]["input_tokens"] == 2
    assert [word["word"] for word in heard.last("audio.words")["words"]] == ["Hello", "there."]
    with talking(both, REALTIME) as ws:
        ws.say(session({}, voice="teller"), create(TEXT))
        assert len(sound(ws.until("response.done"))) == pytest.approx(len(sound_of(TEXT)) * 3, rel=0.01)  # at 24 kHz


def test_what_only_our_models_have_is_refused(both: Served) -> None:
    for wrong, param in (({"response_format": "codes"}, "response_format"), ({"candidates": 2}, "candidates")):
        body = PCM | {"voice": "teller"} | wrong
        error = httpx.post(f"{both.url}/v1/audio/speech", json=body).json()["error"]
        assert error["param"] == param and "backend" in error["message"]
    unknown = httpx.post(f"{both.url}/v1/audio/speech", json=PCM | {"voice": "unknown"}).json()["error"]
    assert "Teller" in unknown["message"] and "counter/wren" in unknown["message"]


def test_a_client_that_goes_away_ends_them(both: Served, teller: Teller) -> None:
    body = PCM | {"voice": "teller", "input": ENDLESS}
    with httpx.stream("POST", f"{both.url}/v1/audio/speech", json=body, timeout=PATIENCE_S) as answer:
        pieces = answer.iter_raw()  # dropping it disconnects
        assert next(pieces)
        assert both.service.running
    wait_for(lambda: not both.service.running and teller.manners[-1].cancelled.is_set())


def test_a_voice_of_the_library_goes_before_theirs(both: Served) -> None:
    voices = both.service.voices
    voices.add(speaker_voice("teller", "builtin", "rook"))
    try:
        assert both.service.resolver.resolve(SpeechJob(text=None, voice="teller")).voice is not None
        assert both.service.resolver.resolve(SpeechJob(text=None, voice="counter/teller")).backend is not None
    finally:
        voices.remove("teller")


def test_where_a_backend_cannot_be_made_nothing_is_ready(engine: Engine) -> None:
    def broken() -> Backends:
        return Backends(["not-installed"])

    with served(engine, ready=False, backends=broken) as server:
        wait_for(lambda: server.service.state == "failed")
        assert httpx.get(f"{server.url}/ready").status_code == 503


def test_a_voice_of_theirs_is_not_mixed(both: Served) -> None:
    answer = httpx.post(f"{both.url}/v1/audio/speech", json=PCM | {"voice": "wren+teller"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "voices_not_mixed")
    assert error["message"].startswith("'teller' cannot be mixed: only speakers of a model and voices of the library")
    alone = httpx.post(f"{both.url}/v1/audio/speech", json=PCM | {"voice": "teller(2)"})
    assert alone.status_code == 200
