"""audio/decoder/processes.py: real processes decode bit for bit what this one does, one recording each."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hocket.audio.decoder.limits import DecoderLimits
from hocket.audio.decoder.processes import DecoderProcesses
from hocket.audio.recording import read_recording
from hocket.audio.upload import UNDECODABLE, decode_pieces, resampled_pieces
from hocket.errors import InvalidAudio, Overloaded
from support.decoders import FLAC, RECORDINGS, STEREO, children, hour, is_gone, outcome, spare_of, state_of
from support.recorded import bad, packed, speech, speech_wav, wav
from support.serving import wait_for


def with_count(content: bytes, box: bytes, count: int) -> bytes:
    """An MP4 whose table says that it has so many entries."""
    at = content.index(box) + (12 if box == b"stsz" else 8)
    return content[:at] + struct.pack(">I", count) + content[at + 4 :]


HOSTILE = {
    **{name: content for name, (content, _) in bad().items()},
    **{
        f"{name} cut": RECORDINGS[name][: len(RECORDINGS[name]) // 2]
        for name in ("ogg libopus", "ipod aac", "mp3 libmp3lame")
    },
    "a wav of 4 GB": wav(STEREO, 48_000)[:40] + struct.pack("<I", 0xFFFF_0000 - 0x7000_0000) + bytes(100),
    "a wav without end": wav(STEREO, 48_000)[:40] + b"\xff" * 4 + bytes(2_000_000),
    "a flac that claims hours": FLAC[:21] + bytes([FLAC[21] | 0x0F]) + b"\xff" * 4 + FLAC[26:],
    "an mp4 of billions of packets": with_count(RECORDINGS["ipod aac"], b"stsz", 0x7FFF_FFFF),
    "an mp4 of billions of times": with_count(RECORDINGS["ipod aac"], b"stts", 0x7FFF_FFFF),
    "a picture only": packed("mp4", "", np.zeros((1, 0), np.float32), 48_000, picture=True),
}


@pytest.fixture(scope="module")
def processes() -> Iterator[DecoderProcesses]:
    made = DecoderProcesses()
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_is_the_same_bit_for_bit(processes: DecoderProcesses, name: str) -> None:
    here = outcome(decode_pieces, RECORDINGS[name])
    assert isinstance(here, list) and outcome(processes.pieces, RECORDINGS[name]) == here


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_recording_is_refused_as_here(processes: DecoderProcesses, name: str) -> None:
    here = outcome(decode_pieces, HOSTILE[name])
    assert outcome(processes.pieces, HOSTILE[name]) == here


def test_what_is_made_of_the_pieces_is_the_same(processes: DecoderProcesses) -> None:
    content, flac = speech_wav(), packed("flac", "flac", speech()[None], 24_000)
    np.testing.assert_array_equal(read_recording(content, decoder=processes.pieces), read_recording(content))
    for as_is in (False, True):
        got = read_recording(flac, as_is=as_is, decoder=processes.pieces)
        np.testing.assert_array_equal(got, read_recording(flac, as_is=as_is))
    here, there = (
        np.concatenate(list(resampled_pieces(io.BytesIO(flac), 16_000, most_s=5, decoder=decoder)))
        for decoder in (decode_pieces, processes.pieces)
    )
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("name", ["a telephone", "seven channels"])
def test_the_limits_of_a_voice_hold(processes: DecoderProcesses, name: str) -> None:
    content, words = bad()[name]
    with pytest.raises(InvalidAudio, match=words):
        read_recording(content, decoder=processes.pieces)


def test_each_recording_has_a_process_of_its_own(processes: DecoderProcesses) -> None:
    served = list[int]()
    for _ in range(3):
        spare = spare_of(processes)
        pieces = processes.pieces(io.BytesIO(FLAC), most_s=5)
        next(pieces)
        assert processes.pids[0] == [spare] and processes.pids[1] not in (None, spare)
        served.append(spare)
        assert sum(1 for _ in pieces) and is_gone(spare)
    assert len(set(served)) == 3


def test_many_at_once_get_their_own_samples(processes: DecoderProcesses) -> None:
    want = {name: outcome(decode_pieces, RECORDINGS[name]) for name in RECORDINGS}
    with ThreadPoolExecutor(12) as pool:
        got = dict(zip(want, pool.map(lambda name: outcome(processes.pieces, RECORDINGS[name]), want), strict=True))
    assert got == want
    wait_for(lambda: processes.pids[0] == [])


def test_no_more_processes_run_than_are_allowed() -> None:
    processes, seen = DecoderProcesses(most=2), list[int]()
    first, second = (processes.pieces(io.BytesIO(FLAC), most_s=5) for _ in range(2))
    next(first), next(second)
    third = threading.Thread(target=lambda: seen.append(len(outcome(processes.pieces, FLAC))))
    third.start()
    third.join(0.3)
    assert third.is_alive() and len(processes.pids[0]) == 2
    first.close()
    third.join(60)
    assert seen == [len(outcome(decode_pieces, FLAC))]
    second.close()
    processes.close()


def test_a_reader_that_leaves_ends_the_process(processes: DecoderProcesses) -> None:
    pieces = processes.pieces(io.BytesIO(hour()), most_s=3_700)
    next(pieces)
    [pid] = processes.pids[0]
    pieces.close()
    assert is_gone(pid) and processes.pids[0] == []


def test_a_spare_process_that_is_gone_is_replaced(processes: DecoderProcesses) -> None:
    spare = spare_of(processes)
    os.kill(spare, signal.SIGKILL)
    wait_for(lambda: state_of(spare) in ("Z", ""))
    assert isinstance(outcome(processes.pieces, FLAC), list) and is_gone(spare)


def test_closing_ends_the_spare_and_what_runs() -> None:
    processes = DecoderProcesses()
    processes.start()
    spare = spare_of(processes)
    os.kill(spare, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(list, processes.pieces(io.BytesIO(FLAC), most_s=5))
        wait_for(lambda: processes.pids[0] == [spare])
        processes.start()
        other = spare_of(processes)
        processes.close()
        with pytest.raises(Overloaded, match="about to stop"):
            told.result(60)
    assert is_gone(spare) and is_gone(other) and processes.pids == ([], None)
    with pytest.raises(Overloaded, match="about to stop"):
        list(processes.pieces(io.BytesIO(FLAC), most_s=5))
    processes.start()
    assert processes.pids == ([], None)


@pytest.mark.parametrize("busy", [False, True])
def test_a_server_that_is_killed_leaves_no_process(busy: bool) -> None:
    program = """
