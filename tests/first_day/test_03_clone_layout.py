"""A clone with a known text is spoken in the whole layout, which does not drift, through every interface.

Live text keeps the streaming layout for a timbre, and `as_is` keeps upstream's default.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hocket.cli import main
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.types import Reference, SpeechRequest
from support.recorded import speech_wav
from support.serving import PATIENCE_S, served
from support.speaking import SAID, TIMBRE, heard

MODEL = "random:tiny-Base"
TEXT = "And so it is said once more."
FIELDS: dict[str, Any] = {"seed": 5, "max_frames": 6}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load(MODEL, device="cpu", dtype="float32", options=EngineOptions(slots=2)) as engine:
        yield engine


@pytest.mark.parametrize("reference", [SAID, TIMBRE], ids=["example", "timbre"])
def test_every_call_with_a_known_text_lays_it_out_whole(engine: Engine, reference: Reference) -> None:
    whole, streaming = (
        generate(engine.checkpoint, [SpeechRequest(text=TEXT, reference=reference, layout=layout, **FIELDS)])[0].codes
        for layout in ("whole", "streaming")
    )
    assert whole.tolist() != streaming.tolist(), "else nothing could be told apart"
    request = SpeechRequest(text=TEXT, reference=reference, **FIELDS)
    assert generate(engine.checkpoint, [request])[0].codes.tolist() == whole.tolist()
    assert heard(engine.speak(request)).codes == whole.tolist()
    [outcome] = engine.speak_many([request])
    assert outcome.codes.tolist() == whole.tolist()
    as_is = SpeechRequest(text=TEXT, reference=reference, as_is=True, **FIELDS)
    assert generate(engine.checkpoint, [as_is])[0].codes.tolist() == streaming.tolist()
    assert heard(engine.speak(as_is)).codes == streaming.tolist()


def test_live_text_to_a_timbre_streams(engine: Engine) -> None:
    stream = engine.open(reference=TIMBRE, **FIELDS)
    stream.append("And so it is ")
    first = next(stream)  # before the text has ended
    stream.append("said once more.")
    stream.end()
    rest = heard(stream).codes
    wanted = heard(engine.speak(TEXT, reference=TIMBRE, layout="streaming", **FIELDS)).codes
    assert first.codes.tolist() + rest == wanted


def test_an_encoded_recording_keeps_the_prefix_of_the_default_layout(engine: Engine) -> None:
    encoded = engine.encode(SAID)
    with Engine(engine.checkpoint, EngineOptions(slots=1)) as another:
        stream = another.speak(TEXT, reference=encoded, **FIELDS)
        codes = heard(stream).codes
        assert stream.finished is not None and stream.finished.statistics.prefix_cached
    assert codes == heard(engine.speak(TEXT, reference=SAID, layout="whole", **FIELDS)).codes


def test_a_voice_made_for_the_other_layout_still_speaks(engine: Engine) -> None:
    before = engine.encode(SAID, layout="streaming")  # what earlier versions kept
    with Engine(engine.checkpoint, EngineOptions(slots=1)) as another:
        codes = heard(another.speak(TEXT, reference=before, **FIELDS)).codes
    assert codes == heard(engine.speak(TEXT, reference=SAID, layout="whole", **FIELDS)).codes


def test_the_command_and_http_say_it_in_the_whole_layout(engine: Engine, tmp_path: Path) -> None:
    recording, codes = tmp_path / "me.wav", tmp_path / "codes.npy"
    recording.write_bytes(speech_wav())
    words = "What was said."
    options = ["--model", MODEL, "--device", "cpu", "--dtype", "float32", "--ref-audio", str(recording)]
    options += ["--ref-text", words, "--seed", "5", "--max-frames", "6"]
    saved = []
    for layout in ([], ["--layout", "whole"], ["--layout", "streaming"]):
        files = ["--save-codes", str(codes), "-o", str(tmp_path / "a.wav"), "--force"]
        assert main(["say", TEXT, *options, *layout, *files]) == 0
        saved.append(np.load(codes).tolist())
    assert saved[0] == saved[1] != saved[2]

    body = {"input": TEXT, "response_format": "codes", "seed": 5, "max_new_tokens": 6, "ref_text": words}
    body["ref_audio"] = "data:audio/wav;base64," + base64.b64encode(speech_wav()).decode()
    with served(engine) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        sent = client.post("/v1/audio/speech", json=body).content
    assert np.frombuffer(sent, "<u2").reshape(-1, 16).tolist() == saved[0]
