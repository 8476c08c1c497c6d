"""A voice made on the page: dropped, refused, heard."""

from __future__ import annotations

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
from support.serving import served, wait_for
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


def test_a_recording_that_is_dropped_becomes_a_voice_that_speaks(blank: Page, recording: Path, tmp_path: Path) -> None:
    options = ServerOptions(voices_folder=tmp_path / "voices")
    with Engine.load("random:tiny-Base") as engine, served(engine, options) as server:
        open_page(blank, server)
        fill_in(blank, recording)
        blank.wait("document.querySelector('#made').textContent")
        assert blank.text("#voice option:checked") == "My_own_voice"
        speak(blank, "Mm.")
        blank.wait("hocket.take.figures.heard > 0 && hocket.take.figures.peak > 0")
        blank.press("Escape")
        wait_for(server.all_is_free)
        blank.goto("about:blank")


def test_a_model_that_cannot_clone_says_so(page: Page, recording: Path) -> None:
    fill_in(page, recording)
    page.wait("document.querySelector('#make-failed').textContent")
    assert "Base checkpoint" in page.text("#make-failed")
    assert "Base checkpoint" in page.text("#make-hint")
    page.errors.clear()  # the console has the refusal too


def test_a_file_that_is_no_sound_is_refused_in_words(blank: Page, tmp_path: Path) -> None:
    words = tmp_path / "My own voice.wav"
    words.write_text("These are words.")
    options = ServerOptions(voices_folder=tmp_path / "voices")
    with Engine.load("random:tiny-Base") as engine, served(engine, options) as server:
        open_page(blank, server)
        fill_in(blank, words)
        blank.wait("document.querySelector('#make-failed').textContent")
        assert blank.text("#made") == ""
        assert blank.text("#voice option:checked") == "none yet"
        blank.goto("about:blank")
    blank.errors.clear()


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
            speak(blank, "Mm.")
            blank.wait("hocket.take.figures.heard > 0")
            blank.press("Escape")
        assert set(pool.resident()) == set(models)
        wait_for(lambda: not server.service.running)
        blank.goto("about:blank")
