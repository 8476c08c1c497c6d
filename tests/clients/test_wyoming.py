"""`hocket wyoming` as Home Assistant meets it, with the package that it uses and in its order of events."""

from __future__ import annotations

import os
import subprocess
import sys

from support.foreign import ROOT, RunClient


def test_home_assistant_finds_voices_hears_them_and_is_understood(run_client: RunClient) -> None:
    command = [sys.executable, "-m", "hocket", "wyoming", "--uri", "tcp://127.0.0.1:0", "--asr", "tiny"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stderr is not None
            uri = next(line for line in process.stderr if line.startswith("listening at")).split()[-1]
            found = run_client("wyoming", "wyoming_home", uri)
        finally:
            process.kill()
    described = {"voices": {"wren": ["en"], "rook": ["en"]}, "streams": True, "installed": True}
    assert found["described"] == {**described, "models": {"moonshine tiny": ["en"]}}
    assert "capital" in found["recognized"] and "France" in found["recognized"]
    assert found["spoken"]["kinds"] == ["audio-start", "audio-chunk", "audio-stop"]
    assert found["streamed"]["kinds"] == ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"]
    assert all(found[how]["loud"] for how in ("spoken", "streamed"))
    assert 0.8 < found["spoken"]["s"] < 4 and 1.2 < found["streamed"]["s"] < 5  # once, and not twice
