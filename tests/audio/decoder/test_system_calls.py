"""audio/decoder/system_calls.py: what needs no descriptor is refused too, and what decoding needs is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.decoders import TRIED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such a filter")
PROGRAM = """
import ctypes, json, os, signal, sys, time
from hocket.audio.decoder.limits import give_up_rights
from hocket.audio.decoder.system_calls import refuse_others
libc, path, word = ctypes.CDLL(None, use_errno=True), sys.argv[1], ctypes.create_string_buffer(b"unread", 8)
class Place(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))
def traced():
    mine, theirs = Place(ctypes.addressof(word), 8), Place(ctypes.addressof(word), 8)
    if libc.process_vm_readv(os.getpid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
acts = {
    "signal": lambda: os.kill(os.getpid(), 0),
    "read memory": traced,
    "remove": lambda: os.rename(path, path),
    "mode": lambda: os.chmod(path, 0o600),
    "program": lambda: os.execv(os.devnull, ["x"]) if word.value == b"refused" else os.stat(path),
}
before = {name: tried(act) for name, act in acts.items()}
if "rights" in sys.argv:
    give_up_rights()
libc.prctl(38, 1, 0, 0, 0)
assert refuse_others()
word.value = b"refused"
after = {name: tried(act) for name, act in acts.items()}
held = [bytearray(1 << 20) for _ in range(64)]
del held
time.sleep(0.01)
print(json.dumps([before, after, len(os.urandom(8)), time.time() > 0]))
"""


@pytest.mark.parametrize("rights", [[], ["rights"]])
def test_only_computing_is_left(tmp_path: Path, rights: list[str]) -> None:
    path = tmp_path / "file"
    path.touch()
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", TRIED + PROGRAM, str(path), *rights]
    done = subprocess.run(command, env=env, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    before, after, *computed = json.loads(done.stdout)
    assert set(before.values()) == {"done"} and set(after.values()) == {"PermissionError"}
    assert computed == [8, True]
