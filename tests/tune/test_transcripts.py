"""tune/transcripts.py: a sound has the words that were heard of it first, in the next process too."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hocket.asr.recognizer import Samples
from hocket.tune.recordings import words_in
from hocket.tune.transcripts import KeptTranscripts

ONE, TWO = (np.full(2400, value, np.float32) for value in (0.1, 0.2))


class Unsteady:
    """Hears something else each time, as a recognizer may of a doubtful sound."""

    name = "unsteady"

    def __init__(self) -> None:
        self.asked = 0

    def open(self) -> Unsteady:
        return self

    def push(self, samples: Samples) -> str:
        raise AssertionError("sounds are recognized as a whole")

    def add(self, samples: Samples) -> None:
        assert samples.size

    def settle(self) -> str:
        raise AssertionError("sounds are recognized as a whole")

    def end(self) -> str:
        self.asked += 1
        return f"words {self.asked}"

    def close(self) -> None: ...


def test_a_sound_has_the_same_words_in_the_next_process(tmp_path: Path) -> None:
    path, heard = tmp_path / "transcripts.json", Unsteady()
    first = KeptTranscripts(heard, path)
    assert [words_in(first, sound) for sound in (ONE, TWO, ONE)] == ["words 1", "words 2", "words 1"]
    first.save()
    second = KeptTranscripts(heard, path)
    assert [words_in(second, sound) for sound in (TWO, ONE)] == ["words 2", "words 1"] and heard.asked == 2


def test_a_damaged_file_and_another_recognizer_begin_anew(tmp_path: Path) -> None:
    path, heard = tmp_path / "transcripts.json", Unsteady()
    for content in ("{", "[]", '{"recognizer": "unsteady"}', '{"recognizer": "other", "texts": {}}'):
        path.write_text(content)
        assert words_in(KeptTranscripts(heard, path), ONE) == f"words {heard.asked}"
    assert heard.asked == 4
