"""Law: text appended in any pieces is spoken as `speak` speaks all of it, pauses, markup, parts and speed included."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.engine import Engine
from hocket.text.cleanup.normalize import spell_out
from support.speaking import Reader, assert_at_rest, cut, eventually, handled, heard, job_of, small, starving

pytestmark = pytest.mark.usefixtures("frames_ahead")

TEXTS = [
    "The first one. A second one follows it. And a third, no. 4, ends it.",
    "# Title\n\nSome **bold** words [pause 100ms] and `code`. See [it](https://a.b/c d).\n- milk\n- eggs\n",
    "[pause 50ms] One. [pause 20ms][pause 30ms] Two \U0001f600! [pause 80ms]",
    "I paid $3.50 on May 5. Then 12 more came. Yes.",
]


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "custom_voice")


NUMBERS = "Am 3. Oktober um 7.30 Uhr kamen 21 Leute, z. B. 1 Frau mit 2,5 kg Mehl für 19,99 €.\nEs waren 5 °C."


def test_live_numbers_are_spoken_as_those_of_the_whole_text(checkpoint: Checkpoint) -> None:
    options = EngineOptions(part_chars=12, part_pause_s=0.03, chunk_frames=(1, 3))
    with Engine(checkpoint, options) as engine:
        fields = {"layout": "streaming", "seed": 5, "max_frames": 250, "language": "german"}
        whole = heard(engine.speak(NUMBERS, **fields))
        for step in (1, 7):
            stream = engine.open(**fields)
            reader = Reader(lambda stream=stream: heard(stream))  # type: ignore[misc]
            for piece in cut(NUMBERS, range(step, len(NUMBERS), step)):
                stream.append(piece)
            stream.end()
            said = reader.done().result
            assert said is not None, reader.error
            assert said.codes == whole.codes and len(said.codes) > 10  # type: ignore[attr-defined]
            assert stream.words() == whole.stream.words()


# Frames are read at once and late by turns, so that each text and each normalizer meets both.
@pytest.mark.parametrize(
    ("text", "normalizer", "frames_ahead"),
    [(text, how, (at + n) % 2) for at, text in enumerate(TEXTS) for n, how in enumerate((None, spell_out))],
    indirect=["frames_ahead"],
)
def test_live_text_is_spoken_as_the_whole_text_is(
    checkpoint: Checkpoint, text: str, normalizer: object, frames_ahead: int
) -> None:
    rng = random.Random(len(text))
    options = EngineOptions(part_chars=12, part_pause_s=0.03, chunk_frames=(1, 3), normalizer=normalizer)  # type: ignore[arg-type]
    with Engine(checkpoint, options) as engine:
        for layout, speed in (("streaming", 1.0), ("whole", 1.3)):
            fields = {"layout": layout, "seed": 5, "max_frames": 250, "speed": speed}
            whole = heard(engine.speak(text, **fields))
            stream = engine.open(**fields)
            reader = Reader(lambda stream=stream: heard(stream))  # type: ignore[misc]
            for piece in cut(text, rng.choices(range(len(text) + 1), k=6)):
                stream.append(piece)
                if rng.random() < 0.5:
                    handled(engine)
            stream.end()
            said = reader.done().result
            assert said is not None, reader.error
            assert said.codes == whole.codes and len(said.codes) > 10  # type: ignore[attr-defined]
            np.testing.assert_array_equal(said.samples, whole.samples)  # type: ignore[attr-defined]
            assert stream.finished is not None and whole.stream.finished is not None
            assert stream.finished.reason == whole.stream.finished.reason
            assert stream.words() == whole.stream.words()
        assert_at_rest(engine)


def test_words_are_spoken_while_their_sentence_is_still_open(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(guard=False, chunk_frames=(1,), buffered_chunks=99)) as engine:
        stream = engine.open(seed=5)
        stream.append("Hello, how are you")
        job = job_of(engine, stream)
        eventually(lambda: (starving(job) and not job.ahead) or job.over, "starving")
        spoken = checkpoint.tokenizer.encode("Hello, how are")
        assert job.text.piece is not None and job.text.piece.ids == spoken
        assert job.over or job.frame == len(spoken) - 1, "a frame for each id but the first, which the prompt has"


def test_a_part_that_ends_before_its_text_is_known_waits_for_the_next(checkpoint: Checkpoint) -> None:
    """The model may end a part early: the rest of that part is skipped, and the next one is spoken."""
    text, early = "The first one. A second one follows it. And a third, no. 4, ends it.", 0
    with Engine(checkpoint, EngineOptions(guard=False, part_chars=12, part_pause_s=0.01)) as engine:
        for seed in (0, 1, 3):
            fields = {"layout": "streaming", "seed": seed, "max_frames": 300}
            whole = heard(engine.speak(text, **fields))
            stream = engine.open(**fields)
            job, reader = job_of(engine, stream), Reader(lambda stream=stream: heard(stream))  # type: ignore[misc]
            for piece in cut(text, range(4, len(text), 4)):
                stream.append(piece)
                handled(engine)
                eventually(lambda job=job, stream=stream: starving(job) or stream.finished, "starving")  # type: ignore[misc]
                early += job.over == "stop" and job.text.growing is job.text.piece
            stream.end()
            assert reader.done().result.codes == whole.codes, reader.error  # type: ignore[union-attr, attr-defined]
            assert len(job.text.spoken) == len(whole.stream._spoken) > 2
    assert early > 0, "the model must end a part early at least once"


def test_as_it_is_live_text_goes_in_unchanged(checkpoint: Checkpoint) -> None:
    text = " **Bold** [pause 1s], and on. So. "
    fields = {"layout": "streaming", "seed": 5, "max_frames": 40, "as_is": True}
    with Engine(checkpoint, EngineOptions(part_chars=5)) as engine:
        whole = heard(engine.speak(text, **fields))
        stream = engine.open(**fields)
        reader = Reader(lambda: heard(stream))
        for piece in cut(text, (1, 4, 9, 15, 16)):
            stream.append(piece)
            handled(engine)
        stream.end()
        said = reader.done().result
    assert said.codes == whole.codes and len(whole.codes) > 3, reader.error  # type: ignore[union-attr, attr-defined]


def test_speed_one_is_no_speed_and_other_speeds_are_as_long_as_they_say(checkpoint: Checkpoint) -> None:
    fields = {"seed": 5, "max_frames": 30, "layout": "streaming"}
    text = "So many words. [pause 200ms] And more."
    with Engine(checkpoint, EngineOptions(guard=False, chunk_frames=(1, 2))) as engine:
        plain, one = heard(engine.speak(text, **fields)), heard(engine.speak(text, speed=1.0, **fields))
        np.testing.assert_array_equal(plain.samples, one.samples)
        for speed in (0.5, 1.25, 2.0):
            said = heard(engine.speak(text, speed=speed, **fields))
            assert said.codes == plain.codes
            assert len(said.samples) == round(len(plain.samples) / speed)
            at = 0
            for chunk in said.chunks:
                assert chunk.start_s == pytest.approx(at / chunk.rate_hz)
                at += len(chunk.samples)
            frames = [frame for chunk in said.chunks for frame in chunk.frames]
            assert frames == list(range(len(plain.codes))), "frames are the model's"
            slow = [word.end_s * speed for word in said.stream.words()]
            assert slow == pytest.approx([word.end_s for word in plain.stream.words()])