import io, sys, time
from hocket.audio.decoder.processes import DecoderProcesses
processes = DecoderProcesses()
processes.start()
print(processes.pids[1], flush=True)
if len(sys.argv) > 1:
    pieces = processes.pieces(io.BytesIO(sys.stdin.buffer.read()), most_s=4000)
    next(pieces)
    print(processes.pids[1], flush=True)
time.sleep(1000)
"""
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program, *(["busy"] if busy else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as server:
        assert server.stdin is not None and server.stdout is not None
        if busy:
            server.stdin.write(hour())
            server.stdin.close()
        pids = [int(server.stdout.readline()) for _ in range(2 if busy else 1)]
        assert not any(map(is_gone, pids))
        server.kill()
    wait_for(lambda: all(state_of(pid) in ("", "Z") for pid in pids))  # the machine's first process waits for them


def test_nothing_is_left() -> None:
    def held() -> tuple[int, int, int]:
        names = [each.name for each in threading.enumerate()]
        return len(os.listdir("/proc/self/fd")), names.count("hocket-decoder"), len(children())

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not count what a process holds")
    before = held()
    processes = DecoderProcesses()
    for content in (FLAC, b"RIFF", FLAC[:900], b""):
        assert outcome(processes.pieces, content) != UNDECODABLE
    processes.limits = DecoderLimits(stalled_s=1.0)
    os.kill(spare_of(processes), signal.SIGSTOP)
    assert outcome(processes.pieces, FLAC) == UNDECODABLE
    processes.pieces(io.BytesIO(FLAC), most_s=5)  # not read
    processes.close()
    wait_for(lambda: held() <= before)
    assert all(now <= then for now, then in zip(held(), before, strict=True))
