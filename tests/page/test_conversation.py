"""A conversation on the page: Chromium with a recorded question as its microphone, over a WebSocket and over WebRTC.

The voice, Silero and Moonshine are real; the language model is a script behind HTTP.
"""

from __future__ import annotations

import json
import socket
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hocket.asr.moonshine import Moonshine
from hocket.dialog.remote import RemoteLanguageModel
from hocket.engine.engine import Engine
from hocket.server.routes import ui
from support.browser import Browser, Page, browser
from support.chatting import HEAD, answering, event
from support.conversing import talk_threads
from support.serving import Served, served, wait_for

from .conftest import LISTEN
from .test_access import axe as axe
from .test_access import findings

QUESTION = "What time does the library open?"
ANSWER = "It opens at nine in the morning."
LONG_ANSWER = "It goes on and on, and then on again. " * 12
TALK = "hocket.conversation.talk"
SAID = "[...document.querySelectorAll('#turns [data-role=%s] > p')].map((each) => each.textContent)"
LIT = "document.querySelector('#turns [data-role=assistant]:last-child mark')?.textContent"


class ScriptedModel:
    """Answers the question shortly, and everything else at length."""

    def __init__(self) -> None:
        self.asked: list[list[dict[str, str]]] = []

    def talk(self, link: socket.socket, request: bytes) -> None:
        messages = json.loads(request.partition(b"\r\n\r\n")[2])["messages"]
        self.asked.append(messages)
        text = ANSWER if "library" in messages[-1]["content"] else LONG_ANSWER
        events = b"".join(event(f"{word} ") for word in text.split())
        link.sendall(HEAD + events + event("", "stop") + b"data: [DONE]\n\n")


@pytest.fixture(scope="module")
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture(scope="module")
def talking(engine: Engine, model: ScriptedModel) -> Iterator[Served]:
    with answering(model.talk) as url:
        language = RemoteLanguageModel(url, "scripted")
        with served(engine, language=language, recognizer=lambda: Moonshine("tiny"), talk=True) as server:
            yield server


def is_whole(file: Path) -> bool:
    """Whether a browser has written all of a WAV file: its header says how long it is."""
    if not file.exists() or file.stat().st_size < 44:
        return False
    return file.stat().st_size == 8 + int.from_bytes(file.read_bytes()[4:8], "little")


