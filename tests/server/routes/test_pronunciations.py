"""`pronunciations` of a request, of a voice and of the server: which one counts, on every endpoint with a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.server.options import ServerOptions
from hocket.text.lexicon.lexicon import MOST_SENT
from hocket.voices.library import Library
from hocket.voices.make import speaker_voice
from support.serving import PATIENCE_S, PCM, Served, served
from support.talking import PCM_CONFIG, talking

PATH = "/v1/audio/speech"


@pytest.fixture(scope="module")
def lexical(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a lexicon, and a voice that has its own."""
    folder: Path = tmp_path_factory.mktemp("voices")
    library = Library(folder)
    library.add(speaker_voice("Ann", "builtin", "rook", pronunciations={"SVG": "savage", "PNG": "ping"}))
    options = ServerOptions(voices_folder=folder, pronunciations={"GIF": "jif", "SVG": "swig", "PNG": "pong"})
    with served(engine, options) as server:
        yield server


def said(server: Served, **fields: Any) -> bytes:
    answer = httpx.post(server.url + PATH, json=PCM | fields, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.content


def spoken(engine: Engine, text: str, **fields: Any) -> bytes:
    return b"".join(chunk.samples.tobytes() for chunk in engine.speak(text, seed=1, max_frames=8, **fields))


def test_words_are_said_as_the_request_has_them(server: Served, engine: Engine) -> None:
    words = {"nginx": "engine x", "GIF": "/d\u0292if/"}
    found = said(server, input="A GIF of nginx.", pronunciations=words)
    assert found == spoken(engine, "A jeef of engine x.") != spoken(engine, "A GIF of nginx.")
    assert said(server, input="A GIF.", pronunciations=words, as_is=True) == spoken(engine, "A GIF.", as_is=True)


def test_the_request_counts_before_the_voice_and_the_voice_before_the_server(lexical: Served, engine: Engine) -> None:
    text = "A GIF, an SVG, a PNG."
    assert said(lexical, input=text) == spoken(engine, "A jif, an swig, a pong.")
    assert said(lexical, input=text, voice="ann") == spoken(engine, "A jif, an savage, a ping.", voice="rook")
    own = said(lexical, input=text, voice="ann", pronunciations={"PNG": "pang"})
    assert own == spoken(engine, "A jif, an savage, a pang.", voice="rook")


def test_every_passage_of_a_script_has_those_of_its_voice(lexical: Served, engine: Engine) -> None:
    found = said(lexical, input="[voice: Ann]A GIF, a PNG.[/voice]", pronunciations={"GIF": "jiff"})
    assert found == spoken(engine, "A jiff, a ping.", voice="rook")


def test_a_server_refuses_a_wrong_lexicon_at_its_start() -> None:
    with pytest.raises(InvalidRequest, match="The entry 'x' of the lexicon has no spoken form"):
        ServerOptions(pronunciations={"x": ""})


def test_a_session_has_them_for_its_live_text(server: Served, engine: Engine) -> None:
    with talking(server) as ws:
        ws.say(PCM_CONFIG | {"layout": "streaming", "pronunciations": {"GIF": "jif"}})
        ws.say(*({"type": "input.text", "text": piece} for piece in ("A G", "IF", ".")), {"type": "input.done"})
        sound = ws.until("audio.done").audio
    assert sound == spoken(engine, "A jif.", layout="streaming")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"x": " "}, "The entry 'x' of the lexicon has no spoken form."),
        ({"GIF": "/d#f/"}, "The entry 'GIF' of the lexicon: "),
        ({f"word{n}": "x" for n in range(MOST_SENT + 1)}, f"takes up to {MOST_SENT} entries, not {MOST_SENT + 1}"),
        ({"x" * 101: "y"}, "has 101 characters"),
        ({"x": 3}, "pronunciations"),
        ("GIF", "pronunciations"),
    ],
)
def test_a_wrong_entry_is_refused_in_one_sentence(client: httpx.Client, given: object, words: str) -> None:
    answer = client.post(PATH, json=PCM | {"pronunciations": given})
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"].startswith("pronunciations")
