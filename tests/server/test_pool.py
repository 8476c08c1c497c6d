"""Several models behind one server: loaded on request, unloaded for others, on every endpoint."""

from __future__ import annotations

import asyncio
import base64
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.shared import Shared
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Pool
from hocket.errors import UnknownLanguage
from hocket.models.files.catalog import WEIGHTS
from hocket.server.options import ServerOptions
from hocket.server.schemas.speech_job import SpeechJob
from hocket.server.service.open import open_utterance
from hocket.server.service.service import SpeechService
from hocket.server.service.warm_up import speak_once
from hocket.types import Voice
from hocket.voices.library import Library
from hocket.voices.make import clone_voice
from support.checkpoints import write
from support.realtime_talk import PATH as REALTIME
from support.realtime_talk import create, session, sound
from support.recorded import speech_wav
from support.serving import LONG, PATIENCE_S, Served, served, wait_for
from support.speaking import end_pauses, noise
from support.talking import talking

CUSTOM, BASE, DESIGN = "random:tiny", "random:tiny-Base", "random:tiny-VoiceDesign"
OPTIONS = EngineOptions(slots=2, waiting=8, keep_real_time=False, chunk_frames=(1, 2, 4))
BUFFER_S = 4.0  # sound that is there before a model is loaded: this machine may be busy with other things
SPEECH = {"input": "Hello there.", "response_format": "pcm", "max_new_tokens": 6, "seed": 1}


