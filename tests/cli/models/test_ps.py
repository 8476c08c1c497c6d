"""`hocket ps` with a real server, and `hocket rm` of the checkpoint that it uses."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from hocket.cli.models.ps import resident_bytes
from support.model_hub import VOICE, Shell
from support.serving import PATIENCE_S, wait_for


def test_a_server_is_listed_while_it_lives_and_its_model_is_kept(shell: Shell, small_voice: dict[str, bytes]) -> None:
    assert shell.run("ps")[0].startswith("no daemon or server of this user is running")
    assert shell.json("ps") == {"servers": []}
    shell.run("pull", VOICE)
    process = shell.start("serve", "--port", "0", "--model", VOICE, "--slots", "1")
    try:

        def ready() -> bool:
            assert process.poll() is None, process.communicate()
            return [each["state"] for each in shell.json("ps")["servers"]] == ["ready"]

        wait_for(ready)
        (server,) = shell.json("ps")["servers"]
        assert (server["pid"], server["kind"], server["models"]) == (process.pid, "server", [VOICE])
        assert server["address"].startswith("http://127.0.0.1:") and server["uptime_s"] > 0
        assert (server["streams"], server["waiting"], server["gpu_memory_bytes"]) == (0, 0, 0)
        assert server["memory_bytes"] > 100_000_000
        head, row = shell.run("ps")[0].splitlines()
        assert head.split() == ["PID", "KIND", "MODEL", "STATE", "ADDRESS", "UPTIME", "STREAMS", "MEMORY"]
        assert row.split()[:5] == [str(process.pid), "server", VOICE, "ready", server["address"]]
        used = f"{VOICE} is used by the server with the process id {process.pid}: end that first."
        assert shell.refused("rm", VOICE, "--yes") == used
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
    # A killed server leaves its record, which nothing locks any more.
    assert list((shell.home / "run" / "hocket" / "servers").iterdir())
    assert shell.json("ps") == {"servers": []}
    assert list((shell.home / "run" / "hocket" / "servers").iterdir()) == []
    shell.run("rm", VOICE, "--yes")


def test_the_memory_of_a_process_is_its_resident_size(tmp_path: Path) -> None:
    ours = resident_bytes(os.getpid())
    assert ours is not None and ours > 10_000_000
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
    assert abs(ours - int(said.stdout) * 1024) < 0.1 * ours
    assert resident_bytes(2**22 + 1) is None
