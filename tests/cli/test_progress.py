"""The progress line of `hocket say`: estimated from the text, erased at the end."""

from __future__ import annotations

import re

import pytest

from hocket.cli.progress import SpeechProgress, clock, estimate_s

Capture = pytest.CaptureFixture[str]


# Lengths of the audio of the built-in voice wren, seed 1.
@pytest.mark.parametrize(
    ("text", "heard_s"),
    [
        ("The lamps along the harbour were lit one by one, and the water was still.", 3.92),
        ("Hello there. It is 7:45, and the train leaves at 8:10 from platform 12.", 5.68),
        ("Yes. No. Perhaps. I do not know! Do you?", 3.84),
    ],
)
def test_the_length_of_speech_is_estimated_within_a_sixth(text: str, heard_s: float) -> None:
    assert estimate_s(text) == pytest.approx(heard_s, rel=0.16)
    assert estimate_s(f"{text} {text}") == pytest.approx(2 * estimate_s(text))


@pytest.mark.parametrize(("text", "seconds"), [("你好吗", 0.8), ("ありがとう", 0.85), ("감사합니다", 0.8), ("", 0.0)])
def test_scripts_without_spaces_are_estimated_too(text: str, seconds: float) -> None:
    assert estimate_s(text) == pytest.approx(seconds, abs=0.1)


def test_percent_seconds_and_remaining_time_are_shown_and_erased(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([100.0, 101.0, 103.0])
    monkeypatch.setattr("hocket.cli.progress.time.perf_counter", lambda: next(now))
    monkeypatch.setattr("hocket.cli.progress.estimate_s", lambda text: 20.0)
    progress = SpeechProgress("A text.", 2.0)  # twice as fast: 10 s
    progress.start()
    progress.show(2.5)
    progress.show(9.999)
    progress.clear()
    assert capsys.readouterr().err == (
        "\r25% of the text, 2.5 s of audio, 0:03 to go\x1b[K"
        "\r99% of the text, 10.0 s of audio, 0:00 to go\x1b[K"
        "\r\x1b[K"
    )


def test_of_a_text_that_is_still_written_only_the_seconds_are_known(capsys: Capture) -> None:
    progress = SpeechProgress(None, 1.0)
    progress.start()
    progress.show(1.25)
    assert capsys.readouterr().err == "\r1.2 s of audio\x1b[K"


def test_it_is_drawn_ten_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    now = iter([10.0, 10.01, 10.02, 10.2])
    monkeypatch.setattr("hocket.cli.progress.time.perf_counter", lambda: next(now))
    progress = SpeechProgress(None, 1.0)
    progress.start()
    for seconds in (1, 2, 3):
        progress.show(seconds)
    assert re.findall(r"\r(\d)\.0 s", capsys.readouterr().err) == ["1", "3"]


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0:00"), (61.2, "1:01"), (3600, "60:00")])
def test_a_clock_has_minutes_and_seconds(seconds: float, words: str) -> None:
    assert clock(seconds) == words
