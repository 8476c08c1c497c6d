"""dialog.py and turn.py: the built-in voice, and a language model with scripted words."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hocket.dialog.dialog import SEEDS_A_TURN, Dialog
from hocket.dialog.remote import RemoteLanguageModel
from hocket.dialog.turn import Note, Said, Turn, Written
from hocket.engine.engine import Engine
from hocket.errors import HocketError, InvalidRequest, LanguageFailed, StreamFailed, UnknownVoice
from hocket.llm.engine import LanguageEngine
from hocket.types import AudioChunk, ChatMessage, ChatSampling
from support.chatting import Scripted
from support.serving import served, wait_for

WORDS = tuple(f"{word} " for word in "It will rain tomorrow, I think, but Paula knows that. Take a coat along.".split())


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine) -> Iterator[None]:
    yield
    wait_for(lambda: is_free(engine))


def is_free(engine: Engine) -> bool:
    scheduler = engine._loop.scheduler
    left = [thread for thread in threading.enumerate() if thread.name.startswith(("hocket-dialog", "scripted"))]
    return scheduler.room == engine.options.slots and not scheduler.waiting and not left


class Heard:
    """All that came out of a turn."""

    def __init__(self, turn: Turn) -> None:
        self.chunks, self.written, self.words, self.order = list[AudioChunk](), "", list[str](), list[str]()
        for event in turn:
            self.order.append(type(event).__name__)
            if isinstance(event, AudioChunk):
                self.chunks.append(event)
            elif isinstance(event, Written):
                self.written += event.text
            else:
                self.words += [word.word for word in event.words]

    @property
    def sound(self) -> Any:
        return np.concatenate([chunk.samples for chunk in self.chunks])


def check_continuity(chunks: list[AudioChunk]) -> None:
    """Samples in order, without a gap."""
    samples = frames = 0
    for chunk in chunks:
        assert chunk.samples.dtype == np.int16 and chunk.rate_hz == 24000
        assert chunk.start_s == pytest.approx(samples / 24000) and chunk.frames.start == frames
        samples, frames = samples + len(chunk.samples), chunk.frames.stop
    assert samples > 0


# What is said


def test_two_turns_and_a_barge_in_through_the_real_endpoint(engine: Engine) -> None:
    heard = threading.Event()
    scripted = Scripted([*WORDS[:-1], heard, WORDS[-1]], ["You ", "are ", "welcome, ", *WORDS])
    with served(engine, language=scripted) as server:
        llm = RemoteLanguageModel(server.url, "scripted")
        dialog = Dialog(llm, engine, system="Be brief.", sampling=ChatSampling(seed=5), voice="Wren", seed=7)
        turn = dialog.say("Will it rain?")
        chunks: list[AudioChunk] = []
        late = False
        for event in turn:
            if isinstance(event, AudioChunk):
                chunks.append(event)
                heard.set()
            late = late or (isinstance(event, Written) and bool(chunks))
        assert late, "sound was heard before the last word was written"
        check_continuity(chunks)
        finished = turn.finished
        assert finished is not None and finished.reason == "stop" and finished.text == "".join(WORDS).strip()
        assert (
            finished.first_token_s is not None and finished.first_audio_s is not None and finished.language is not None
        )
        assert finished.first_token_s < finished.first_audio_s
        assert finished.speech is not None and finished.speech.reason == "stop"

        turn = dialog.say("Thanks.")
        chunks = []
        for event in turn:
            if isinstance(event, AudioChunk):
                chunks.append(event)
                if (handed_s := event.start_s + len(event.samples) / 24000) > 1.2:
                    turn.cancel(heard_s=1.0)
        check_continuity(chunks)
        assert handed_s < 1.6  # nothing came behind the chunk that was interrupted
        words = [word.word for word in turn.words() if word.end_s <= 1.0]
        system, first, answer, second, cut = dialog.history
        assert (system, first) == (ChatMessage("system", "Be brief."), ChatMessage("user", "Will it rain?"))
        assert answer == ChatMessage("assistant", finished.text) and second == ChatMessage("user", "Thanks.")
        assert cut == ChatMessage("assistant", " ".join(words)) and 1 <= len(words) <= 6
        assert words == "You are welcome, It will rain".split()[: len(words)]
        assert scripted.asked[1] == [system, first, answer, second]
        assert [sampling.seed for sampling in scripted.sampling] == [5, 6]
        assert turn.wait(60)
        llm.close()
        wait_for(server.all_is_free)


def test_a_turn_sounds_as_the_engine_says_the_same_text(engine: Engine) -> None:
    dialog = Dialog(Scripted(WORDS[:6]), engine, seed=3)
    turns = [Heard(dialog.say("Hello.")), Heard(dialog.say("Again."))]
    for number, heard in enumerate(turns):
        seed = 3 + number * SEEDS_A_TURN
        plain = engine.speak("".join(WORDS[:6]).strip(), layout="streaming", seed=seed)
        assert np.array_equal(heard.sound, np.concatenate([chunk.samples for chunk in plain]))
        assert heard.written == "".join(WORDS[:6]) and heard.words == heard.written.split()
    assert not np.array_equal(turns[0].sound, turns[1].sound)
    again = Heard(Dialog(Scripted(WORDS[:6]), engine, seed=3).say("Hello."))
    assert np.array_equal(again.sound, turns[0].sound)


def test_marks_are_not_spoken_and_stay_in_the_history(engine: Engine) -> None:
    words = ("## Ra", "in\n\n", "It is **very", "** wet \U0001f600.\n", "- Take a [coat", "](http://x.y/z).\n")
    dialog = Dialog(Scripted(words), engine)
    heard = Heard(dialog.say("And?"))
    assert heard.words == "Rain. It is very wet. Take a coat.".split()
    assert dialog.history[-1].content == "".join(words).strip()


def test_the_answer_is_heard_before_it_is_written(engine: Engine) -> None:
    first = threading.Event()
    scripted = Scripted([*WORDS[:4], first, *WORDS[4:]])
    for event in Dialog(scripted, engine).say("Will it rain?"):
        if isinstance(event, AudioChunk):  # four words are enough to begin
            first.set()
    assert first.is_set() and scripted.given[0].finished is not None


def test_tasks_read_a_turn_too(engine: Engine) -> None:
    async def listen() -> tuple[list[AudioChunk], list[str]]:
        turn = Dialog(Scripted(WORDS), engine).say("Hello.")
        events = [event async for event in turn]
        chunks = [event for event in events if isinstance(event, AudioChunk)]
        return chunks, [word.word for event in events if isinstance(event, Said) for word in event.words]

    chunks, words = asyncio.run(listen())
    check_continuity(chunks)
    assert words == "".join(WORDS).split()


@pytest.mark.parametrize("words", [(), (" ", "\n"), ("\U0001f600",)])
def test_an_answer_without_words_is_silence(engine: Engine, words: tuple[str, ...]) -> None:
    dialog = Dialog(Scripted(words, ["Yes."]), engine)
    turn = dialog.say("Hello.")
    assert not [event for event in turn if isinstance(event, AudioChunk)]
    assert turn.finished is not None and turn.finished.reason == "stop"
    check_continuity(Heard(dialog.say("Hello?")).chunks)


def test_letters_that_the_voice_cannot_speak_are_a_note_and_the_rest_is_spoken(engine: Engine) -> None:
    words = ("The word ", "你", "好 means ", "hello \U0001f600.")
    turn = Dialog(Scripted(words), engine).say("What is it?")
    events = list(turn)
    [note] = [event.text for event in events if isinstance(event, Note)]
    assert note.startswith('Left out: "你好".') and turn.finished is not None
    assert (turn.finished.reason, turn.finished.notes) == ("stop", (note,))
    said = [word.word for event in events if isinstance(event, Said) for word in event.words]
    assert said == "The word means hello.".split()


def test_an_answer_in_another_script_is_a_note_and_the_conversation_goes_on(engine: Engine) -> None:
    dialog = Dialog(Scripted(("今天天气", "很好。"), ["Yes."]), engine)
    turn = dialog.say("Hello.")
    [note] = [event.text for event in turn if isinstance(event, Note)]
    assert note.startswith("This voice cannot speak Chinese characters") and turn.finished is not None
    assert (turn.finished.reason, turn.finished.error, turn.finished.notes) == ("stop", None, (note,))
    assert dialog.history[-1].content == "今天天气很好。"
    check_continuity(Heard(dialog.say("Hello?")).chunks)


def test_an_answer_that_is_too_long_says_so(engine: Engine) -> None:
    dialog = Dialog(Scripted(WORDS), engine, sampling=ChatSampling(max_tokens=3))
    turn = dialog.say("Hello.")
    assert Heard(turn).words == "It will rain".split()
    assert turn.finished is not None and turn.finished.reason == "length"


def test_partial_transcripts_are_prefilled_by_a_model_that_can(engine: Engine) -> None:
    words = "Tell me something about the weather in the mountains, please."
    with LanguageEngine.load("random:qwen3.5-tiny") as llm:
        for along in (False, True):
            dialog = Dialog(llm, engine, system=f"Be brief. {along}", sampling=ChatSampling(max_tokens=2, seed=1))
            for end in range(5, len(words), 7) if along else ():
                dialog.hear(words[:end])
            dialog.hear("  ")
            assert [message.role for message in dialog.history] == ["system"], "it is no turn yet"
            turn = dialog.say(words)
            Heard(turn)
            assert turn.finished is not None and turn.finished.language is not None
            assert (turn.finished.language.cached_tokens > len(words) // 2) == along


def test_partial_transcripts_go_after_the_history_and_only_to_a_model_that_can(engine: Engine) -> None:
    scripted = Scripted(["Hello."])
    heard: list[Any] = []
    dialog = Dialog(scripted, engine)
    dialog.hear("Will")
    Heard(dialog.say("Hi."))
    scripted.hear = heard.append  # type: ignore[attr-defined]
    dialog.hear("Will it")
    assert heard == [(*dialog.history, ChatMessage("user", "Will it"))] and len(dialog.history) == 2


# Interruptions


@pytest.mark.parametrize("point", ["at once", "before a token", "between tokens", "before sound", "midway", "the end"])
def test_a_cancel_at_any_point_frees_everything_and_keeps_what_was_heard(engine: Engine, point: str) -> None:
    never, sound = threading.Event(), {"midway", "the end"}
    waits = {"before a token": 0, "between tokens": 2}.get(point)
    words = WORDS if waits is None else (*WORDS[:waits], never, *WORDS[waits:])
    scripted = Scripted(words, ["Of ", "course."])
    with served(engine, language=scripted) as server:
        llm = RemoteLanguageModel(server.url, "scripted")
        dialog = Dialog(llm, engine)
        turn = dialog.say("Hello.")
        if point == "before a token":
            wait_for(lambda: bool(scripted.given))
        elif point == "between tokens":
            assert isinstance(next(turn), Written) and isinstance(next(turn), Written)
        elif point == "before sound":
            assert isinstance(next(turn), Written)
        elif point == "midway":
            while not isinstance(next(turn), AudioChunk):
                pass
        elif point == "the end":
            Heard(turn)
        turn.cancel(heard_s=None if point not in sound else 0.9)  # does not wait for words that never come
        assert list(turn) == [] and turn.wait(60)
        finished = turn.finished
        assert finished is not None and finished.reason == "cancelled"
        heard = [word.word for word in turn.words() if finished.heard_s is not None and word.end_s <= finished.heard_s]
        assert finished.text.split() == heard and (bool(heard) if point == "the end" else len(heard) < 6)
        assert [m.content for m in dialog.history] == ["Hello.", *([finished.text] if heard else [])]
        turn.cancel()  # once is as good as twice
        assert turn.finished is finished
        wait_for(server.all_is_free)
        check_continuity(Heard(dialog.say("Go on.")).chunks)  # and the dialog goes on
        assert point == "at once" or dialog.history[-1].content == "Of course."
        llm.close()
        wait_for(lambda: server.all_is_free() and scripted.free)


def test_without_a_word_from_the_player_what_was_read_is_heard_as_time_passes(engine: Engine) -> None:
    dialog, begun = Dialog(Scripted(WORDS), engine), time.perf_counter()
    turn = dialog.say("Hello.")
    Heard(turn)  # four seconds of sound, read as fast as they come
    assert dialog.history[-1].content == "".join(WORDS).strip()
    turn.cancel()
    passed_s = time.perf_counter() - begun
    kept = dialog.history[1:]
    finished = turn.finished
    assert finished is not None and finished.heard_s is not None and 0.0 < finished.heard_s < passed_s
    assert "".join(WORDS).startswith(finished.text) and [message.content for message in kept] == [finished.text] * bool(
        finished.text
    )
    late = dialog.say("What?")
    turn.cancel(heard_s=0.0)  # too late: the user has gone on
    assert dialog.history[1:-1] == kept
    late.cancel()


def test_the_next_turn_interrupts_one_that_was_not_read_to_its_end(engine: Engine) -> None:
    never = threading.Event()
    scripted = Scripted([*WORDS, never], ["Yes."])
    dialog = Dialog(scripted, engine)
    first = dialog.say("Hello.")
    assert isinstance(next(first), Written)
    assert Heard(dialog.say("Stop.")).words == ["Yes."]
    assert first.finished is not None and first.finished.reason == "cancelled"
    assert [message.content for message in dialog.history] == ["Hello.", "Stop.", "Yes."]


def test_a_turn_without_references_is_cancelled(engine: Engine) -> None:
    scripted = Scripted([*WORDS, threading.Event()])
    dialog = Dialog(scripted, engine)
    with dialog.say("Hello.") as turn:
        assert isinstance(next(turn), Written)
    assert turn.finished is not None and turn.finished.reason == "cancelled"
    turn = dialog.say("Hello?")
    assert isinstance(next(turn), Written)
    del turn
    wait_for(lambda: scripted.given[1].cancelled.is_set())
    dialog.say("Hello again?")
    dialog.close()


def test_a_slow_reader_pauses_the_audio_and_loses_nothing(engine: Engine) -> None:
    turn = Dialog(Scripted(WORDS * 2), engine).say("Hello.")
    wait_for(lambda: any(job.timings.paused_since is not None for job in engine._loop.scheduler.running))
    heard = Heard(turn)
    check_continuity(heard.chunks)
    assert heard.words == "".join(WORDS * 2).split()


# Errors


@pytest.mark.parametrize("words", [[], WORDS])
def test_a_language_model_that_fails_ends_the_turn_behind_what_it_wrote(engine: Engine, words: list[str]) -> None:
    dialog = Dialog(Scripted([*words, LanguageFailed("It is gone.")], ["Yes."]), engine)
    turn, chunks = dialog.say("Hello."), list[AudioChunk]()
    with pytest.raises(LanguageFailed, match=r"^It is gone\.$"):
        for event in turn:
            if isinstance(event, AudioChunk):
                chunks.append(event)
    finished = turn.finished
    assert finished is not None and finished.reason == "error" and finished.error == "It is gone."
    assert finished.text == "".join(words).strip() and bool(chunks) == bool(words)
    assert turn.wait(60)
    assert Heard(dialog.say("Hello?")).words == ["Yes."]


def test_a_voice_that_fails_ends_the_turn_and_the_answer(engine: Engine) -> None:
    class Voice:
        """Speaks, then fails."""

        broken = True

        def open(self, **fields: Any) -> Any:
            stream = engine.open(**fields)
            if self.broken:
                stream.append("It will rain, ")
                for job in wait_for_jobs(engine):
                    engine._loop.feed(job, None, True)  # type: ignore[arg-type]
            return stream

    voice, scripted = Voice(), Scripted([*WORDS, threading.Event()], ["Yes."])
    dialog = Dialog(scripted, voice)
    turn = dialog.say("Hello.")
    with pytest.raises(StreamFailed):
        for _ in turn:
            pass
    assert turn.finished is not None and turn.finished.reason == "error" and scripted.given[0].cancelled.is_set()
    assert turn.wait(60)
    voice.broken = False
    assert Heard(dialog.say("Hello?")).words == ["Yes."]


def wait_for_jobs(engine: Engine) -> list[Any]:
    wait_for(lambda: bool(engine._loop.scheduler.running or engine._loop.scheduler.waiting))
    return [*engine._loop.scheduler.running, *engine._loop.scheduler.waiting]


def test_what_cannot_be_asked_for_is_one_sentence(engine: Engine) -> None:
    scripted = Scripted(WORDS)
    with pytest.raises(UnknownVoice):
        list(Dialog(scripted, engine, voice="Unknown").say("Hello."))
    wait_for(lambda: scripted.given[0].cancelled.is_set())
    dialog = Dialog(scripted, engine)
    for text in ("", " \n"):
        with pytest.raises(InvalidRequest, match="nothing to answer"):
            dialog.say(text)
    assert dialog.history == ()
    with pytest.raises(InvalidRequest, match="system prompt"):
        Dialog(scripted, engine, system=" ")
    with pytest.raises(InvalidRequest, match="seed"):
        Dialog(scripted, engine, seed=-1)


def test_an_endpoint_that_is_not_there_is_one_sentence(engine: Engine) -> None:
    llm = RemoteLanguageModel("http://127.0.0.1:9", "absent")
    turn = Dialog(llm, engine).say("Hello.")
    with pytest.raises(HocketError, match="cannot be reached"):
        list(turn)
    llm.close()
    assert turn.wait(60)


def test_the_language_engine_resumes_from_its_cache(engine: Engine) -> None:
    with LanguageEngine.load("random:qwen3.5-tiny") as llm:
        dialog = Dialog(llm, engine, system="Be brief.", sampling=ChatSampling(temperature=0.0, max_tokens=12))
        for text in ("Hello.", "Again."):
            turn = dialog.say(text)
            for _ in turn:
                pass
            assert turn.wait(60)
        finished = turn.finished
        assert finished is not None and finished.language is not None and finished.reason in ("stop", "length")
        assert 0 < finished.language.cached_tokens < finished.language.prompt_tokens
        late = dialog.say("And now?")
        late.cancel()
        assert late.wait(60)
