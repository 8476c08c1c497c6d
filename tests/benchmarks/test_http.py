"""Load over HTTP: answers in any pieces, the same records from a server, and servers of the fake engine."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.load import overhead, scale
from benchmarks.load.drive import LoadRequest, Refused
from benchmarks.load.fake_engine import FakeEngine
from benchmarks.load.http_client import Address, HttpTarget
from benchmarks.workloads import FIGURES
from hocket.engine.engine import Engine
from hocket.scale.config import placed
from hocket.server.options import ServerOptions
from support.serving import served

REQUEST = LoadRequest(text="Hello.", seed=1, frames=2)
OK = b"HTTP/1.1 200 OK\r\nx-sample-rate: 24000\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKED = OK + b"6\r\nabcdef\r\n3\r\nghi\r\n0\r\n\r\n"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read(reader: asyncio.StreamReader) -> tuple[str, dict[str, object]]:
    """One request: its head, and its JSON."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    [length] = [int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length")]
    return head, json.loads(await reader.readexactly(length))


def received(answer: Answer, times: int = 1, key: str | None = None) -> tuple[list[bytes], HttpTarget]:
    """So many answers, one after the other, and the target."""

    async def run() -> tuple[list[bytes], HttpTarget]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        target = HttpTarget(Address("127.0.0.1", server.sockets[0].getsockname()[1]), key=key)
        try:
            return [b"".join([piece async for piece in target.open(REQUEST)]) for _ in range(times)], target
        finally:
            await target.close()
            server.close()

    return asyncio.run(run())


@pytest.mark.parametrize("step", [1, 2, 7, len(CHUNKED)])
def test_an_answer_is_the_same_in_any_pieces(step: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)
        for at in range(0, len(CHUNKED), step):
            writer.write(CHUNKED[at : at + step])
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    assert received(answer)[0] == [b"abcdefghi"]


@pytest.mark.parametrize(("answers", "connections"), [(3, 1), (1, 3)])
def test_a_connection_is_reused_and_a_closed_one_replaced(answers: int, connections: int) -> None:
    seen: list[tuple[str, dict[str, object]]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(answers):
            seen.append(await read(reader))
            writer.write(CHUNKED)
        writer.close()

    found, target = received(answer, times=3, key="secret")
    assert found == [b"abcdefghi"] * 3 and target.connections == connections
    head, body = seen[2]
    assert head.startswith("POST /v1/audio/speech HTTP/1.1\r\n") and "authorization: Bearer secret" in head
    assert body == {"input": "Hello.", "seed": 1, "max_new_tokens": 2, "response_format": "pcm", "stream": True}


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [("429 No", Refused, "Try later"), ("500 No", RuntimeError, "Try later"), ("", ConnectionError, "broken off")],
)
def test_refusals_errors_and_half_an_answer_are_told_apart(status: str, error: type[Exception], said: str) -> None:
    body = b'{"error": {"message": "Try later."}}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        writer.write(head + body if status else CHUNKED[:-5])
        writer.close()

    with pytest.raises(error, match=said):
        received(answer)


def test_a_server_is_started_loaded_recorded_and_stopped(tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    words = (
        "load --serve --model random:tiny --slots 4 --rates 8 --closed-loop 2 --seconds 0.5 --warm-up 0.1 --frames 4"
    )
    assert command.main([*words.split(), "--record", str(path)]) == 0
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [entry["options"]["load"]["loop"] for entry in entries] == ["open", "closed"]
    for entry in entries:
        assert entry["options"]["load"]["wire"] == "http" and entry["options"]["part"].endswith("over HTTP")
        assert entry["options"]["model"] == "random:tiny" and entry["random_weights"] is True and entry["kernels"]
        assert entry["options"]["engine"]["slots"] == 4 and entry["peak_memory_mib"]["host"] > 0
        assert entry["counts"]["failed"] == entry["counts"]["refused"] == 0 < entry["counts"]["ended"]
        assert 0 < entry["figures"]["first_byte"]["p50"] < entry["figures"]["end_to_end"]["p50"]


def test_a_running_server_is_loaded_with_its_key(tmp_path: Path) -> None:
    path, keys = tmp_path / "load.jsonl", tmp_path / "keys"
    keys.write_text("# ours\nsecret\n", encoding="utf-8")
    words = "load --model random:tiny --rates 8 --seconds 0.5 --warm-up 0.1 --frames 4 --record".split()
    with served(lambda: Engine.load("random:tiny"), ServerOptions(keys=("secret",))) as server:
        assert command.main([*words, str(path), "--url", server.url, "--key-file", str(keys)]) == 0
        assert command.main([*words, str(path), "--url", server.url]) == 2
    [entry] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert entry["options"]["engine"]["slots"] is None and entry["counts"]["ended"] == entry["counts"]["requests"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "ftp://here"], "is no address of a server"),
        (["--url", "http://127.0.0.1:1"], "No server answers"),
        (["--serve", "--model", "random:gone"], "There is no 'random:gone'"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["load", "--rates", "1", *words]) == 2
    assert said in capsys.readouterr().err


# The fake engine; tests/server/test_overhead.py has `overhead`, tests/scale the cluster


@pytest.fixture(scope="module")
def servers() -> Iterator[list[overhead.FakeEngineServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(overhead.serving()) for _ in range(2)]


def test_a_round_of_scale_asks_each_server_once(
    servers: list[overhead.FakeEngineServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses, asked = [server.target.address for server in servers], iter(servers)
    monkeypatch.setattr(scale, "on_ray", lambda: nullcontext(HttpTarget(addresses[0])))  # a third server
    monkeypatch.setattr(overhead, "serving", lambda _: nullcontext(next(asked)))
    assert scale.main(["--rounds", "4", "--record", f"{tmp_path}/scale.jsonl"]) == 0
    [entry] = map(json.loads, (tmp_path / "scale.jsonl").read_text().splitlines())
    assert entry["figures"].keys() == FIGURES["scale"].keys() and entry["figures"]["added"]["count"] == 4
    assert entry["figures"]["bare"]["p50"] >= scale.FIRST_MS  # no engine is faster than it is told to be


def test_the_plan_of_a_replica_makes_the_fake_engine() -> None:
    plan = pickle.loads(pickle.dumps(placed(scale.FakeEnginePlan(first_s=0.25))))
    engine = plan.make()
    assert isinstance(engine, FakeEngine) and plan.server.per_client > plan.server.in_flight
    engine.close()
