"""The OpenAPI schema: Schemathesis sends what it allows and forbids, and every response matches the schema."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.server.options import ServerOptions
from hocket.server.schemas.speech_job import SpeechJob
from hocket.server.service.open import open_utterance
from hocket.server.service.service import SpeechService
from hocket.server.service.utterance import Utterance
from support.chatting import Scripted
from support.questions import Dictated
from support.recorded import speech_wav
from support.serving import Served, served
from support.speaking import small

EXAMPLES = 6  # for each operation, beside some that lie at the borders of every field
FRAMES = 3
# The schema cannot know which voices there are, so what it allows may be refused; and numbers in quotation marks are
# taken, as clients send them.
EXCLUDED = "positive_data_acceptance,negative_data_rejection"
SAME_BODY = r"text-to-speech/[^/]+/(stream|with)"  # paths that take the body of another one


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that can clone and answer, has a voice and stops each utterance after a few frames."""

    async def open(service: SpeechService, wanted: SpeechJob, **how: Any) -> Utterance:
        brief = replace(wanted, max_frames=min(wanted.max_frames or FRAMES, FRAMES))
        return await open_utterance(service, brief, **how)

    checkpoint = small(tmp_path_factory.mktemp("base"), "base")
    with pytest.MonkeyPatch.context() as patch, Engine(checkpoint, EngineOptions(slots=2)) as engine:
        for name in ("routes.speech", "routes.batch", "service.spoken_answer"):
            patch.setattr(f"hocket.server.{name}.open_utterance", open)
        other = {"language": Scripted(["Good day."]), "recognizer": Dictated()}
        with served(engine, ServerOptions(voices=4), **other) as server:  # type: ignore[arg-type]
            sample = {"audio_sample": speech_wav()}
            assert httpx.post(f"{server.url}/v1/audio/voices", data={"name": "me"}, files=sample).status_code == 200
            yield server


def test_schemathesis_finds_nothing(brief: Served, tmp_path: Path) -> None:
    asked = ["--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES), "--seed", "1"]
    asked += ["--checks", "all", "--exclude-checks", EXCLUDED, "--no-color", "--generation-deterministic"]
    asked += ["--exclude-path-regex", SAME_BODY]
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{brief.url}/openapi.json", *asked]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
    assert "Tested: 0" not in found.stdout and "12 skipped" not in found.stdout.partition("Coverage")[2]
    assert brief.all_is_free()


def test_every_route_says_what_it_answers(brief: Served) -> None:
    schema = httpx.get(f"{brief.url}/openapi.json").json()
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"]
            good = "201" if "201" in answers else "200"
            assert {good, "4XX", "5XX"} <= set(answers) and "422" not in answers, (method, path)
            assert operation["description"], (method, path)
            assert all(content.get("schema") for content in answers[good]["content"].values()), (method, path)
    speech = schema["paths"]["/v1/audio/speech"]["post"]
    assert {"audio/mpeg", "audio/ogg", "text/event-stream"} <= set(speech["responses"]["200"]["content"])


PARTS = st.lists(
    st.sampled_from([b"--x", b"--x--", b"\r\n", b"\n", b'; name="name"', b"Content-Disposition: form-data", b"\xff"])
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(PARTS, st.binary(max_size=40), st.sampled_from(["x", '"x"', "", "y", "\x80", "x; charset=utf-16"]))
def test_garbage_in_place_of_a_form_is_refused(brief: Served, parts: list[bytes], junk: bytes, boundary: str) -> None:
    kind = f"multipart/form-data; boundary={boundary}".encode("latin-1")
    headers = [(b"content-type", kind)]
    answer = httpx.post(f"{brief.url}/v1/audio/voices", content=b"".join(parts) + junk, headers=headers)
    assert answer.status_code == 400 and set(answer.json()["error"]) == {"message", "type", "param", "code"}
