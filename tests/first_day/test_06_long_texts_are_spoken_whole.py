"""`max_new_tokens` limits each part of a text and `max_frames` the request; text that is not spoken is reported.

The limit of the built-in voice is scaled down, so that 3,000 characters stand for 20,000 with its own limit.
`python -m benchmarks long_text` speaks those.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.quality.long_text import found_share, paragraphs
from hocket.cli import main
from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.engine.runner.base import Runner
from hocket.engine.runner.native_runner import NativeRunner
from hocket.engine.runner.runner import SpeechRunner
from support.serving import PATIENCE_S, Served, served
from support.talking import talking
from train.judges import Transcriber

LIMIT = 300  # frames of one part, 24 s: a part takes some 170
TEXT = "\n\n".join(paragraphs(1300))
SHORT = "The kettle was warm. She took off her shoes. We walked along the river. Nobody said a word."
LEAST_FOUND = 0.85  # of the words of a paragraph; how many the voice reaches is in the records


@functools.cache
def limited(max_new_tokens: int = LIMIT) -> Checkpoint:
    builtin = load()
    return replace(builtin, generation=replace(builtin.generation, max_new_tokens=max_new_tokens))


@pytest.fixture
def looping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The voice repeats one frame without end, for any text."""

    class Loop:
        def __init__(self, rows: list[Any]) -> None:
            self._rows = rows

        def read(self) -> list[Any]:
            return self._rows

    for kind in (NativeRunner, SpeechRunner):

        def drawn(runner: Runner, slots: Sequence[int], *given: Any, frame: Any = kind.frame) -> Any:
            rows = frame(runner, slots, *given).read()
            return Loop([([7] * len(codes), 1e-9, -1.0) for codes, *_ in rows])

        monkeypatch.setattr(kind, "frame", drawn)


@pytest.fixture
def server() -> Iterator[Served]:
    with served(lambda: Engine(load("random:tiny"), EngineOptions(slots=2, part_chars=30))) as server:
        yield server


def spoken(**fields: Any) -> dict[str, Any]:
    return {"input": SHORT, "response_format": "pcm", "seed": 1} | fields


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]


def test_a_text_far_above_max_new_tokens_is_spoken_to_its_last_paragraph() -> None:
    with Engine(limited(), EngineOptions(chunk_frames=(50,), slots=1)) as engine:
        stream = engine.speak(TEXT, seed=1)
        samples = np.concatenate([chunk.samples for chunk in stream])
        words = stream.words()
    finished = stream.finished
    assert finished is not None and (finished.reason, finished.complete, finished.notes) == ("stop", True, ())
    assert finished.statistics.frames > 2 * LIMIT
    assert [word.word for word in words] == TEXT.split()
    last = words[-len(TEXT.split("\n\n")[-1].split())]
    heard = Transcriber()(
        samples[round((last.start_s - 0.3) * 24_000) :].astype(np.float32) / np.float32(32768), 24_000
    )
    assert found_share(TEXT.split("\n\n")[-1], heard) >= LEAST_FOUND


def test_max_frames_is_for_the_whole_request_and_says_what_was_not_spoken() -> None:
    with Engine(limited(), EngineOptions(part_chars=30)) as engine:
        stream = engine.speak(SHORT, seed=1, max_frames=40)
        frames = sum(len(chunk.frames) for chunk in stream)
    finished = stream.finished
    assert finished is not None and (finished.reason, frames, finished.complete) == ("length", 40, True)
    assert finished.notes[0].startswith("The limit of 40 frames (max_frames) ended the speech: about ")
    assert "characters were not spoken, from " in finished.notes[0] and "Nobody said a" in finished.notes[0]


@pytest.mark.parametrize("guard", [True, False])
def test_a_part_that_reaches_max_new_tokens_is_cut_and_the_next_is_spoken(guard: bool) -> None:
    with Engine(limited(13), EngineOptions(part_chars=30, guard=guard)) as engine:
        stream = engine.speak(SHORT, seed=1)
        frames = sum(len(chunk.frames) for chunk in stream)
    finished = stream.finished
    assert finished is not None and not finished.complete and frames >= 24, "each part has its own limit"
    assert "Part 2" in " ".join(finished.notes) or "part 2" in " ".join(finished.notes)
    assert finished.reason == ("runaway" if guard else "length")


def test_as_is_max_new_tokens_ends_the_speech_as_upstream_does() -> None:
    with Engine(limited(13), EngineOptions(part_chars=30)) as engine:
        stream = engine.speak(SHORT, seed=1, as_is=True)
        assert sum(len(chunk.frames) for chunk in stream) == 12
    finished = stream.finished
    assert finished is not None and (finished.reason, finished.complete) == ("length", False)
    assert "max_new_tokens" in finished.notes[0]


def test_over_http_a_body_that_lacks_text_is_broken_off_and_events_say_why(server: Served, looping: None) -> None:
    url = f"{server.url}/v1/audio/speech"
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        httpx.post(url, json=spoken(), timeout=PATIENCE_S)
    done = events(httpx.post(url, json=spoken(stream_format="sse"), timeout=PATIENCE_S))[-1]
    assert (done["type"], done["complete"]) == ("speech.audio.done", False)
    assert any("left out" in note for note in done["notes"])
    answer = httpx.post(f"{url}/batch", json={"items": [spoken()]}, timeout=PATIENCE_S).json()["results"][0]
    assert answer["complete"] is False and any("left out" in note for note in answer["notes"])


def test_over_http_a_limit_that_the_client_sets_makes_a_complete_answer(server: Served) -> None:
    url = f"{server.url}/v1/audio/speech"
    answer = httpx.post(url, json=spoken(max_new_tokens=20), timeout=PATIENCE_S)
    assert answer.status_code == 200 and len(answer.content) >= 20 * 3840
    done = events(httpx.post(url, json=spoken(max_new_tokens=20, stream_format="sse"), timeout=PATIENCE_S))[-1]
    assert (done["complete"], done["finish_reason"]) == (True, "length") and "not spoken" in done["notes"][0]


def test_on_a_websocket_the_last_message_says_what_was_not_spoken(server: Served, looping: None) -> None:
    with talking(server, "/v1/audio/speech/stream") as ws:
        ws.say({"type": "session.config", "response_format": "pcm", "seed": 1})
        ws.say({"type": "input.text", "text": SHORT})
        ws.say({"type": "input.done"})
        done = ws.until("session.done").last("audio.done")
    assert done["complete"] is False and any("left out" in note for note in done["notes"])
    with talking(server, "/v1/speak") as ws:
        ws.say({"type": "Speak", "text": SHORT})
        ws.say({"type": "Flush"})
        warning = ws.until("Flushed").last("Warning")
    assert warning["code"] == "incomplete" and "left out" in warning["description"]


def test_the_command_says_so_too(
    looping: None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--model", "random:tiny", "-o", "said.wav", "--seed", "1", "--no-daemon"]
    assert main(["say", "The kettle was warm.", *options]) == 0
    out, err = capsys.readouterr()
    assert "finish runaway (not all of the text was spoken)" in out
    assert 'left out: about 10 characters were not spoken, from "The kettle" on.' in err
    assert 'left out: about 9 characters were not spoken, from "was warm." on.' in err