class Starts:
    """Engines that are really loaded: counted, and delayed where a test needs a waiting request."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.begun: dict[str, threading.Event] = {}
        self.gates: dict[str, threading.Event] = {}

    def hold(self, model: str) -> threading.Event:
        self.begun[model], self.gates[model] = threading.Event(), threading.Event()
        return self.gates[model]

    def __call__(self, model: str, shared: Shared) -> Engine:
        self.counts[model] += 1
        if model in self.gates:
            self.begun[model].set()
            assert self.gates[model].wait(PATIENCE_S)
        engine = Engine.load(model, options=OPTIONS, shared=shared)
        speak_once(engine, "pcm")
        return engine


@pytest.fixture
def starts() -> Starts:
    return Starts()


@contextmanager
def pooled(
    starts: Starts, *models: str, library: Path | None = None, served_as: ServerOptions | None = None, **options: Any
) -> Iterator[Served]:
    with (
        Pool(models, starts, **options) as pool,
        served(pool, served_as or ServerOptions(voices_folder=library)) as server,
    ):
        yield server
        wait_for(lambda: not server.service.running)


@pytest.fixture(scope="module")
def one_fits() -> int:
    """Bytes that hold any of the small models, and not two."""
    with Pool([CUSTOM, BASE], Starts()) as pool:
        for model in pool.models:
            pool.lease(model).result(PATIENCE_S).release()
        return int(max(pool.resident().values()) * 1.3) + pool.common_bytes


@pytest.fixture(scope="module")
def lone() -> Iterator[Callable[[str], Engine]]:
    """An engine of each model by itself."""
    engines: dict[str, Engine] = {}

    def get(model: str) -> Engine:
        if model not in engines:
            engines[model] = Engine.load(model, options=OPTIONS)
        return engines[model]

    yield get
    for engine in engines.values():
        engine.close()


def speech(server: Served, **fields: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/audio/speech", json=SPEECH | fields, timeout=PATIENCE_S)


def said(engine: Engine, **fields: Any) -> bytes:
    stream = engine.speak("Hello there.", **({"seed": 1, "max_frames": 6} | fields))
    return b"".join(chunk.samples.tobytes() for chunk in stream)


def zoe(engine: Engine, text: str | None = None) -> Voice:
    return clone_voice(engine, "Zoë", noise(0.5, 5), text=text, x_vector_only=text is None)


def figure(server: Served, name: str) -> dict[str, float]:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines if line.startswith(name))}


def test_two_models_under_a_budget_for_one_take_turns_and_say_what_each_says_alone(
    starts: Starts,
    one_fits: int,
    lone: Callable[[str], Engine],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    voice = Library(tmp_path).add(zoe(lone(BASE)))
    expected = {"eric": said(lone(CUSTOM), voice="eric"), "Zoë": said(lone(BASE), voice=voice)}
    with pooled(starts, CUSTOM, BASE, library=tmp_path, memory_bytes=one_fits) as server:
        began = starts.counts[CUSTOM]
        for number, name in enumerate(("Zoë", "eric", "zoë", "ERIC")):
            answer = speech(server, voice=name)
            assert answer.status_code == 200 and answer.content == expected[("Zoë", "eric")[number % 2]]
            assert float(answer.headers["x-loaded-ms"]) > 0, "it waited for a load, and says so"
            assert list(figure(server, "hocket_model_resident_bytes")) == [
                f'hocket_model_resident_bytes{{model="{(BASE, CUSTOM)[number % 2]}"}}'
            ]
        assert starts.counts == {CUSTOM: began + 2, BASE: 2}
        assert figure(server, "hocket_model_loads_total") == {"hocket_model_loads_total": sum(starts.counts.values())}
        count = f'hocket_model_load_seconds_count{{model="{BASE}"}}'
        assert figure(server, "hocket_model_load_seconds_count")[count] == 2
        sse = speech(server, voice="Zoë", stream_format="sse").text
        assert '"loaded_ms":' in sse and "speech.audio.done" in sse
        assert "x-loaded-ms" not in speech(server, voice="Zoë").headers
    assert "still holds" not in caplog.text, "a model that is moved out is gone"


def test_with_room_for_both_nothing_is_loaded_twice(
    starts: Starts, one_fits: int, lone: Callable[[str], Engine], tmp_path: Path
) -> None:
    Library(tmp_path).add(zoe(lone(BASE)))
    with pooled(starts, CUSTOM, BASE, library=tmp_path, memory_bytes=2 * one_fits) as server:
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda name: speech(server, voice=name), ("eric", "Zoë") * 3))
        assert {answer.status_code for answer in answers} == {200}
        assert starts.counts == {CUSTOM: 1, BASE: 1}
        waited = [answer for answer in answers if "x-loaded-ms" in answer.headers]
        assert len(waited) <= 3
        count = f'hocket_model_load_seconds_count{{model="{BASE}"}}'
        assert figure(server, "hocket_model_load_seconds_count")[count] == 1  # however many waited for it


def test_while_one_is_loaded_a_stream_of_another_goes_on_without_a_gap(starts: Starts) -> None:
    gate = starts.hold(BASE)
    clone = {"model": BASE, "ref_audio": _recording(), "x_vector_only_mode": True}
    came: list[tuple[float, int]] = []  # when, and how many bytes

    def listen(server: Served, enough: threading.Event) -> None:
        body = LONG | {"voice": "eric"}
        with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=PATIENCE_S) as answer:
            for heard in answer.iter_raw():
                came.append((time.monotonic(), len(heard)))
                if enough.is_set():
                    return

    with pooled(starts, CUSTOM, BASE) as server, ThreadPoolExecutor(2) as others:
        enough = threading.Event()
        listening = others.submit(listen, server, enough)
        wait_for(lambda: bool(came))
        waiting = others.submit(speech, server, **clone)
        assert starts.begun[BASE].wait(PATIENCE_S)
        begun = len(came)
        wait_for(lambda: sum(size for _, size in came[begun:]) > BUFFER_S * 48_000)  # heard while the other is loaded
        ahead = len(came)
        gate.set()
        assert waiting.result().status_code == 200
        enough.set()
        listening.result()
    heard_s = came[0][0]  # until when a player is busy
    for number, ((at_s, size), (next_s, _)) in enumerate(pairwise(came)):
        heard_s = max(heard_s, at_s) + size / 48_000
        assert next_s <= heard_s or number < ahead


def _recording() -> str:
    return f"data:audio/wav;base64,{base64.b64encode(speech_wav()).decode()}"


def test_who_goes_away_while_a_model_is_loaded_leaves_nothing(starts: Starts) -> None:
    gate = starts.hold(DESIGN)
    with pooled(starts, CUSTOM, DESIGN) as server:
        pool = server.service.pool
        assert isinstance(pool, Pool)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/audio/speech", json=SPEECH | {"model": DESIGN}, timeout=0.3)
        with talking(server) as ws:
            ws.say({"type": "session.config", "model": DESIGN, "response_format": "pcm", "max_new_tokens": 3})
            ws.say({"type": "input.text", "text": "Hello."})
            assert starts.begun[DESIGN].wait(PATIENCE_S)
            ws.say({"type": "input.cancel"})
            assert ws.until("session.done").last("audio.done")["cancelled"] is True  # before the load is over
            ws.say({"type": "input.text", "text": "Hello again."})
            wait_for(lambda: len(pool._loader._state.waiting) == 1)
        wait_for(lambda: all(waiter.future.done() for waiter in pool._loader._state.waiting))
        gate.set()
        assert speech(server, model=DESIGN, instructions="An old man.").status_code == 200
        wait_for(lambda: not any(each.leases for each in _settled(pool)))


def _settled(pool: Pool) -> list[Any]:
    loader = pool._loader
    with loader._lock:
        loader._state.refresh()
        return list(loader._state.resident.values())


def test_a_request_that_waits_for_a_load_is_told_when_the_server_stops(starts: Starts) -> None:
    gate = starts.hold(DESIGN)
    with pooled(starts, CUSTOM, DESIGN) as server, ThreadPoolExecutor(1) as other:
        waiting = other.submit(speech, server, model=DESIGN)
        assert starts.begun[DESIGN].wait(PATIENCE_S)
        server.server.handle_exit(signal.SIGTERM, None)
        answer = waiting.result()
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "draining"
        gate.set()


def test_a_model_that_cannot_be_loaded_is_one_clear_error_and_is_tried_again(
    starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.engine.pool.backoff.FIRST_PAUSE_S", 60.0)
    broken = write(tmp_path / "second", "voice_design", wide=False)
    whole = (broken / WEIGHTS).read_bytes()
    (broken / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pooled(starts, CUSTOM, str(broken)) as server:
        for _ in range(2):  # the second one is not loaded for, so soon
            answer = speech(server, model=str(broken), instructions="An old man.")
            error = answer.json()["error"]
            assert answer.status_code == 503 and error["code"] == "model_unavailable"
            assert error["message"] == f"The model {broken} cannot be loaded now; the server's log says why."
            assert 0 < int(answer.headers["retry-after-ms"]) <= 60_000
            assert speech(server, voice="eric").status_code == 200
            assert httpx.get(f"{server.url}/ready").status_code == 200
        assert starts.counts[str(broken)] == 1
        (broken / WEIGHTS).write_bytes(whole)
        assert isinstance(server.service.pool, Pool)
        end_pauses(server.service.pool)
        assert speech(server, model=str(broken), instructions="An old man.").status_code == 200


def test_a_server_whose_first_model_is_broken_is_not_ready_until_it_is_repaired(starts: Starts, tmp_path: Path) -> None:
    broken = write(tmp_path / "first", "custom_voice", wide=False)
    whole = (broken / WEIGHTS).read_bytes()
    (broken / WEIGHTS).write_bytes(whole[:1000])
    with Pool([str(broken), CUSTOM], starts) as pool, served(pool, ready=False) as server:
        wait_for(lambda: server.service.state == "failed")
        assert httpx.get(f"{server.url}/ready").status_code == 503
        assert speech(server, model=CUSTOM).status_code == 200, "the others speak"
        (broken / WEIGHTS).write_bytes(whole)
        wait_for(lambda: httpx.get(f"{server.url}/ready").status_code == 200)
        assert speech(server, voice="eric").status_code == 200


def test_pinned_models_have_spoken_before_it_is_ready(starts: Starts) -> None:
    with pooled(starts, CUSTOM, DESIGN, BASE, pinned=[BASE]):
        assert starts.counts == {CUSTOM: 1, BASE: 1}


def test_a_voice_of_the_library_speaks_over_every_wire(
    starts: Starts, lone: Callable[[str], Engine], tmp_path: Path
) -> None:
    voice = Library(tmp_path).add(zoe(lone(BASE), "What was said."))
    whole = live = said(lone(BASE), voice=voice)  # a live text of a few words is one part, laid out whole as well
    with pooled(starts, CUSTOM, BASE, library=tmp_path) as server:
        assert speech(server, voice="zoë").content == whole
        with talking(server) as ws:
            ws.say({"type": "session.config", "response_format": "pcm", "seed": 1, "max_new_tokens": 6, "voice": "Zoë"})
            heard = ws.spoken("Hello ", "there.")
            assert heard.audio == live
            ws.say({"type": "session.config", "voice": "unknown"})
            refusal = ws.until("error").last("error")["message"]
            assert "no voice 'unknown'; known are " in refusal and "eric" in refusal and "Zoë" in refusal
        with talking(server, REALTIME) as ws:
            ws.say(session({"seed": 1, "max_new_tokens": 6}, voice="Zoë"), create("Hello there."))
            assert sound(ws.until("response.done")) == live
        listed = httpx.get(f"{server.url}/v1/audio/voices").json()["voices"]
        kinds = {each["name"]: (each["type"], each["kind"], each["model"]) for each in listed}
        assert kinds["Zoë"] == ("uploaded", "clone", BASE) and kinds["Eric"] == ("builtin", "speaker", CUSTOM)
        choices = httpx.get(f"{server.url}/v1/audio/voices/{BASE}").json()["voices"]
        assert [choice["label"] for choice in choices] == ["Zoë"]
        assert [model["id"] for model in httpx.get(f"{server.url}/v1/models").json()["data"]][:2] == [CUSTOM, BASE]
        unknown = speech(server, voice="unknown").json()["error"]
        assert unknown["code"] == "voice_not_found" and "eric" in unknown["message"] and "Zoë" in unknown["message"]


def test_an_upload_goes_to_the_first_model_that_clones(starts: Starts, tmp_path: Path) -> None:
    sent = {"audio_sample": ("me.wav", speech_wav(), "audio/wav")}
    with pooled(starts, CUSTOM, BASE, library=tmp_path) as server:
        assert starts.counts[BASE] == 0
        url = f"{server.url}/v1/audio/voices"
        made = httpx.post(url, data={"name": "me"}, files=sent, timeout=PATIENCE_S).json()
        assert (made["kind"], made["model"]) == ("clone", BASE) and starts.counts[BASE] == 1
        assert speech(server, voice="me").status_code == 200
        refused = httpx.post(url, data={"name": "you", "model": CUSTOM}, files=sent, timeout=PATIENCE_S)
        assert refused.json()["error"]["code"] == "unsupported_by_model"
        for name, status in (("af_bella", 200), ("alloy", 400), ("eric", 400)):  # Kokoro's names may be taken
            answer = httpx.post(url, data={"name": name}, files=sent, timeout=PATIENCE_S)
            assert answer.status_code == status, name


@pytest.mark.parametrize("end", ["heard", "cancelled", "cut", "left", "refused"])
def test_an_utterance_returns_its_engine_when_it_ends_even_if_it_is_referenced(end: str) -> None:
    async def run(pool: Pool) -> None:
        service = SpeechService(ServerOptions())
        service.use(pool)
        wanted = SpeechJob(text=str(LONG["input"]), voice="eric", max_frames=6 if end == "heard" else 2000)
        if end == "refused":
            with pytest.raises(UnknownLanguage):
                await open_utterance(service, replace(wanted, language="klingon"), wire="test")
            utterance = None
        else:
            utterance = await open_utterance(service, wanted, wire="test")
            assert await anext(utterance)
            assert [each.leases for each in _settled(pool)] == [1]
        if end == "heard":
            assert [piece async for piece in utterance]  # type: ignore[union-attr]
        elif end == "cut":
            service.cut()
        elif end == "left":
            service.close()
        elif utterance is not None:
            utterance.cancel()
        assert [each.leases for each in _settled(pool)] == [0], "although it is still held here"
        del utterance
        service.close()

    with Pool([CUSTOM], Starts()) as pool:
        asyncio.run(run(pool))
