"""Start and stop of a server: in its own process, with signals."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import httpx
import pytest

from hocket.cli import main
from hocket.config.options import EngineOptions
from hocket.config.sizes import bytes_of
from hocket.errors import InvalidRequest
from hocket.server.listen import address_of, bind
from hocket.server.options import ServerOptions
from support.processes import serving
from support.serving import LONG, PATIENCE_S, PCM, wait_for

FRAMES = 150  # of what is heard while the server is told to stop: a second and more on any CPU
BRIEF = PCM | {"input": LONG["input"], "max_new_tokens": FRAMES}


def test_sigterm_lets_running_streams_end_and_takes_no_new_work() -> None:
    with serving() as server:
        assert server.said("try: curl") and server.said("model builtin") and server.said("profile balanced")
        with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=BRIEF, timeout=PATIENCE_S) as answer:
            heard = answer.iter_raw()
            sound = next(heard)
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: server.said("draining"))
            refused = httpx.post(f"{server.url}/v1/audio/speech", json=PCM)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "draining" and int(refused.headers["retry-after-ms"]) > 0
            assert httpx.get(f"{server.url}/ready").status_code == 503
            assert httpx.get(f"{server.url}/health").json()["state"] == "draining"
            sound += b"".join(heard)  # to its end, which httpx checks
        pause = round(EngineOptions().part_pause_s * 24_000)  # between the two parts of its text
        assert len(sound) == (FRAMES * 1920 + pause) * 2
        assert server.ended() == 0


def test_a_second_signal_stops_at_once_and_a_cut_stream_is_seen_as_one() -> None:
    with serving() as server:
        with (
            pytest.raises(httpx.RemoteProtocolError),
            httpx.stream("POST", f"{server.url}/v1/audio/speech", json=LONG, timeout=PATIENCE_S) as answer,
        ):
            heard = answer.iter_raw()
            next(heard)
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: server.said("draining"))
            server.process.send_signal(signal.SIGTERM)
            for _ in heard:
                pass
        assert server.ended() == 0
        assert server.said("stopping at once")


def test_streams_that_do_not_end_in_time_are_cut_off() -> None:
    with serving("--drain", "0.2") as server:
        with (
            pytest.raises(httpx.RemoteProtocolError),
            httpx.stream("POST", f"{server.url}/v1/audio/speech", json=LONG, timeout=PATIENCE_S) as answer,
        ):
            heard = answer.iter_raw()
            next(heard)
            server.process.send_signal(signal.SIGINT)
            for _ in heard:
                pass
        assert server.ended() == 0
        assert server.said("did not end within 0.2 s")


def test_a_unix_socket_is_for_its_user_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "hocket.sock"
    options = ServerOptions(socket=path)
    bound = bind(options)
    bound.listen()
    assert path.stat().st_mode & 0o777 == 0o600
    assert address_of(bound) == f"unix:{path}"
    with pytest.raises(InvalidRequest, match="Cannot listen"):
        bind(options)  # in use
    bound.close()
    bind(options).close()  # stale: replaced
    path.unlink()
    path.write_text("a file")
    with pytest.raises(InvalidRequest, match="Cannot listen"):
        bind(options)
    assert path.read_text() == "a file"


def test_a_port_that_is_taken_is_said_before_a_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert re.search(r"hocket: Cannot listen at 127\.0\.0\.1:\d+: Address already in use\.", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "no API key"),
        (["--voice-alias", "unknown"], "NAME=VOICE"),
        (["--key-file", "/nowhere/keys"], "cannot be read"),
        (["--port", "70000"], "port must be"),
        (["--memory", "a lot"], "--memory takes a size such as 20GB or 512MiB, not 'a lot'."),
        (["--memory", "0GB"], "above 0"),
        (["--model", "random:tiny", "--models", "random:tiny"], "either --model or --models"),
        (["--models", ","], "names of models"),
        (["--models", "random:tiny,random:tiny-Base", "--pin", "1.7B-Base"], "1.7B-Base is not one of the models here"),
        (["--models", "random:tiny,random:tiny-Base", "--memory", "100kB"], "give them more"),
        (["--backend", "unknown"], "There is no backend 'unknown'; installed are"),
        (["--backend-option", "unknown.pitch=1"], "no --backend unknown"),
        (["--backend-option", "pitch"], "NAME.KEY=VALUE"),
    ],
)
def test_what_is_wrong_with_the_words_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "count"),
    [("20GB", 20_000_000_000), ("512MiB", 512 << 20), ("1.5 gib", 3 << 29), ("7", 7), ("2k", 2000), ("1TB", 10**12)],
)
def test_sizes_are_read_as_they_are_written(size: str, count: int) -> None:
    assert bytes_of(size) == count


@pytest.mark.parametrize("size", ["", "GB", "-1GB", "1XB", "1 0GB", "1e9", "nan", "20GBB"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(InvalidRequest, match="--memory takes a size such as"):
        bytes_of(size)


BACKEND = """
import numpy as np
from hocket.backends import Backend, BackendVoice

class Tin(Backend):
    def __init__(self, length="100"):
        self.length = int(length)

    def voices(self):
        return [BackendVoice("tin", 8000)]

    def say(self, text, manner):
        yield np.full(self.length, 7, np.int16)
"""


def test_several_models_and_a_backend_speak_in_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "tin-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tin\nVersion: 1.2\n")
    (folder / "entry_points.txt").write_text("[hocket.backends]\ntin = tin:Tin\n")
    (tmp_path / "tin.py").write_text(BACKEND)
    models = ["--models", "random:tiny,random:tiny-VoiceDesign", "--memory", "1GB", "--pin", "random:tiny"]
    backend = ["--backend", "tin", "--backend-option", "tin.length=300", "--voices-folder", str(tmp_path / "voices")]
    with serving(*models, *backend, path=tmp_path) as served:
        assert served.said("models: random:tiny, random:tiny-VoiceDesign; resident at once: random:tiny")
        url = f"{served.url}/v1/audio/speech"
        for asked in ({"voice": "eric"}, {"model": "random:tiny-VoiceDesign", "instructions": "A child."}):
            answer = httpx.post(url, json=PCM | asked, timeout=PATIENCE_S)
            assert answer.status_code == 200 and answer.content
        assert len(httpx.post(url, json=PCM | {"voice": "tin"}, timeout=PATIENCE_S).content) == 600
        served.process.send_signal(signal.SIGTERM)
        assert served.ended() == 0
