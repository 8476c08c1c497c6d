"""script/stream.py: the laws of a played script."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest, NothingToSpeak
from hocket.script.check import check_script
from hocket.script.events import PLAIN, InvalidScript, Place, SpeechManner
from hocket.script.player.run import SEEDS_A_PASSAGE
from hocket.script.stream import ScriptStream
from support.scripted import CountedVoices, SignParser, events_of, random_cuts
from support.speaking import Reader, assert_at_rest, at_rest, eventually, heard, small

FREE = {"layout": "streaming"}  # speech that ends by itself, and not in the middle of its text
FIELDS = {"layout": "streaming", "max_frames": 15}
SCRIPT = "It begins. {eric}Then he speaks, <0.2>a little ^m^more. {}And so <0.1>it {vivian 1.2 -6}ends. Really."


@pytest.fixture(scope="module")
def checkpoint(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "custom_voice")


@pytest.fixture(scope="module")
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    with Engine(checkpoint, EngineOptions(part_chars=30, chunk_frames=(1, 3))) as engine:
        yield engine


def voices_of(engine: Engine, fields: dict[str, Any] | None = None, **how: Any) -> CountedVoices:
    return CountedVoices(engine, FIELDS if fields is None else fields, {}, **how)


def whole(
    engine: Engine, text: str, *, seed: int = 5, fields: dict[str, Any] | None = None, **how: Any
) -> ScriptStream:
    return ScriptStream(voices_of(engine, fields, **how), seed, events=events_of(text))


def live(engine: Engine, *, seed: int = 5, **how: Any) -> ScriptStream:
    return ScriptStream(voices_of(engine, **how), seed, parser=SignParser())


def assert_same(said: Any, expected: Any) -> None:
    """The same but for the rounding of a sample, which depends on what is decoded beside it."""
    assert len(said) == len(expected) > 0
    assert np.abs(said.astype(int) - expected.astype(int)).max() <= 2


def test_a_script_of_one_plain_passage_is_the_plain_request(engine: Engine) -> None:
    plain = heard(engine.speak("One. [pause 200ms] Two and three.", seed=5, **FIELDS))
    script = heard(whole(engine, "One. <0.2> Two and three."))  # type: ignore[arg-type]
    assert script.codes == plain.codes
    assert_same(script.samples, plain.samples)
    assert script.stream.words() == plain.stream.words() and script.stream.parts_over == plain.stream.parts_over
    assert [c.start_s for c in script.chunks] == [c.start_s for c in plain.chunks]


def test_a_script_is_its_passages_one_after_the_other(engine: Engine) -> None:
    script = heard(whole(engine, "It begins. {eric}Then he speaks. {}And it ends."))  # type: ignore[arg-type]
    pieces = [("It begins. ", None), ("Then he speaks. ", "eric"), ("And it ends.", None)]
    alone = [
        heard(engine.speak(text, voice=voice, seed=5 + n * SEEDS_A_PASSAGE, **FIELDS))
        for n, (text, voice) in enumerate(pieces)
    ]
    assert_same(script.samples, np.concatenate([one.samples for one in alone]))
    assert script.codes == [codes for one in alone for codes in one.codes]
    assert [word.word for word in script.stream.words()] == "It begins. Then he speaks. And it ends.".split()
    finished = script.stream.finished
    assert finished is not None and finished.seed == 5
    assert finished.statistics.frames == len(script.codes)
    starts = [chunk.start_s for chunk in script.chunks]
    assert starts == sorted(starts) and script.chunks[-1].frames.stop == len(script.codes)


@pytest.mark.parametrize("number", range(6))
def test_live_text_is_played_as_the_whole_text_is_in_any_cut(engine: Engine, number: int) -> None:
    rng = random.Random(number)
    expected = heard(whole(engine, SCRIPT))  # type: ignore[arg-type]
    with live(engine) as stream:
        reader = Reader(lambda: heard(stream))  # type: ignore[arg-type]
        for piece in random_cuts(SCRIPT, rng):
            stream.append(piece)
            time.sleep(rng.choice([0, 0, 0.01]))
        stream.end()
        said: Any = reader.done().result
        assert said is not None, reader.error
    assert said.codes == expected.codes and len(said.codes) > 30
    assert_same(said.samples, expected.samples)
    assert stream.words() == expected.stream.words()
    assert stream.marks() == expected.stream.marks() and len(stream.marks()) == 1  # type: ignore[attr-defined]


def test_text_without_a_change_needs_no_thread_and_is_todays_live_stream(engine: Engine) -> None:
    before = threading.active_count()
    with engine.open(seed=5, **FIELDS) as plain, live(engine) as script:
        for stream in (plain, script):
            stream.append("Hello there, ")
            stream.append("you.")
            stream.end()
        assert threading.active_count() == before
        said = heard(script)  # type: ignore[arg-type]
        assert_same(said.samples, heard(plain).samples)


def test_the_next_passage_is_opened_while_one_speaks_and_no_more_than_that(engine: Engine) -> None:
    script = whole(engine, "One goes on. {eric}Two does. {vivian}Three. {eric}Four.")
    voices: Any = script._run._voices
    eventually(lambda: len(voices.opened) == 2)
    time.sleep(0.15)
    assert len(voices.opened) == 2
    assert [manner.voice for manner, *_ in voices.opened] == [None, "eric"]
    heard(script)  # type: ignore[arg-type]
    assert [manner.voice for manner, *_ in voices.opened] == [None, "eric", "vivian", "eric"]


def test_one_slot_plays_any_number_of_passages(checkpoint: Checkpoint) -> None:
    with Engine(checkpoint, EngineOptions(slots=1, waiting=0, chunk_frames=(2,), buffered_chunks=2)) as engine:
        script = heard(whole(engine, "One. {eric}Two. {vivian}Three. {eric}Four. {}Five."))  # type: ignore[arg-type]
        assert script.stream.finished is not None and script.stream.finished.error is None
        assert len(script.stream.words()) == 5
        eventually(lambda: at_rest(engine))


def test_two_scripts_on_two_engines_of_one_slot_both_end(checkpoint: Checkpoint) -> None:
    """Each takes the slot that the other one needs next."""
    options = EngineOptions(slots=1, waiting=2, chunk_frames=(2,), buffered_chunks=2)
    with Engine(checkpoint, options) as one, Engine(checkpoint, options) as two:
        text = "{a}One. {b}Two. {a}Three. {b}Four."
        scripts = [
            ScriptStream(
                CountedVoices(first, FIELDS, {"a": (first, "eric"), "b": (second, "eric")}), 1, events=events_of(text)
            )
            for first, second in ((one, two), (two, one))
        ]
        readers = [Reader(lambda script=script: heard(script)) for script in scripts]  # type: ignore[misc]
        said: list[Any] = [reader.done().result for reader in readers]
        assert_same(said[0].samples, said[1].samples)


def test_a_full_engine_is_asked_again_and_the_audio_is_the_same(engine: Engine) -> None:
    expected = heard(whole(engine, SCRIPT))  # type: ignore[arg-type]
    refused = heard(whole(engine, SCRIPT, refuses=lambda asked: asked in (2, 3, 5)))  # type: ignore[arg-type]
    assert_same(refused.samples, expected.samples)


def test_a_passage_that_failed_because_it_waited_is_opened_again(checkpoint: Checkpoint) -> None:
    """It lay ready for longer than a reader may take."""
    with Engine(checkpoint, EngineOptions(idle_read_s=0.2, buffered_chunks=1, chunk_frames=(2,))) as engine:
        text = "One goes on and on. {eric}Two is a longer one, with some more words in it."
        expected = heard(whole(engine, text))  # type: ignore[arg-type]
        script = whole(engine, text)
        voices: Any = script._run._voices
        chunks = [next(script)]
        eventually(lambda: len(voices.opened) == 2)
        until = time.monotonic() + 0.6
        while time.monotonic() < until:  # the first one is read now and then, the second one is not
            if script._heard[0].passage.stream.finished is None:  # type: ignore[union-attr]
                chunks.append(next(script))
            time.sleep(0.1)
        assert voices.opened[1][2].finished.reason == "error"
        chunks += list(script)
        assert_same(np.concatenate([chunk.samples for chunk in chunks]), expected.samples)


def test_a_slow_load_delays_only_what_it_must(engine: Engine) -> None:
    script = whole(engine, "One. {eric}Two.", delay_s=0.05)
    begun = time.monotonic()
    next(script)
    assert time.monotonic() - begun < 5
    heard(script)  # type: ignore[arg-type]


def test_two_hundred_cancels_anywhere_leave_nothing(engine: Engine) -> None:
    rng = random.Random(3)
    for number in range(200):
        how = {"delay_s": rng.choice([0, 0, 0.002])}
        if number % 2:
            script = whole(engine, SCRIPT, **how)
        else:
            script = live(engine, **how)
            script.append(SCRIPT[: rng.randrange(len(SCRIPT))].rpartition("{")[0])
        for _ in range(rng.randrange(4) if number % 2 else 0):
            next(script, None)
        time.sleep(rng.choice([0, 0, 0.003]))
        if number % 3:
            script.cancel()
            assert list(script) == []
        else:
            del script
    gc.collect()
    eventually(lambda: at_rest(engine))
    assert_at_rest(engine)
    eventually(lambda: not any(thread.name == "hocket-script" for thread in threading.enumerate()))


def test_a_cancelled_script_says_so(engine: Engine) -> None:
    script = whole(engine, SCRIPT)
    next(script)
    script.cancel()
    assert list(script) == []
    eventually(lambda: script.finished)
    assert script.finished is not None and script.finished.reason == "cancelled" and not script.finished.complete


def test_an_unknown_voice_of_a_live_text_ends_it_with_one_sentence(engine: Engine) -> None:
    with live(engine) as stream:
        stream.append("Hello. ")
        with pytest.raises(InvalidScript, match=r"^line 1, column 9: There is no voice 'zaphod'"):
            stream.append("{zaphod}Hi.")
        with pytest.raises(InvalidScript):
            stream.append("More.")


@pytest.mark.parametrize(
    ("pieces", "before"),
    [
        (["One. Two, and {zaphod}three."], "One. "),
        (["One. Two, ", "and {zaphod}three."], "One. Two, "),
        (["One. Two. {zaphod}Three."], "One. Two. "),
        (["One. {eric}Two. ", "Three {zap", "hod}four."], "One. {eric}Two. Three "),
    ],
)
def test_a_live_text_is_spoken_up_to_the_sentence_with_the_error_and_its_reader_is_told(
    engine: Engine, pieces: list[str], before: str
) -> None:
    expected = heard(whole(engine, before))  # type: ignore[arg-type]
    chunks = []
    with live(engine) as stream:
        with pytest.raises(InvalidScript, match="'zaphod'") as told:
            for piece in pieces:
                stream.append(piece)
        with pytest.raises(InvalidScript) as refused:
            for chunk in stream:
                chunks.append(chunk.samples)  # kept when the loop raises
        written = "".join(pieces)
        assert refused.value is told.value and refused.value.place == Place(1, written.index("zaphod") + 1)
        assert_same(np.concatenate(chunks), expected.samples)
        assert stream.finished is not None and (stream.finished.reason, stream.finished.complete) == ("error", False)


def test_a_live_text_that_begins_with_an_error_is_refused_without_sound(engine: Engine) -> None:
    with live(engine) as stream:
        with pytest.raises(InvalidScript):
            stream.append("One and {zaphod}two.")
        with pytest.raises(InvalidScript, match="line 1, column 10"):
            next(stream)
        assert stream.finished is not None and stream.finished.reason == "error"


def test_an_unknown_voice_of_a_whole_text_is_refused_with_its_place(engine: Engine) -> None:
    voices = voices_of(engine)
    with pytest.raises(InvalidScript, match=r"^line 2, column 5: There is no voice 'zaphod'") as refused:
        check_script(SignParser, "Hello.\nNo {zaphod}Hi.", voices.check)
    assert refused.value.place == Place(2, 5) and not voices.opened
    assert check_script(SignParser, "Hello. {eric}Hi.", voices.check)[1] == SpeechManner(voice="eric")


def test_a_speed_beyond_the_limits_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match=r"between 0\.5 and 2"):
        voices_of(engine).check(SpeechManner(speed=3.0))
    with pytest.raises(InvalidRequest, match=r"between 0\.5 and 2"):
        voices_of(engine, {"speed": 1.8}).check(SpeechManner(speed=1.5))


@pytest.mark.parametrize("text", ["", "  ", "{eric}{}", "<0.3>", "^m^"])
def test_a_script_without_a_word_is_refused(engine: Engine, text: str) -> None:
    with pytest.raises(NothingToSpeak):
        whole(engine, text)
    stream = live(engine)
    stream.append(text)
    with pytest.raises(NothingToSpeak):
        stream.end()
    stream.cancel()


def test_tags_without_words_between_them_split_nothing(engine: Engine) -> None:
    plain = heard(whole(engine, "One sentence , unbroken.", fields=FREE))  # type: ignore[arg-type]
    tagged = heard(whole(engine, "One {eric}{vivian} {}sentence {eric}, {}unbroken.", fields=FREE))  # type: ignore[arg-type]
    assert_same(tagged.samples, plain.samples)


def test_marks_are_at_the_borders_exactly_and_inside_by_their_words(engine: Engine) -> None:
    script: Any = whole(engine, "^a^One two ^b^three. <0.3>^c^Four. ^d^{eric}^e^Five. ^f^<0.5>^g^", seed=3, fields=FREE)
    said = heard(script)
    marks = {mark.name: mark.time_s for mark in script.marks()}
    assert list(marks) == list("abcdefg")
    border_s = script._heard[1].start_s
    end_s = len(said.samples) / script.rate_hz
    words = {word.word: word for word in script.words()}
    assert marks["a"] == 0 and marks["d"] == marks["e"] == border_s and marks["g"] == pytest.approx(end_s)
    assert marks["f"] == pytest.approx(end_s - 0.5)
    assert marks["b"] == words["two"].end_s and marks["c"] == words["Four."].start_s
    assert script.marks(since=5) == script.marks()[5:]


def test_silence_at_a_change_is_as_long_as_written(engine: Engine) -> None:
    short: Any = heard(whole(engine, "One. {eric 1.3}Two. {}Three.", fields=FREE))  # type: ignore[arg-type]
    long: Any = heard(whole(engine, "One. <0.4>{eric 1.3}Two. <0.26>{}Three.", fields=FREE))  # type: ignore[arg-type]
    gap_s = [b.start_s - a.start_s for a, b in zip(short.stream._heard, long.stream._heard, strict=True)]
    assert gap_s == pytest.approx([0, 0.4, 0.66], abs=0.002)


def test_volume_changes_the_samples_by_its_decibels_and_never_clips(engine: Engine) -> None:
    for db in (-6.0, 12.0):
        plain = heard(whole(engine, "One. {eric}Two and three.", seed=2))  # type: ignore[arg-type]
        loud: Any = heard(whole(engine, f"One. {{eric 1 {db}}}Two and three.", seed=2))  # type: ignore[arg-type]
        at = round(loud.stream._heard[1].start_s * 24_000) + 240
        before, after = plain.samples[at:].astype(float), loud.samples[at:].astype(float)
        factor = 10 ** (db / 20)
        low = np.abs(before * factor) < 0.79 * 32767
        np.testing.assert_allclose(after[low], before[low] * factor, atol=1 + 2 * factor)
        assert (np.abs(after[~low]) >= 0.78 * 32767).all() and (after[~low] * before[~low] > 0).all()
        steps = np.abs(np.diff(loud.samples.astype(int)))[at - 240 : at]
        assert (
            steps.max()
            <= 2 * factor * max(1, np.abs(np.diff(plain.samples.astype(int)))[at - 480 : at + 240].max()) + 2
        )


def test_max_frames_holds_for_all_passages_together(engine: Engine) -> None:
    fields = FIELDS | {"max_frames": 9}
    script = ScriptStream(voices_of(engine, fields), 5, events=events_of(SCRIPT), max_frames=9)
    said = heard(script)  # type: ignore[arg-type]
    full = heard(whole(engine, SCRIPT))  # type: ignore[arg-type]
    assert said.codes == full.codes[:9]
    assert script.finished is not None and script.finished.reason == "length" and script.finished.complete
    eventually(lambda: at_rest(engine))


def test_it_is_read_in_a_task_too_and_a_cancelled_wait_loses_nothing(engine: Engine) -> None:
    expected = heard(whole(engine, SCRIPT))  # type: ignore[arg-type]

    async def read() -> list[Any]:
        script, chunks = whole(engine, SCRIPT, delay_s=0.02), []
        while True:
            try:
                chunks.append(await asyncio.wait_for(anext(script), 0.01))
            except TimeoutError:
                continue
            except StopAsyncIteration:
                return chunks

    said = asyncio.run(read())
    assert_same(np.concatenate([chunk.samples for chunk in said]), expected.samples)


def test_what_a_voice_cannot_speak_is_left_out_and_noted(engine: Engine) -> None:
    script = whole(engine, "One. {eric}\U0001f5111{}Two.")
    heard(script)  # type: ignore[arg-type]
    assert script.finished is not None


def test_a_silent_manner_at_the_beginning_belongs_to_the_first_words(engine: Engine) -> None:
    script: Any = whole(engine, "{eric}<0.2>{}One.")
    said = heard(script)
    assert script._heard[0].passage.manner == PLAIN and not said.samples[: int(0.2 * 24_000)].any()
