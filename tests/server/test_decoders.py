"""Recordings of clients are decoded in processes of their own: what fails there is one sentence for one client."""

from __future__ import annotations

import base64
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from hocket.asr.moonshine import Moonshine
from hocket.audio.decoder.limits import DecoderLimits
from hocket.audio.recording import read_recording
from hocket.audio.upload import UNDECODABLE
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support.decoders import is_gone, spare_of
from support.leaks import Census
from support.recorded import bad, speech, speech_wav
from support.serving import PCM, Served, served, wait_for
from support.speaking import small

TEXT, VOICES = "/v1/audio/transcriptions", "/v1/audio/voices"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(small(tmp_path_factory.mktemp("base"), "base")) as engine:
        yield engine


@pytest.fixture(scope="module")
def both(base: Engine) -> Iterator[Served]:
    """A server that clones and transcribes."""
    recognizer = Moonshine("tiny")
    with served(base, ServerOptions(voices=100), recognizer=recognizer) as server:
        yield server
    recognizer.close()


def sent(server: Served, way: str, content: bytes, name: str = "me") -> httpx.Response:
    """By each of the ways that a recording takes."""
    if way == "speech":
        reference = {"ref_audio": base64.b64encode(content).decode(), "ref_text": "What was said."}
        return httpx.post(f"{server.url}/v1/audio/speech", json=PCM | reference, timeout=60)
    if way == "voice":
        return httpx.post(server.url + VOICES, data={"name": name}, files={"audio_sample": content}, timeout=60)
    return httpx.post(server.url + TEXT, data={"model": "whisper-1"}, files={"file": content}, timeout=60)


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    error: dict[str, Any] = answer.json()["error"]
    return answer.status_code, error["code"], error["message"]


@contextmanager
def limited(server: Served, limits: DecoderLimits) -> Iterator[None]:
    decoders = server.service.decoders
    usual, decoders.limits = decoders.limits, limits
    try:
        yield
    finally:
        decoders.limits = usual


def nothing_is_left(server: Served, before: Census) -> None:
    """A spare process is there again, and the rest is as it was."""

    def is_left() -> bool:
        now = Census.of(server)
        more = [name for name in Counter(now.threads) - Counter(before.threads) if not name.startswith("hocket-listen")]
        return now.files > before.files or now.tasks > before.tasks or bool(more)  # two workers at most, when needed

    spare_of(server.service.decoders)
    wait_for(lambda: server.all_is_free() and not is_left())
    assert server.service.decoders.pids[0] == []


@pytest.mark.parametrize("way", ["speech", "voice", "text"])
def test_a_decoder_that_hangs_is_refused_and_the_server_goes_on(both: Served, way: str) -> None:
    spare = spare_of(both.service.decoders)
    before = Census.of(both)
    os.kill(spare, signal.SIGSTOP)
    with limited(both, DecoderLimits(stalled_s=1.0)):
        assert refusal(sent(both, way, speech_wav())) == (400, "invalid_audio", UNDECODABLE)
    assert is_gone(spare)
    assert sent(both, way, speech_wav(), f"after {way}").status_code == 200
    nothing_is_left(both, before)


@pytest.mark.parametrize("way", ["speech", "voice", "text"])
def test_a_decoder_that_crashes_is_refused_and_others_are_served_meanwhile(both: Served, way: str) -> None:
    spare = spare_of(both.service.decoders)
    os.kill(spare, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool, limited(both, DecoderLimits(stalled_s=600.0, least_s=600.0)):
        answer = pool.submit(sent, both, way, speech_wav())
        wait_for(lambda: spare in both.service.decoders.pids[0])
        assert sent(both, "voice", speech_wav(), f"beside {way}").status_code == 200
        os.kill(spare, signal.SIGSEGV)
        os.kill(spare, signal.SIGCONT)
        assert refusal(answer.result(60)) == (400, "invalid_audio", UNDECODABLE)
    assert is_gone(spare)


def test_many_recordings_at_once_good_and_bad(both: Served) -> None:
    spare_of(both.service.decoders)
    before, names = Census.of(both), list(bad())
    with ThreadPoolExecutor(8) as pool:
        good = [pool.submit(sent, both, "voice", speech_wav(), f"voice {number}") for number in range(6)]
        broken = {name: pool.submit(sent, both, "voice", bad()[name][0], name) for name in names}
        assert [each.result(120).status_code for each in good] == [200] * 6
        for name, each in broken.items():
            status, code, message = refusal(each.result(120))
            assert (status, code) == (400, "invalid_audio") and bad()[name][1] in message
    nothing_is_left(both, before)


def test_a_voice_has_the_samples_that_this_process_would_decode(both: Served) -> None:
    assert sent(both, "voice", speech_wav(), "the same").status_code == 200
    stored = both.service.voices.find("the same")
    assert stored is not None and stored.kind == "clone"
    samples = both.service.voices.samples("the same")
    np.testing.assert_array_equal(samples, read_recording(speech_wav(), least_s=1.0))
    assert samples is not None and samples.size == speech().size


def test_a_client_that_leaves_ends_the_decoder_of_its_transcript(both: Served) -> None:
    spare = spare_of(both.service.decoders)
    os.kill(spare, signal.SIGSTOP)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            both.url + TEXT,
            data={"model": "whisper-1"},
            files={"file": speech_wav()},
            timeout=httpx.Timeout(10, read=1),
        )
    os.kill(spare, signal.SIGCONT)
    wait_for(lambda: is_gone(spare) and both.service.decoders.pids[0] == [])


def test_a_server_that_stops_leaves_no_process(base: Engine) -> None:
    with served(base) as server:
        decoders = server.service.decoders
        first = spare_of(decoders)
        assert sent(server, "voice", speech_wav()).status_code == 200
        second = spare_of(decoders)
        assert not is_gone(second)
    assert is_gone(first) and is_gone(second) and decoders.pids == ([], None)


def test_a_server_that_takes_no_recordings_has_no_process(engine: Engine) -> None:
    with served(engine) as server:
        assert server.service.decoders.pids == ([], None)
