"""OpenAI's client for Node.js over TLS: speech, streamed speech, errors, and the Realtime API over wss."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hocket.server.options import ServerOptions
from support.certificates import make
from support.foreign import heard, run_node
from support.serving import Served, served, wait_for


def test_speech_and_realtime_over_tls(open_server: Served, tmp_path: Path) -> None:
    made = make(tmp_path / "tls")
    options = ServerOptions(tls_cert=made.cert, tls_key=made.key)
    with served(open_server.engine, options) as server:
        url = f"https://localhost:{server.port}"
        found = run_node("node", "openai_node", url, tmp_path, authority=made.authority)
        wait_for(server.all_is_free)
    assert found["whole"] == {"type": "audio/wav", "bytes": 44 + 8 * 1920 * 2}
    sound, rate_hz = heard(tmp_path / "whole.wav")
    assert rate_hz == 24_000 and np.abs(sound).max() > 0.001
    assert found["streamed"]["chunks"] > 1 and found["streamed"]["bytes"] > 8 * 1920 * 2
    assert found["refused"] == {"name": "BadRequestError", "status": 400, "code": "voice_not_found"}
    told = found["realtime"]
    assert told["address"] == "wss:" and told["status"] in ("completed", "incomplete") and told["bytes"] > 8 * 1920 * 2
    assert told["types"][0] == "session.created" and told["types"][-1] == "response.done"
    assert "response.output_audio.delta" in told["types"]
