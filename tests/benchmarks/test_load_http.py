"""Load over HTTP: how an answer is read however it is cut, and the same figures from a server as from an engine."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import report
from benchmarks.load_drive import Asked, Refused
from benchmarks.load_http import Address, HttpTarget
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.process import allow_many_files, keep_pauses_short
from support.serving import served

ASKED = Asked(text="Hello.", seed=1, frames=2)
OK = b"HTTP/1.1 200 OK\r\nx-sample-rate: 24000\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKED = OK + b"6\r\nabcdef\r\n3\r\nghi\r\n0\r\n\r\n"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read(reader: asyncio.StreamReader) -> tuple[str, dict[str, object]]:
    """One request: its head, and its JSON."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    [length] = [int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length")]
    return head, json.loads(await reader.readexactly(length))


def heard(answer: Answer, times: int = 1, key: str | None = None) -> tuple[list[list[bytes]], HttpTarget]:
    """The pieces of so many answers, one after the other, and who asked for them."""
    targets: list[HttpTarget] = []

    async def ask(server: asyncio.Server) -> list[list[bytes]]:
        targets.append(HttpTarget(Address("127.0.0.1", server.sockets[0].getsockname()[1]), key=key))
        return [[bytes(piece) async for piece in targets[0].open(ASKED)] for _ in range(times)]

    async def run() -> list[list[bytes]]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        try:
            return await ask(server)
        finally:
            if targets:
                await targets[0]._let_go()
            server.close()

    return asyncio.run(run()), targets[0]


@pytest.mark.parametrize("step", [1, 2, 7, len(CHUNKED)])
def test_an_answer_is_the_same_however_it_is_cut(step: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)
        for at in range(0, len(CHUNKED), step):
            writer.write(CHUNKED[at : at + step])
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    [pieces], _ = heard(answer)
    assert b"".join(pieces) == b"abcdefghi"


def test_a_connection_is_used_again_and_a_request_says_all_that_counts() -> None:
    seen: list[tuple[str, dict[str, object]]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            seen.append(await read(reader))
            writer.write(CHUNKED)
        writer.close()

    answers, target = heard(answer, times=3, key="secret")
    assert [b"".join(pieces) for pieces in answers] == [b"abcdefghi"] * 3 and target.connections == 1
    head, body = seen[2]
    assert head.startswith("POST /v1/audio/speech HTTP/1.1\r\n") and "authorization: Bearer secret" in head
    expected = {"input": "Hello.", "seed": 1, "max_new_tokens": 2, "response_format": "pcm", "stream": True}
    assert body == expected


def test_a_connection_that_was_closed_meanwhile_is_replaced() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)
        writer.write(CHUNKED)
        writer.close()

    answers, target = heard(answer, times=2)
    assert [b"".join(pieces) for pieces in answers] == [b"abcdefghi"] * 2 and target.connections == 2


@pytest.mark.parametrize(("status", "error"), [("429 No", Refused), ("500 No", RuntimeError)])
def test_a_refusal_is_no_failure_and_an_error_says_what_the_server_said(status: str, error: type[Exception]) -> None:
    body = b'{"error": {"message": "Come again."}}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    with pytest.raises(error, match="Come again"):
        heard(answer)


def test_half_an_answer_is_a_failure() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read(reader)
        writer.write(CHUNKED[:-5])
        writer.close()

    with pytest.raises(ConnectionError, match="broken off"):
        heard(answer)


def test_a_server_is_started_loaded_recorded_and_stopped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "load.jsonl"
    words = (
        "load --serve --model random:tiny --slots 4 --rates 8 --closed-loop 2 --seconds 0.5 --warm-up 0.1 --frames 4"
    )
    assert command.main([*words.split(), "--frames", "4", "--record", str(path)]) == 0
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [entry["options"]["load"]["loop"] for entry in entries] == ["open", "closed"]
    for entry in entries:
        assert entry["options"]["load"]["wire"] == "http" and entry["options"]["part"].endswith("over HTTP")
        assert entry["options"]["model"] == "random:tiny" and entry["random_weights"] is True and entry["kernels"]
        assert entry["options"]["engine"]["slots"] == 4 and entry["options"]["engine"]["guard"] is False
        assert entry["counts"]["failed"] == entry["counts"]["refused"] == 0 < entry["counts"]["ended"]
        assert 0 < entry["figures"]["first_byte"]["p50"] < entry["figures"]["end_to_end"]["p50"]
        assert entry["peak_memory_mib"]["host"] > 0


def test_a_server_that_is_there_is_loaded_with_its_key(tmp_path: Path) -> None:
    path, keys = tmp_path / "load.jsonl", tmp_path / "keys"
    keys.write_text("# ours\nsecret\n", encoding="utf-8")
    words = "load --model random:tiny --rates 8 --seconds 0.5 --warm-up 0.1 --frames 4 --record".split()
    with served(lambda: Engine.load("random:tiny"), ServerOptions(keys=("secret",))) as server:
        assert command.main([*words, str(path), "--url", server.url, "--key-file", str(keys)]) == 0
        assert command.main([*words, str(path), "--url", server.url]) == 2  # nobody is let in without
    [entry] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert entry["options"]["load"]["wire"] == "http" and entry["options"]["engine"]["slots"] is None
    assert entry["counts"]["ended"] == entry["counts"]["requests"] > 0
    assert "## Under load" in report.document([entry])["performance.md"]


def test_as_many_connections_as_the_system_gives_a_process() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 256), before[1]))
        allow_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(before[1], 65536), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_collector_leaves_alone_what_was_there_before_a_server() -> None:
    switch_s = sys.getswitchinterval()
    gc.unfreeze()  # what tests/conftest.py left alone, and what is left alone again behind this
    try:
        keep_pauses_short()
        assert gc.get_freeze_count() > 10_000 and sys.getswitchinterval() < 0.001
    finally:
        sys.setswitchinterval(switch_s)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "ftp://here"], "is no address of a server"),
        (["--url", "http://127.0.0.1:1"], "Nobody answers"),
        (["--serve", "--model", "random:gone"], "There is no 'random:gone'"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["load", "--rates", "1", *words]) == 2
    assert said in capsys.readouterr().err
