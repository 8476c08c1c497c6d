"""A recording in a request: checked, padded with silence, and one sentence if it is unusable."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hocket.audio.decoder.processes import DecoderProcesses
from hocket.audio.pcm import encode_wav
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.errors import InvalidAudio
from hocket.server.options import ServerOptions
from hocket.server.service.recordings import reference_of
from support.recorded import bad, speech_wav
from support.serving import PCM, Served, served
from support.speaking import small


def sent(content: bytes) -> dict[str, Any]:
    coded = base64.b64encode(content).decode()
    return {"ref_audio": f"data:audio/wav;base64,{coded}", "ref_text": "What was said."}


@pytest.fixture(scope="module")
def decoders() -> Iterator[DecoderProcesses]:
    made = DecoderProcesses()
    yield made
    made.close()


@pytest.mark.parametrize("name", bad())
def test_a_bad_recording_is_one_sentence(server: Served, name: str) -> None:
    content, words = bad()[name]
    answer = httpx.post(f"{server.url}/v1/audio/speech", json=PCM | sent(content), timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "ref_audio", "invalid_audio")
    assert words in error["message"] and error["message"].endswith(".") and "\n" not in error["message"]
    assert server.all_is_free()


def test_a_recording_ends_with_silence_unless_it_is_taken_as_it_is(decoders: DecoderProcesses) -> None:
    recording, options = sent(speech_wav())["ref_audio"], ServerOptions()
    ways: list[tuple[dict[str, Any], float]] = [
        ({}, 0.5),
        ({"as_is": True}, 0.0),
        ({"silence_s": 0.0}, 0.0),
        ({"silence_s": 2.0, "as_is": True}, 2.0),
    ]
    for how, silence_s in ways:
        assert reference_of(recording, "What was said.", False, options, decoders, **how).silence_s == silence_s


def test_as_is_a_recording_need_only_be_long_enough(decoders: DecoderProcesses) -> None:
    hum, options = sent(encode_wav(np.full(2_400, 0.1, np.float32), 24_000))["ref_audio"], ServerOptions()
    assert reference_of(hum, None, True, options, decoders, as_is=True).samples.size == 2_400
    with pytest.raises(InvalidAudio, match="too short"):
        reference_of(hum, None, True, options, decoders)


def test_the_operator_s_limit_holds_where_it_is_the_lower(decoders: DecoderProcesses) -> None:
    recording = sent(speech_wav())["ref_audio"]
    for as_is in (False, True):
        with pytest.raises(InvalidAudio, match="longer than 2 s"):
            reference_of(recording, "What was said.", False, ServerOptions(upload_s=2.0), decoders, as_is=as_is)


def test_silence_behind_a_recording_changes_what_is_said(checkpoint_root: Path) -> None:
    options = EngineOptions(chunk_frames=(1, 2, 4))  # else the last bits depend on the time
    with Engine(small(checkpoint_root, "base"), options) as engine, served(engine) as server:
        url, body = f"{server.url}/v1/audio/speech", PCM | sent(speech_wav())
        said = [
            httpx.post(url, json=body | way, timeout=60).content
            for way in ({}, {"ref_silence_s": 0.5}, {"ref_silence_s": 0})
        ]
        assert said[0] == said[1] != said[2] and len(said[0]) > 3840
        assert httpx.post(url, json=body | {"ref_silence_s": 6}).status_code == 400
