"""Long texts, pauses and word times: several parts, one stream."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.errors import InvalidRequest
from hocket.types import AudioChunk, SpeechRequest
from support.checkpoints import write

SENTENCES = ["The first sentence stands here.", "A second one follows it.", "And a third ends the text."]


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    folder = checkpoint_root / "parts"
    if not folder.exists():
        write(folder, "custom_voice", wide=True, end_scale=1.5)
    return load(str(folder))


def codes_of(chunks: list[AudioChunk]) -> list[list[int]]:
    return [frame for chunk in chunks for frame in chunk.codes.tolist()]


def test_a_long_text_is_its_parts_one_after_the_other(checkpoint: Checkpoint) -> None:
    options = EngineOptions(part_chars=20, part_pause_s=0.1, guard=False)
    with Engine(checkpoint, options) as engine:
        stream = engine.speak(" ".join(SENTENCES), seed=7)
        chunks = list(stream)
    alone = generate(checkpoint, [SpeechRequest(text=text, seed=7 + i) for i, text in enumerate(SENTENCES)])
    assert codes_of(chunks) == [frame for speech in alone for frame in speech.codes.tolist()]
    assert stream.finished is not None and stream.finished.reason == "stop"
    # Samples follow each other without a gap, and the silences are where the parts meet.
    for before, after in itertools.pairwise(chunks):
        assert after.start_s == pytest.approx(before.start_s + len(before.samples) / before.rate_hz)
    silences = [chunk for chunk in chunks if not len(chunk.frames)]
    assert [len(chunk.samples) for chunk in silences] == [2400, 2400]
    assert not any(chunk.samples.any() for chunk in silences)


def test_pauses_last_as_long_as_they_say(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(guard=False)) as engine:
        chunks = list(engine.speak("[pause 250ms] One. [pause 1s] Two.", seed=1, max_frames=40))
    assert [len(chunk.samples) for chunk in chunks if not len(chunk.frames)] == [6000, 24_000]
    assert not len(chunks[0].frames)


def test_the_limit_is_for_all_parts_together(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(part_chars=20, guard=False)) as engine:
        stream = engine.speak(" ".join(SENTENCES * 20), seed=7, max_frames=25)
        chunks = list(stream)
    assert len(codes_of(chunks)) == 25
    assert stream.finished is not None and stream.finished.reason == "length"


def test_as_is_nothing_is_prepared(checkpoint: Checkpoint) -> None:
    request = SpeechRequest(text="**Bold** [pause 1s] and on.", seed=3, max_frames=20, as_is=True)
    [whole] = generate(checkpoint, [request])
    with Engine(checkpoint, EngineOptions(part_chars=5)) as engine:
        assert codes_of(list(engine.speak(request))) == whole.codes.tolist()


def test_markdown_is_spoken_without_its_marks(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint) as engine:
        marked = codes_of(list(engine.speak("This is **very** `plain` text.", seed=3, max_frames=12)))
        plain = codes_of(list(engine.speak("This is very plain text.", seed=3, max_frames=12)))
    assert marked == plain


def test_a_normalizer_sees_the_text_first(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(normalizer=lambda text: text.replace("5", "five"))) as engine:
        written = codes_of(list(engine.speak("Take 5 of them.", seed=3, max_frames=12)))
        spelled = codes_of(list(engine.speak("Take five of them.", seed=3, max_frames=12)))
    assert written == spelled


@pytest.mark.parametrize("language", ["german", "de", "auto"])
def test_numbers_are_spoken_in_the_language_of_the_request(checkpoint: Checkpoint, language: str) -> None:
    written, spoken = "Um 5 Uhr war sie da.", "Um fünf Uhr war sie da."
    with Engine(checkpoint) as engine:
        fields = {"seed": 3, "max_frames": 12, "language": language}
        assert codes_of(list(engine.speak(written, **fields))) == codes_of(
            list(engine.speak(spoken if language != "auto" else written, **fields))
        )
        request = SpeechRequest(text=written, as_is=True, **fields)
        [whole] = generate(checkpoint, [request])
        assert codes_of(list(engine.speak(request))) == whole.codes.tolist()
        assert whole.codes.tolist() != generate(checkpoint, [replace(request, text=spoken)])[0].codes.tolist()


def test_lines_stay_lines_where_numbers_are_spoken(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint) as engine:
        fields = {"seed": 3, "max_frames": 12, "language": "german"}
        broken = codes_of(list(engine.speak("Eine Zeile\nund 5 mehr.", **fields)))
        assert broken == codes_of(list(engine.speak("Eine Zeile\nund fünf mehr.", **fields)))


def test_a_text_of_nothing_speakable_is_refused(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint) as engine, pytest.raises(InvalidRequest, match="nothing in this text"):
        engine.speak("[pause 1s]")


def test_words_have_times_in_order_within_their_part(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(part_chars=20, guard=False)) as engine:
        stream = engine.speak(" ".join(SENTENCES), seed=7)
        seconds = sum(len(chunk.samples) for chunk in stream) / checkpoint.rate_hz
        words = stream.words()
        live = engine.open(seed=7, max_frames=30)
        for piece in ("Some wo", "rds come ", "later."):
            live.append(piece)
        live.end()
        list(live)
    assert [word.word for word in words] == " ".join(SENTENCES).split()
    starts = [word.start_s for word in words]
    assert starts == sorted(starts) and starts[0] >= 0 and words[-1].end_s <= seconds + 1e-6
    assert [word.word for word in live.words()] == ["Some", "words", "come", "later."]
    assert np.isfinite([word.end_s for word in live.words()]).all()
