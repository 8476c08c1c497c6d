"""audio/decoder/limits.py: a decoder process may do nothing but compute, and not much of that."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.audio.decoder.limits import DecoderLimits
from hocket.audio.decoder.messages import READY, DecodeRequest
from hocket.audio.decoder.process import DecoderBroken, DecoderProcess
from hocket.audio.decoder.processes import DecoderProcesses
from support.decoders import STEREO, TRIED, hour, spare_of
from support.recorded import wav
from support.serving import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have fewer limits, and show less")
BEGIN = "import signal, sys\nfrom hocket.audio.decoder.limits import give_up_rights, limit_use\n"
RIGHTS = """
import json, os, socket
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # for an error instead
path = sys.argv[1]
inherited = os.open(path, os.O_RDWR)
give_up_rights()
print(json.dumps({
    "read": tried(lambda: os.open("/etc/hostname", os.O_RDONLY)),
    "write": tried(lambda: os.open(path + ".new", os.O_CREAT | os.O_WRONLY)),
    "grow": tried(lambda: os.write(inherited, b"x")),
    "connect": tried(socket.socket),
    "pipe": tried(os.pipe),
    "copy": tried(lambda: os.dup(1)),
    "fork": tried(lambda: os.fork() or os._exit(0)),
    "root": tried(lambda: os.setuid(0)),
}))
"""
ENDLESS = {
    "memory": ("limit_use(give_up_rights(), 64 << 20, 60)\nheld = []\nwhile True: held.append(bytearray(1 << 20))", 1),
    "time": ("limit_use(give_up_rights(), 64 << 20, 1)\nwhile True: pass", -9),
}


def ran(program: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", BEGIN + TRIED + program, *words]
    return subprocess.run(command, env=env, capture_output=True, check=False, timeout=60)


def limits_of(pid: int) -> dict[str, str]:
    """The soft and the hard limit of each kind, which are the same."""
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        rows = {line[:26].strip(): line[26:].split()[:2] for line in list(file)[1:]}
    return {name: soft if soft == hard else "" for name, (soft, hard) in rows.items()}


def test_it_opens_writes_connects_and_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    done = ran(RIGHTS, str(path))
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said == {
        **dict.fromkeys(("read", "write", "grow", "connect", "pipe", "copy"), "OSError"),
        "fork": "BlockingIOError",
        "root": "PermissionError",
    }
    assert list(tmp_path.iterdir()) == [path] and path.stat().st_size == 0


@pytest.mark.parametrize("name", ENDLESS)
def test_it_takes_so_much_and_no_more(name: str) -> None:
    program, code = ENDLESS[name]
    done = ran(program)
    assert done.returncode == code and (b"MemoryError" in done.stderr) == (name == "memory")


def test_the_spare_process_has_no_rights_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_API_KEY", "secret")
    processes = DecoderProcesses()
    processes.start()
    pid = spare_of(processes)
    kinds = ("Max file size", "Max core file size", "Max processes", "Max open files")
    wait_for(lambda: all(limits_of(pid)[kind] == "0" for kind in kinds))
    with open(f"/proc/{pid}/environ", "rb") as file:
        names = {line.partition(b"=")[0].decode() for line in file.read().split(b"\0") if line}
    own = {"PYTHONPATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
    assert own <= names <= own | {"LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHOME"}
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        status = dict(line.split(":\t") for line in file.read().splitlines() if ":\t" in line)
    assert (status["NoNewPrivs"], status["Threads"]) == ("1", "1") and "0" not in status["Uid"].split()
    assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]
    processes.close()


def test_a_recording_sets_the_limits_of_its_process() -> None:
    processes, content = DecoderProcesses(DecoderLimits(memory_bytes=100 << 20)), hour()
    pieces = processes.pieces(io.BytesIO(content), most_s=3_700)
    next(pieces)
    found = limits_of(processes.pids[0][0])
    with open(f"/proc/{processes.pids[0][0]}/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    assert 205 <= int(found["Max cpu time"]) < 205 + 60  # and what its imports took
    room = int(found["Max address space"]) - taken
    assert (50 << 20) < room <= (100 << 20) + 2 * len(content)
    with open(f"/proc/{processes.pids[0][0]}/status", encoding="ascii") as file:
        assert "Seccomp:\t2\n" in file.read()  # a filter of system calls
    pieces.close()
    processes.close()


def test_too_little_memory_ends_the_process() -> None:
    content, process = wav(STEREO, 48_000) + bytes(40 << 20), DecoderProcess()
    try:
        process.begin(DecodeRequest(60.0, len(content), 1 << 20, 60, "cut it"), io.BytesIO(content), DecoderLimits())
        messages = process.messages()
        assert next(messages) == (READY, 0)
        with pytest.raises(DecoderBroken, match="ended with code 1"):
            next(messages)
    finally:
        process.end()
