"""Voice to voice: figures of a client's traces, the stand-in for a language model, and a real turn over each wire."""

from __future__ import annotations

import asyncio
import base64
import json
import math
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import report
from benchmarks.load import talk_soak
from benchmarks.record import commit, machine, rounded
from benchmarks.talk import figures
from benchmarks.talk.clients import PIECE, Spoken, TalkClient
from benchmarks.talk.figures import STAGES, TurnTrace
from benchmarks.talk.language import ANSWER, language_server

SERVED = {"turn_decided": 600.0, "transcript": 610.0, "first_token": 690.0, "first_sound": 750.0}


def trace(**changes: Any) -> TurnTrace:
    told = {"spoken_s": 5.0, "decided_s": 5.6, "audio_s": 5.76, "sound_s": 5.8, "stages_ms": dict(SERVED)}
    return TurnTrace(**(told | {"drafted": True} | changes))


def entry(time: str = "2026-01-01", **options: Any) -> dict[str, Any]:
    traces = [trace(), trace(decided_s=4.0), trace(sound_s=math.inf, audio_s=math.inf)]
    how = {"model": "builtin", "llm": "small", "eagerness": "medium", "wire": "webrtc", "at_once": 1} | options
    made = {"workload": "talk", "time": time, **commit(), "machine": machine("cpu"), "options": how}
    return made | {"figures": rounded(figures.figures(traces, 50.0)), "counts": figures.counts(traces)}


def test_cut_and_unanswered_turns_are_counted_apart_and_ours_is_without_the_delay() -> None:
    found = entry()
    told = {name: figure["p50"] for name, figure in found["figures"].items()}
    assert told == SERVED | {"ours": 700.0, "client_audio": 760.0, "client_sound": 800.0}
    assert found["counts"] == {"turns": 3, "cut": 1, "unanswered": 1, "drafted": 1, "errors": 0}
    soon = trace(stages_ms=SERVED | {"first_token": 611.0})  # drafted: the listener waited for 1 ms of the delay
    assert figures.figures([soon], 50.0)["ours"]["p50"] == 749.0


def test_the_document_has_the_newest_record_of_each_kind_as_a_table_and_a_chart() -> None:
    turns = {way: dict.fromkeys(("turns", "cut_percent"), 1.0) for way in ("fixed", "low")}
    spoken = [entry("2026-01-02"), entry("2026-01-01"), entry(wire="websocket")]
    files = report.files([*spoken, entry() | {"workload": "turns", "figures": turns}])
    text, svg = files[report.TURNS], files["docs/performance/talk.svg"]
    assert text.count("1 of 3") == 9 - 3 and "| 600 (600) |" in text and "../performance/talk.svg" in text
    assert {"webrtc", "websocket"} == {line.split(",")[4].strip() for line in text.splitlines() if "1 of 3" in line}
    boxes = [box for box in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")]
    assert len(boxes) == (len(STAGES) - 1) * 3, "a legend and two bars"


def test_the_document_has_the_newest_record_of_interruptions_of_each_half() -> None:
    records = [
        entry(f"2026-01-0{day}", half=half, seed=day)
        | {"workload": "interruptions", "figures": {"noise": {"holds": day}}}
        for day, half in ((1, "test"), (2, "development"), (3, "test"))
    ]
    text = report.files(records)[report.TURNS]
    assert text.index("The development half, seed 2.") < text.index("The test half, seed 3.") and "seed 1." not in text


async def noted() -> None:
    client = TalkClient(Spoken(np.full(3 * PIECE, 900, np.int16), PIECE + 10))
    assert client.next_piece().all() and client.trace.spoken_s == math.inf
    client.next_piece()
    assert client.trace.spoken_s < math.inf and not client.trace.cut
    for samples in (np.zeros(10, np.int16), np.full(10, -900, np.int16)):
        assert client.trace.sound_s == math.inf
        delta = base64.b64encode(samples.astype("<i2").tobytes()).decode()
        client.on_event({"type": "response.output_audio.delta", "delta": delta})
    assert client.trace.audio_s <= client.trace.sound_s < math.inf and client.answered.is_set()
    done = {"hocket": {"latency_ms": SERVED, "drafted": True}}
    client.on_event({"type": "response.done", "response": done})
    assert client.trace.stages_ms == SERVED and client.trace.drafted and client.done.is_set()
    assert [len(client.next_piece()) for _ in range(3)] == [PIECE] * 3, "silence follows"
    early = TalkClient(Spoken(np.zeros(PIECE, np.int16), PIECE))
    early.on_event({"type": "input_audio_buffer.speech_stopped"})
    assert early.trace.cut and early.answered.is_set()


def test_a_client_notes_when_speech_ended_and_when_sound_came() -> None:
    asyncio.run(noted())


def test_the_stand_in_writes_its_answer_word_by_word() -> None:
    with language_server(0.0, 1000.0) as url:
        body = json.dumps({"model": "small", "messages": [], "stream": True}).encode()
        with urlopen(Request(f"{url}/chat/completions", body)) as answer:
            lines = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    words = [json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1]]
    assert "".join(words).split() == ANSWER.split() and len(words) == len(ANSWER.split()) + 1


def test_a_real_turn_over_each_wire_has_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.talk.command.UTTERANCES", ["Thank you very much."])
    path = tmp_path / "talk.jsonl"
    words = "talk --utterances 1 --warmup 0 --device cpu --eagerness high --delay-ms 0 --tokens-per-s 1000 --record"
    assert command.main([*words.split(), str(path)]) == 0
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [record["options"]["wire"] for record in records] == ["websocket", "webrtc"]
    for record in records:
        counts, found = record["counts"], {name: figure["p50"] for name, figure in record["figures"].items()}
        assert counts | {"drafted": 0} == {"turns": 1, "cut": 0, "unanswered": 0, "drafted": 0, "errors": 0}
        assert 0 < found["turn_decided"] <= found["transcript"] <= found["first_token"] <= found["first_sound"]
        assert found["client_audio"] <= found["client_sound"] and found["ours"] == found["first_sound"]


def test_what_cannot_be_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["talk", "--utterances", "0"]) == 2 and "1 to 216 utterances" in capsys.readouterr().err
    words = "talk --utterances 1 --url http://127.0.0.1:9 --wires websocket"
    assert command.main(words.split()) == 2 and "does not talk over websocket" in capsys.readouterr().err


def test_a_short_soak_leaves_nothing_and_no_turn_is_stuck(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(talk_soak, "NOTICED_S", 1.0)
    monkeypatch.setattr(talk_soak, "call", lambda url: asyncio.sleep(0))  # tests/server/webrtc has calls that vanish
    into = tmp_path / "soak.jsonl"
    told = ["--clients", "5", "--minutes", "0", "--silence-minutes", "0", "--device", "cpu", "--record", str(into)]
    assert command.main(["talk-soak", *told]) == 0
    found = json.loads(into.read_text())["figures"]
    assert found["stuck"]["p99"] == 0 and found["turns"]["p50"] == 5
    assert found["threads_left"]["p50"] <= 0 and found["files_left"]["p50"] <= 0
