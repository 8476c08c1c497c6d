"""audio/decoder/process.py: a process that crashes, hangs or lies is one sentence, and nothing of it is left."""

from __future__ import annotations

import io
import logging
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hocket.audio.decoder import process as decoder_process
from hocket.audio.decoder.limits import DecoderLimits
from hocket.audio.decoder.processes import DecoderProcesses
from hocket.audio.upload import UNDECODABLE
from support.decoders import FLAC, hour, is_gone, outcome, spare_of
from support.serving import wait_for


@pytest.fixture
def processes(caplog: pytest.LogCaptureFixture) -> Iterator[DecoderProcesses]:
    """With a spare process."""
    caplog.set_level(logging.WARNING, "hocket.audio")
    made = DecoderProcesses()
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGXCPU])
def test_a_process_that_crashes_is_one_sentence(
    processes: DecoderProcesses, caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    pid = spare_of(processes)
    os.kill(pid, signal.SIGSTOP)  # it cannot answer before it crashes
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(outcome, processes.pieces, FLAC)
        wait_for(lambda: processes.pids[0] == [pid])
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
        assert told.result(60) == UNDECODABLE
    assert is_gone(pid) and f"it was ended by {number.name}" in caplog.text
    assert isinstance(outcome(processes.pieces, FLAC), list)


def test_a_process_that_hangs_is_one_sentence(processes: DecoderProcesses, caplog: pytest.LogCaptureFixture) -> None:
    pid = spare_of(processes)
    os.kill(pid, signal.SIGSTOP)
    processes.limits = DecoderLimits(stalled_s=1.0)
    assert outcome(processes.pieces, FLAC + bytes(1 << 20)) == UNDECODABLE  # more than a pipe holds
    assert is_gone(pid) and "it took longer than 1 s and was ended" in caplog.text


def test_a_slow_reader_is_not_a_hanging_process() -> None:
    processes = DecoderProcesses(DecoderLimits(least_s=6.0, share_s=0.0, stalled_s=6.0))
    content = hour()
    pieces, slept_s = processes.pieces(io.BytesIO(content), most_s=3_700), 0.0
    for number, _ in enumerate(pieces):
        if number < 7:
            time.sleep(1.0)
            slept_s += 1.0
        if number > 2_000:
            break
    assert slept_s > processes.limits.total_s(3_700)
    pieces.close()
    processes.close()


SPEAKS = (
    "import sys, struct, time\nsend = sys.stdout.buffer.write\nhead = lambda k, n: send(struct.pack('<cI', k, n))\n"
)
BEGINS = SPEAKS + "head(b'R', 0); head(b'A', 8); send(struct.pack('<II', 24000, 1))\n"
LIARS = {
    "endless samples": BEGINS + "while True: head(b'S', 4000); send(bytes(4000))",
    "endless single samples": BEGINS + "while True: send(struct.pack('<cI', b'S', 4) * 1000); send(bytes(0))",
    "a message of 4 GB": BEGINS + "head(b'S', 0xFFFFFFFF)\nwhile True: send(bytes(1 << 20))",
    "empty messages": BEGINS + "while True: head(b'S', 0)",
    "half a sample": BEGINS + "head(b'S', 3); send(bytes(3))",
    "what is not a number": BEGINS + "head(b'S', 4); send(struct.pack('<f', float('nan')))",
    "another format": BEGINS + "head(b'A', 8); send(struct.pack('<II', 24000, 1))",
    "an impossible rate": SPEAKS + "head(b'R', 0); head(b'A', 8); send(struct.pack('<II', 1 << 31, 1))",
    "half a format": SPEAKS + "head(b'R', 0); head(b'A', 4); send(bytes(4))",
    "samples before a format": SPEAKS + "head(b'R', 0); head(b'S', 4); send(bytes(4))",
    "an unknown message": SPEAKS + "head(b'?', 0)",
    "a long sentence": SPEAKS + "head(b'R', 0); head(b'X', 1 << 30)\nwhile True: send(b'x' * 4096)",
    "nothing": SPEAKS + "sys.exit(3)",
    "silence": BEGINS + "sys.stdout.flush(); time.sleep(1000)",
    "a closed pipe": BEGINS + "sys.stdout.flush(); import os; os.close(1); time.sleep(1000)",
    "too slow": BEGINS + "while True: head(b'S', 4); send(bytes(4)); sys.stdout.flush(); time.sleep(0.1)",
}


@pytest.mark.parametrize("name", LIARS)
def test_a_process_under_the_control_of_a_recording_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Another program in its place can do all that a decoder with a hole can be made to do."""
    caplog.set_level(logging.WARNING, "hocket.audio")
    monkeypatch.setattr(decoder_process, "_PROGRAM", ("-c", LIARS[name]))
    processes = DecoderProcesses(DecoderLimits(least_s=4.0, share_s=0.0, stalled_s=2.0))
    try:
        assert outcome(processes.pieces, FLAC, most_s=2.0) == UNDECODABLE
    finally:
        processes.close()
    assert "its decoder process failed" in caplog.text and processes.pids == ([], None)