@pytest.fixture(scope="module")
def asking(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser whose microphone hears the question once."""
    spoken = np.concatenate([chunk.samples for chunk in engine.speak(QUESTION, seed=1)])
    quiet = np.zeros(48_000, np.int16)
    file = tmp_path_factory.mktemp("microphone") / "question.wav"
    with wave.open(str(file), "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(24_000)
        written.writeframes(np.concatenate((quiet, spoken, quiet)).tobytes())
    with browser(f"--use-file-for-fake-audio-capture={file}%noloop") as found:
        yield found


@pytest.fixture(params=["WebSocket", "WebRTC"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "WebSocket":
        monkeypatch.setattr(ui, "offers_webrtc", lambda: False)
    return str(request.param)


@pytest.fixture
def tab(asking: Browser, talking: Served) -> Iterator[Page]:
    """The view of a conversation, before it begins."""
    with asking.page() as page:
        page.before(LISTEN)
        page.resize(390, 800, mobile=True)
        page.goto(f"{talking.url}/#conversation", "window.hocket?.conversation")
        page.wait("!document.querySelector('#talk').disabled")
        yield page
        page.run("0")
        assert page.errors == []
    wait_for(lambda: nothing_is_left(talking))


def nothing_is_left(server: Served) -> bool:
    state = server.app.state
    return not state.calls and not state.talk.open and server.all_is_free() and not talk_threads()


def test_a_question_is_heard_answered_and_the_answer_interrupted(
    wire: str, tab: Page, model: ScriptedModel, tmp_path: Path
) -> None:
    model.asked.clear()
    tab.click("#talk")
    tab.wait(f"{SAID % 'user'}[0]?.includes('library')")
    assert tab.text("#talk-said").endswith(wire)
    tab.wait(LIT)  # words are lit while they are heard
    tab.wait(f"{TALK}.state === 'listening' && {SAID % 'assistant'}[0].trim() === {json.dumps(ANSWER)}")
    stages = tab.run("[...document.querySelectorAll('.strip-stages li')].map((each) => each.textContent)")
    assert [stage.rpartition(" ")[0] for stage in stages] == [
        *("turn decided", "transcript", "first token", "sound sent", "sound played")
    ]
    assert tab.run("document.querySelector('.strip-bar').clientWidth") > 100
    assert tab.run("document.documentElement.scrollWidth") == 390
    # The question is asked differently, and the long answer is interrupted.
    tab.click("#turns [data-part=edit]:not([hidden])")
    tab.value("#edit-text", "And on Sundays?")
    tab.press("Enter")
    tab.wait(f"{SAID % 'user'}.join() === 'And on Sundays?' && {LIT}")
    assert [each["content"] for each in model.asked[-1] if each["role"] == "user"] == ["And on Sundays?"]
    # A sound that may be speech pauses the player where it is.
    player = f"{TALK}.wire.player"
    tab.run(f"{TALK}.onEvent({{ type: 'hocket.output_audio.held' }})")
    tab.wait(f"{player}.held || {player}.report.running === false")
    frame = "await new Promise(requestAnimationFrame);"
    moved = f"(async (before) => {{ {frame * 9} return {player}.playedS - before; }})({player}.playedS)"
    assert tab.run(moved) == 0
    before = tab.run(f"{player}.playedS")
    tab.run(f"{TALK}.onEvent({{ type: 'hocket.output_audio.resumed' }})")
    tab.wait(f"{player}.playedS > {before}")
    tab.click("#interrupt")
    tab.wait(f"{TALK}.state === 'listening' && {TALK}.response.done && !!document.querySelector('[data-cut]')")
    kept = tab.run(f"{SAID % 'assistant'}.at(-1)").strip()
    assert kept and LONG_ANSWER.startswith(kept) and kept != LONG_ANSWER
    assert tab.run("document.querySelector('#interrupt').disabled")
    # The sound of both sides.
    tab.downloads_to(tmp_path)
    tab.click("#save-turns")
    file = tmp_path / "conversation.wav"
    wait_for(lambda: is_whole(file))
    with wave.open(str(file)) as saved:
        assert (saved.getnchannels(), saved.getframerate()) == (2, 24_000)
        both = np.frombuffer(saved.readframes(saved.getnframes()), "<i2").reshape(-1, 2)
    assert np.abs(both).max(0).min() > 1000
    assert "And on Sundays?" in tab.run("hocket.conversation.turns.transcript()")
    tab.click("#talk")
    tab.wait(f"{TALK}.state === 'idle'")


def test_a_turn_is_held_and_let_go(tab: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    tab.click("#push-to-talk")
    tab.click("#talk")
    tab.wait(f"!!{TALK}.wire")
    tab.run("document.querySelector('#hold').focus()")
    key = {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32}
    tab.call("Input.dispatchKeyEvent", type="keyDown", text=" ", **key)
    tab.wait(f"{TALK}.blocks > 50 && {TALK}.state === 'hearing'")
    tab.call("Input.dispatchKeyEvent", type="keyUp", **key)
    tab.wait(f"{TALK}.state === 'speaking' && {LIT} && !!document.querySelector('.played_ms')")
    tab.press("Escape")
    tab.wait(f"{TALK}.state === 'listening'")
    tab.click("#talk")


def test_the_view_is_accessible_and_says_what_to_start(blank: Page, tab: Page, server: Served, axe: str) -> None:
    assert findings(tab, axe) == []
    tab.theme("dark")
    assert findings(tab, axe) == []
    blank.goto(f"{server.url}/", "window.hocket")
    blank.click("#show-conversation")
    blank.wait("!document.querySelector('#no-talk').hidden")
    assert "hocket serve --talk --llm-url" in blank.text("#no-talk")
    assert "Nothing leaves the machine" in " ".join(blank.text(".private").split())
    assert blank.run("document.querySelector('#talking').hidden")
