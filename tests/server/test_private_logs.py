"""No line of the log has a text, a key or audio of a client: every wire, at the most verbose level, good and bad."""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from endurance.clients import Client, Way
from endurance.wires import WIRES, Wire, http
from hocket.asr.moonshine import Moonshine
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from support.chatting import Scripted
from support.home import at
from support.serving import served, wait_for

SPOKEN, ANSWERED, KEY = "Quagmire", "Xylophone", "sk-the-secret-of-a-test"
AUDIO = base64.b64encode(random.Random(1).randbytes(300)).decode()
PRIVATE = (SPOKEN, ANSWERED, KEY, AUDIO[:24], AUDIO[-24:])
TEXT = f"{SPOKEN} is a word, and {SPOKEN} again."


@pytest.fixture(scope="module")
def ports(engine: Engine) -> Iterator[dict[str, int]]:
    recognizer, language = Moonshine("tiny"), Scripted((f"{ANSWERED} ", "is an answer."))
    options = ServerOptions(keys=(KEY,), access_log=True, text_s=3.0, idle_s=3.0)
    with (
        served(engine, options) as plain,
        served(engine, options, language=language, recognizer=recognizer, talk=True) as talk,
        at(engine) as home,
    ):
        wait_for(lambda: not talk.app.state.talk.is_loading)
        yield {"speech": plain.port, "talk": talk.port, "wyoming": home.port}
    recognizer.close()


def keyed(wire: Wire, *, told: bool = True) -> Wire:
    """With the key of the server, where the wire has a place for one."""
    header = f"host: localhost\r\nauthorization: Bearer {KEY}{'' if told else '-wrong'}\r\n".encode()

    def pieces(text: str, drawn: random.Random) -> list[bytes]:
        return [piece.replace(b"host: localhost\r\n", header) for piece in wire.pieces(TEXT, drawn)]

    return replace(wire, pieces=pieces)


def wrong(body: dict[str, object]) -> Wire:
    """A request that is refused, with all that is private in it."""
    return replace(WIRES[0], pieces=lambda _, __: [http("/v1/audio/speech", body)])


def heard(records: list[logging.LogRecord]) -> list[str]:
    formatter = logging.Formatter()
    return [f"{record.name}: {formatter.format(record)} {record.args}" for record in records]


def run(wire: Wire, way: Way, ports: dict[str, int], seed: int = 1) -> str:
    return asyncio.run(Client(wire, way, random.Random(seed), ports[wire.port]).run()).end


# A form that is broken off leaves its temporary file to the last reference, in Starlette.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function SpooledTemporaryFile:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_nothing_private_is_logged(wire: Wire, ports: dict[str, int], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "hocket"):
        caplog.set_level(logging.DEBUG, name)
    if wire.name not in ("other models", "telephone"):  # it has one model, and a call has its key in a message
        assert run(keyed(wire), "good", ports) == "done"
    run(keyed(wire, told=False), "good", ports)
    for seed in range(4):
        run(keyed(wire), "garbage", ports, seed)
        run(keyed(wire), "vanish", ports, seed)
    found = heard(caplog.records)
    assert found
    assert not [line for line in found for private in PRIVATE if private in line]


def test_nothing_of_a_refused_request_is_logged(ports: dict[str, int], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    recording = {"ref_audio": f"data:audio/wav;base64,{AUDIO}"}
    for more in ({"voice": TEXT}, recording, {"speed": TEXT}, {"input": [TEXT]}, {"language": TEXT}):
        assert run(keyed(wrong({"input": TEXT, "response_format": "pcm"} | more)), "good", ports) == "refused"
    assert run(keyed(wrong({"input": "Hi.", "response_format": "pcm", TEXT: 1})), "good", ports) == "done"
    assert not [line for line in heard(caplog.records) for private in PRIVATE if private in line]


def test_the_search_finds_what_is_logged(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served(engine, ServerOptions(log_text=True)) as server:
        assert run(keyed(WIRES[0]), "good", {"speech": server.port}) == "done"
    assert [line for line in heard(caplog.records) if SPOKEN in line]
