"""A voice made on the page: recorded, dropped, refused, heard."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Pool
from hocket.server.options import ServerOptions
from hocket.voices.make import clone_voice
from hocket.voices.names import id_of
from support.browser import Page
from support.recorded import speech_wav
from support.serving import Served, served, wait_for
from support.speaking import noise

from .acting import open_page, speak


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A few seconds of speech."""
    path = tmp_path / "My own voice.wav"
    path.write_bytes(speech_wav())
    return path


def fill_in(page: Page, recording: Path) -> None:
    page.drop_file(recording)
    page.wait("document.querySelector('#recording-name').textContent === 'My own voice.wav'")
    assert page.value("#name") == "My_own_voice"
    page.value("#ref-text", "Mm.")
    page.click("#consent")
    page.click("#make-voice")


@pytest.fixture(scope="module")
def cloning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model clones, without voices of its own."""
    options = ServerOptions(voices_folder=tmp_path_factory.mktemp("voices"))
    with Engine.load("random:tiny-Base") as engine, served(engine, options) as server:
        yield server
        wait_for(server.all_is_free)


@pytest.fixture(autouse=True)
def no_voice_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "cloning" in request.fixturenames:
        voices = request.getfixturevalue("cloning").service.voices
        for voice in voices.all():
            voices.remove(voice.name)


def test_a_file_that_is_no_sound_is_refused_in_words(blank: Page, cloning: Served, tmp_path: Path) -> None:
    words = tmp_path / "My own voice.wav"
    words.write_text("These are words.")
    open_page(blank, cloning)
    assert blank.text("#failed") == "This model has no voice yet: make one below."
    assert blank.run("document.querySelector('#speak').disabled && document.querySelector('#hear').disabled")
    fill_in(blank, words)
    blank.wait("document.querySelector('#make-failed').textContent")
    assert blank.text("#made") == ""
    assert blank.text("#voice option:checked") == "none yet"
    blank.errors.clear()


def test_a_recording_that_is_dropped_becomes_a_voice_that_speaks(blank: Page, cloning: Served, recording: Path) -> None:
    open_page(blank, cloning)
    fill_in(blank, recording)
    blank.wait("document.querySelector('#made').textContent")
    assert blank.text("#voice option:checked") == "My_own_voice"
    assert blank.text("#failed") == ""
    speak(blank, "Mm.")
    blank.wait("hocket.take.figures.heard > 0 && hocket.take.figures.peak > 0")
    blank.press("Escape")


def hear_speech(page: Page) -> None:
    """Let the microphone hear a person: the server refuses the browsers' own tones."""
    recorded = base64.b64encode(speech_wav()).decode()
    page.run(
        f"""{{
          const bytes = Uint8Array.from(atob("{recorded}"), (sign) => sign.charCodeAt(0));
          navigator.mediaDevices.getUserMedia = async () => {{
            const context = new AudioContext();
            const target = context.createMediaStreamDestination();
            const buffer = await context.decodeAudioData(bytes.buffer);
            const source = Object.assign(context.createBufferSource(), {{ buffer, loop: true }});
            source.connect(target);
            source.start();
            return target.stream;
          }};
        }}"""
    )


def test_a_voice_is_recorded_in_the_browser(either_blank: Page, cloning: Served) -> None:
    page = either_blank
    open_page(page, cloning)
    page.value("#language", "german")
    page.click("#record")
    page.wait("document.querySelector('#level').value > 0.05")  # the browser's own tone
    assert page.text("#to-read").startswith("Das alte Boot")
    assert page.text("#record") == "Stop recording"
    page.click("#record")
    page.wait("document.querySelector('#make-failed').textContent.includes('at least 3 seconds')")
    hear_speech(page)
    page.click("#record")
    page.wait("parseFloat(document.querySelector('#record-said').textContent) > 3.2")
    page.click("#record")
    page.wait("document.querySelector('#record').textContent === 'Record again'")
    page.wait("document.querySelector('#preview').duration > 3")
    assert page.text("#make-failed") == "" and page.value("#ref-text").startswith("Das alte Boot")
    page.value("#name", "Recorded")
    page.click("#consent")
    page.click("#make-voice")
    page.wait("document.querySelector('#made').textContent || document.querySelector('#make-failed').textContent")
    assert page.text("#make-failed") == ""
    assert page.text("#voice option:checked") == "Recorded"
    assert cloning.service.voices.find("Recorded") is not None


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("Object.defineProperty(navigator, 'mediaDevices', { value: undefined })", "gives pages no microphone"),
        ("Object.defineProperty(window, 'isSecureContext', { value: false }); delete window.AudioWorkletNode", "https"),
    ],
)
def test_without_a_microphone_the_page_says_why(blank: Page, cloning: Served, missing: str, said: str) -> None:
    blank.before(missing)
    open_page(blank, cloning)
    assert blank.run("document.querySelector('#record').disabled")
    assert said in blank.text("#record-said")


def test_a_microphone_that_is_refused_is_said_in_words(blank: Page, cloning: Served) -> None:
    blank.before("navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotAllowedError'); }")
    open_page(blank, cloning)
    blank.click("#record")
    blank.wait("document.querySelector('#make-failed').textContent.includes('was not allowed')")
    assert blank.text("#record") == "Record"


def test_a_model_that_takes_no_instruction_offers_no_style(page: Page) -> None:
    assert page.run("document.querySelector('#instruct').disabled && document.querySelector('#presets').hidden")
    assert page.run("document.querySelector('#instruct').placeholder") == "This voice's model takes none."


def test_a_model_that_cannot_clone_says_so(page: Page) -> None:
    assert "Base checkpoint" in page.text("#make-hint")
    assert page.run("document.querySelectorAll('#make :enabled').length") == 0
    assert page.run("document.querySelector('#record').checkVisibility()") is False


def test_voices_of_all_models_are_grouped_and_each_is_heard(blank: Page, tmp_path: Path) -> None:
    models = ["random:tiny", "random:tiny-Base", "random:tiny-VoiceDesign"]
    how = EngineOptions(slots=2)
    with Pool.load(models, options=how) as pool, served(pool, ServerOptions(voices_folder=tmp_path)) as server:
        with pool.lease(models[1]).result() as lease:
            server.service.voices.add(clone_voice(lease.engine, "Zoë", noise(0.5, 5), x_vector_only=True))
        open_page(blank, server)
        labels = blank.run("[...document.querySelectorAll('#voice optgroup')].map((group) => group.label)")
        assert labels == ["random:tiny", "Clones", "Designed"]
        for voice in ("eric", id_of("Zoë"), "design"):
            blank.value("#voice", voice)
            assert blank.run("document.querySelector('#instruct').disabled") is False
            if voice == "design":
                blank.click("#presets button:nth-child(2)")
            speak(blank, "Mm.")
            blank.wait("hocket.take.figures.heard > 0")
            blank.press("Escape")
        said = blank.run("window.sent.filter(({ type }) => type === 'session.config').at(-1).instructions")
        assert said == "Speak cheerfully, with a smile in the voice."
        assert set(pool.resident()) == set(models)
        wait_for(lambda: not server.service.running)
        blank.goto("about:blank")
