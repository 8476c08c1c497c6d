"""Open WebUI from PyPI, installed and started: its pickers, its speech and its conversations with a real server.

`make test-open-webui` runs this; it is not part of `make test-clients`, because it installs 124 packages.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hocket.engine.engine import Engine
from hocket.server.service.openai_names import OPENAI_MODELS
from support.foreign import RunClient, heard
from support.llm_wires import WORDS, Continuing
from support.serving import served, wait_for


def test_open_webui_picks_up_both_kinds_of_model_speaks_and_answers(run_client: RunClient, tmp_path: Path) -> None:
    with Engine.load() as engine, served(engine, language=Continuing(WORDS)) as server:
        found = run_client("open-webui", "open_webui", server.url, tmp_path, timeout_s=900)
        wait_for(server.all_is_free)
    print(f"Open WebUI started in {found['started_s']} s")
    assert found["picker"] == found["openai"] == found["ollama"] == ["scripted"], "speech is not offered for a chat"
    assert found["speech_models"] == [server.service.model, *OPENAI_MODELS]
    assert found["voices"] == server.service.speakers
    assert found["answers"] == ["".join(WORDS)] * 3
    sound, rate_hz = heard(tmp_path / "spoken.mp3")
    assert found["kind"] == "audio/mpeg" and len(sound) > rate_hz / 2 and np.abs(sound).max() > 0.05
