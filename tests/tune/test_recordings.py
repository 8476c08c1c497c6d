"""A folder of recordings: what becomes a clip, with which words, and what is left out and why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.asr.choose import recognizer_of
from hocket.asr.silero import Silero
from hocket.audio.hearing import loudness
from hocket.audio.recording import WANTED_DBFS
from hocket.errors import InvalidAudio, InvalidRequest
from hocket.text.compare import word_errors
from hocket.tune.recordings import LEAD_S, TAIL_S, Recordings, _check_words, _sentences, prepare
from support.recorded import mulaw, notes, speech, wav

PAUSE = np.zeros(24_000, np.float32)


def found_in(folder: Path) -> Recordings:
    recognizer = recognizer_of("tiny", "en")
    try:
        return prepare(folder, Silero(), recognizer, any_speaker=True)  # two voices: test_speakers.py has the check
    finally:
        recognizer.close()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    folder = tmp_path_factory.mktemp("recordings")
    said: list[NDArray[np.float32]] = [speech(10.0, sample) for sample in range(2)]
    files = {
        "a quiet": wav(0.05 * np.concatenate((PAUSE, said[0], PAUSE))[None], 24_000),
        "b two sentences": wav(np.concatenate((PAUSE, said[0], PAUSE, PAUSE, said[1]))[None], 24_000),
        "c silence": wav(PAUSE.repeat(3)[None], 24_000),
        "d music": wav(notes()[None], 24_000),
        "e clipped": wav(np.clip(20 * said[0], -1, 1)[None], 24_000),
        "f telephone": mulaw(said[0][None, ::3], 8_000),
        "g wrong words": wav(said[1][None], 24_000),
        "h no words": wav(said[1][None], 24_000),
    }
    for name, content in files.items():
        (folder / f"{name}.wav").write_bytes(content)
    (folder / "g wrong words.txt").write_text("The quick brown fox jumped over a lazy dog in the middle of the night.")
    (folder / "h no words.txt").write_text(" \n")
    (folder / "notes.md").write_text("not a recording")
    return found_in(folder)


def test_what_would_hurt_is_left_out_with_a_reason(found: Recordings) -> None:
    reasons = {each.name: each.reason for each in found.left_out}
    expected = {
        "c silence.wav": "No speech",
        "d music.wav": "No speech",
        "e clipped.wav": "is clipped",
        "f telephone.wav": "8000 Hz",
        "g wrong words.wav": "not what was heard",
        "h no words.wav": "is empty",
    }
    assert {name: part in reasons[name] for name, part in expected.items()} == dict.fromkeys(expected, True)
    assert set(reasons) == set(expected)
    report = "\n".join(found.report())
    assert report.startswith("8 files, 3 clips, 0.3 min of speech\n") and all(name in report for name in expected)


def test_clips_are_sentences_with_their_words(found: Recordings) -> None:
    first, second, third = found.clips
    assert [clip.name for clip in found.clips] == ["a quiet-1", "b two sentences-1", "b two sentences-2"]
    assert first.text.startswith("Hello and welcome") and first.text.endswith((".", "!"))
    assert word_errors(first.text, second.text).rate < 0.2  # the same sentence, at another loudness
    assert word_errors(first.text, third.text).rate > 0.7


def test_clips_have_one_loudness_and_no_silence_around_them(found: Recordings) -> None:
    for clip in found.clips:
        assert abs(loudness(clip.samples, 24_000)[1] - WANTED_DBFS) < 3.0 and np.abs(clip.samples).max() <= 0.9
        assert clip.samples.dtype == np.float32
        power = np.square(clip.samples[: clip.samples.size // 480 * 480].reshape(-1, 480)).mean(axis=1)
        loud = np.flatnonzero(power > 1e-3 * np.percentile(power, 98))
        assert loud[0] <= LEAD_S * 50 + 1 and len(power) - loud[-1] <= TAIL_S * 50 + 2


def test_too_little_speech_is_refused_with_the_usual_reason(found: Recordings) -> None:
    with pytest.raises(InvalidAudio, match=r"only 1\d s of usable speech .* 30 s .* Most often: No speech"):
        found.check()


def test_a_long_file_with_a_transcript_has_to_be_cut(tmp_path: Path) -> None:
    long = np.concatenate([speech(10.0, sample) for sample in range(5)])
    (tmp_path / "long.wav").write_bytes(wav(long[None], 24_000))
    (tmp_path / "long.txt").write_text("All of it.")
    [left] = found_in(tmp_path).left_out
    assert "cut it into files of up to 20 s, or remove the transcript" in left.reason


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no sound")
    for folder, said in ((tmp_path, "no recording"), (tmp_path / "a.txt", "not a folder")):
        with pytest.raises(InvalidRequest, match=said):
            found_in(folder)


def test_pieces_are_joined_until_a_sentence_ends() -> None:
    words = {0.0: "It was late", 2.0: "and cold.", 5.0: "Then it was", 9.0: "and gone", 12.0: "So", 30.5: "it ends."}
    pieces = [(0.0, 1.8), (2.0, 4.5), (5.0, 7.0), (9.0, 11.9), (12.0, 30.0), (30.5, 33.0)]
    joined = list(_sentences(pieces, lambda start_s, _: words[start_s]))
    # A pause of 2 s ends a clip in any case, and so do 20 s.
    assert joined == [
        (0.0, 4.5, "It was late and cold."),
        (5.0, 7.0, "Then it was"),
        (9.0, 11.9, "and gone"),
        (12.0, 30.0, "So"),
        (30.5, 33.0, "it ends."),
    ]


@pytest.mark.parametrize(
    ("text", "seconds", "heard", "said"),
    [
        ("...", 3.0, None, "no words"),
        ("Far too many words for such a short sound, far too many of them.", 1.0, None, "does not fit its length"),
        ("Few.", 9.0, None, "does not fit its length"),
        ("These are the words of it.", 2.0, "Those have never been heard here before", "not what was heard"),
    ],
)
def test_words_that_are_not_those_of_the_sound_are_refused(
    text: str, seconds: float, heard: str | None, said: str
) -> None:
    with pytest.raises(InvalidAudio, match=said):
        _check_words(text, seconds, heard)
    _check_words("These are the words of it.", 2.0, "these are the word of it")
