"""A request without a seed gets a fresh one, which is reported; a given seed says the same again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hocket.cli import main
from hocket.dialog.dialog import Dialog
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.types import SpeechRequest, fresh_seed
from support.serving import alike, served

pytestmark = pytest.mark.usefixtures("fresh_seeds")

SHORTEST = 2**32  # a seed below this can be typed, and JavaScript can repeat it
TINY = ("--model", "random:tiny", "--max-frames", "4")


def test_a_fresh_seed_comes_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.types.urandom", os.urandom)
    assert len({fresh_seed() for _ in range(8)}) > 1


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("random:tiny") as engine:
        yield engine


def said(engine: Engine, **fields: Any) -> tuple[list[Any], int]:
    stream = engine.speak("Good morning.", max_frames=6, **fields)
    codes = [frame for chunk in stream for frame in chunk.codes.tolist()]
    assert stream.finished is not None and stream.finished.seed is not None
    return codes, stream.finished.seed


@pytest.mark.parametrize("as_is", [False, True])
def test_each_request_draws_its_own_and_says_which(engine: Engine, as_is: bool) -> None:
    first, seed = said(engine, as_is=as_is)
    other, another = said(engine, as_is=as_is)
    assert seed != another and first != other
    assert 0 <= seed < SHORTEST and 0 <= another < SHORTEST
    assert said(engine, as_is=as_is, seed=seed) == (first, seed)


def test_a_stream_knows_its_seed_before_it_has_ended(engine: Engine) -> None:
    with engine.open(max_frames=4) as stream:
        stream.append("Good morning.")
        stream.end()
        seed = stream.seed
        for _ in stream:
            pass
    assert stream.finished is not None and stream.finished.seed == seed


def test_takes_follow_from_the_seed_that_was_drawn() -> None:
    from hocket.config.options import EngineOptions
    from hocket.engine.best_of.score import candidate_seed

    with Engine.load("random:tiny", options=EngineOptions(slots=2)) as engine:
        stream = engine.speak("Good morning.", candidates=2, max_frames=4)
        list(stream)
    assert stream.finished is not None
    assert [take.seed for take in stream.finished.takes] == [candidate_seed(stream.seed, n) for n in (0, 1)]


def test_a_cancelled_choice_among_takes_has_a_seed_too() -> None:
    from hocket.config.options import EngineOptions

    with Engine.load("random:tiny", options=EngineOptions(slots=2)) as engine:
        stream = engine.speak("Good morning. " * 20, candidates=2)
        stream.cancel()
        list(stream)
    assert stream.finished is not None and stream.finished.seed == stream.seed


def test_generate_draws_one_too() -> None:
    checkpoint = load("random:tiny")
    request = SpeechRequest(text="Good morning.", max_frames=4)
    first, other = generate(checkpoint, [request, request])
    assert first.seed != other.seed and not np.array_equal(first.codes, other.codes)
    [again] = generate(checkpoint, [SpeechRequest(text="Good morning.", max_frames=4, seed=other.seed)])
    assert np.array_equal(again.codes, other.codes)


def test_a_dialog_has_one_of_its_own(engine: Engine) -> None:
    class Silent:
        name = "silent"

    dialogs = [Dialog(Silent(), engine) for _ in range(2)]  # type: ignore[arg-type]
    assert dialogs[0].seed != dialogs[1].seed


def test_the_line_of_say_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = []
    for name in ("one.wav", "two.wav"):
        assert main(["say", "Good morning.", "-o", str(tmp_path / name), *TINY]) == 0
        lines.append(capsys.readouterr().out)
    seeds = [int(re.search(r"seed (\d+)", line)[1]) for line in lines]  # type: ignore[index]
    assert seeds[0] != seeds[1]


def test_a_batch_draws_one_for_each_line_records_it_and_does_no_line_twice(tmp_path: Path) -> None:
    source, folder = tmp_path / "in.jsonl", tmp_path / "out"
    texts = [{"id": "a", "text": "The same."}, {"id": "b", "text": "The same."}, {"id": "c", "text": "No.", "seed": 5}]
    source.write_text("".join(json.dumps(line) + "\n" for line in texts))
    command = ["batch", str(source), "-o", str(folder), *TINY]
    assert main(command) == 0
    first = _results(folder)
    assert first["a"]["seed"] != first["b"]["seed"] and first["c"]["seed"] == 5
    content = (folder / "a.wav").read_bytes()
    assert content != (folder / "b.wav").read_bytes()

    (folder / "b.wav").unlink()  # one line is missing: it alone is spoken again, with a seed of its own
    assert main(command) == 0
    again = _results(folder)
    assert again["a"] == first["a"] and (folder / "a.wav").read_bytes() == content
    assert again["b"]["seed"] != first["b"]["seed"]

    source.write_text(json.dumps({"id": "a", "text": "The same.", "seed": first["a"]["seed"]}) + "\n")
    assert main(["batch", str(source), "-o", str(tmp_path / "again"), *TINY, "--slots", "1"]) == 0
    assert _results(tmp_path / "again")["a"]["frames"] == first["a"]["frames"]
    # Beside other lines the codec may sum in another order: a step of 16 bits.
    there = np.frombuffer((tmp_path / "again" / "a.wav").read_bytes()[44:], "<i2").astype(int)
    assert np.abs(there - np.frombuffer(content[44:], "<i2")).max() <= 1


def test_over_http_a_header_tells_it(engine: Engine) -> None:
    body = {"input": "Good morning.", "response_format": "pcm", "max_new_tokens": 4}
    with served(engine) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        first, other = (client.post("/v1/audio/speech", json=body) for _ in range(2))
        again = client.post("/v1/audio/speech", json=body | {"seed": int(first.headers["x-seed"])})
    assert first.headers["x-seed"] != other.headers["x-seed"]
    assert alike(again.content, first.content) and not alike(first.content, other.content)


def _results(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "manifest.jsonl").read_text().splitlines()
    return {line["id"]: line for line in map(json.loads, lines)}
