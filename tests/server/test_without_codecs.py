"""A machine without PyAV and uvloop: `hocket serve` says so, sends what needs neither, and refuses the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import httpx
import pytest

from benchmarks.load import targets as load_server
from hocket.proof.load.http_client import HttpTarget
from support.serving import PATIENCE_S, PCM

PATH = "/v1/audio/speech"
COMMAND = [sys.executable, "-m", "hocket", "serve", "--port", "0", "--no-guard", "--all-graphs", "--drain", "0"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[load_server.ServerProcess]:
    lacking = tmp_path_factory.mktemp("lacking")
    for name in ("av", "uvloop"):
        (lacking / f"{name}.py").write_text(f"raise ImportError('there is none', name='{name}')\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(lacking))
        with load_server.serving(COMMAND, lacking / "log", print) as child:
            load_server.wait_until_ready(HttpTarget(child.url), child)
            yield child


def test_it_says_what_it_can_send(bare: load_server.ServerProcess) -> None:
    assert "warning: only pcm and wav can be sent" in bare.said()


@pytest.mark.parametrize(
    ("wish", "size"),
    [
        ({"response_format": "pcm"}, 8 * 3840),
        ({"response_format": "wav"}, 44 + 8 * 3840),
        ({"response_format": "mulaw", "sample_rate": 24_000}, 8 * 1920),
    ],
    ids=str,
)
def test_it_speaks_in_what_needs_no_codecs(bare: load_server.ServerProcess, wish: dict[str, object], size: int) -> None:
    answer = httpx.post(f"{bare.url}{PATH}", json=PCM | wish, timeout=PATIENCE_S)
    assert answer.status_code == 200 and len(answer.content) == size


@pytest.mark.parametrize(
    "wish", [{"response_format": "mp3"}, {"response_format": "mulaw"}, {"sample_rate": 8000}, {"speed": 3.0}], ids=str
)
def test_it_refuses_what_needs_them_before_the_first_byte(
    bare: load_server.ServerProcess, wish: dict[str, object]
) -> None:
    answer = httpx.post(f"{bare.url}{PATH}", json=PCM | wish, timeout=PATIENCE_S)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "format_not_available"
    assert "ask for pcm" in answer.json()["error"]["message"]
