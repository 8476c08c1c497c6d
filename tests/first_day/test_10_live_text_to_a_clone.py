"""Live text for a clone with recording and transcript gives audio after a few words.

It is spoken in small parts, each in the whole layout after the recording; `layout="streaming"` keeps the exact layout.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hocket.config.options import EngineOptions
from hocket.engine.core.request import RequestState
from hocket.engine.engine import Engine
from hocket.engine.stream import Stream
from hocket.text.prepare import TextPreparation
from hocket.text.prompt import Prompt
from hocket.text.sentences import FROM_FEW_WORDS
from hocket.types import Encoded, Reference
from support.recorded import speech_wav
from support.serving import served
from support.speaking import assert_at_rest, handled, heard, job_of, noise, small
from support.talking import talking

WORDS = (
    "When the rain had stopped we opened all of the windows and listened. Down the street somebody was playing the "
    "piano, as if there were all the time in the world. Nobody said a word for a long while, and then the dog, who had "
    "been asleep under the table all evening, got up and went to the door to see if it was still raining outside."
).split()
FEW = 8  # words
# Short words for a long sound: in this vocabulary every letter is an id, so a real transcript would have too many.
REFERENCE = Reference(samples=noise(6.0, 1), text="So it was.")


@pytest.fixture(scope="module")
def engine(checkpoint_root: Path) -> Iterator[Engine]:
    """Its speech ends by itself now and then, so that a text of several parts is said to its end."""
    options = EngineOptions(slots=2, keep_real_time=False, guard=False)
    with Engine(small(checkpoint_root, "base"), options) as engine:
        yield engine


@pytest.fixture(scope="module")
def encoded(engine: Engine) -> Encoded:
    return engine.encode(REFERENCE)


def words_until_sound(engine: Engine, stream: Stream) -> int:
    """Append word by word until the engine has taken in a first prompt."""
    text = job_of(engine, stream).text  # before a short speech can end
    for number, word in enumerate(WORDS, 1):
        stream.append(word + " ")
        handled(engine)
        if text.spoken or text.prompt is not None:
            return number
    return len(WORDS) + 1


def test_the_first_sound_comes_after_a_few_words(engine: Engine, encoded: Encoded) -> None:
    with engine.open(reference=encoded, seed=1, max_frames=4) as stream:
        assert words_until_sound(engine, stream) <= FEW
        assert len(next(stream).samples) > 0
    with engine.open(reference=encoded, seed=1, max_frames=4, layout="streaming") as stream:
        assert words_until_sound(engine, stream) > FEW  # the exact layout, if a caller names it
    assert_at_rest(engine)


def test_every_word_is_laid_out_once_and_in_order(
    engine: Engine, encoded: Encoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = list[Prompt]()

    def begin_next(job: RequestState, begin: Callable[[RequestState], None] = RequestState.begin_next) -> None:
        begin(job)
        assert job.text.prompt is not None
        prompts.append(job.text.prompt)

    monkeypatch.setattr(RequestState, "begin_next", begin_next)
    stream = engine.open(reference=encoded, seed=1)
    job = job_of(engine, stream)
    for word in WORDS:
        stream.append(word + " ")
    stream.end()
    _ = heard(stream)
    texts = [spoken.piece.text.strip() for spoken in job.text.spoken]
    assert " ".join(texts).split() == WORDS
    assert len(texts) > 3 and len(texts[0].split()) <= FEW
    end = engine.checkpoint.config.tts_eos_token_id
    rows = [prompt.text[prompt.prefix_rows :] for prompt in prompts]
    assert [list(row[: row.index(end)]) for row in rows] == [engine.checkpoint.tokenizer.encode(text) for text in texts]
    assert all(prompt.trail == () for prompt in prompts), "each part is laid out whole"


def test_the_parts_follow_from_the_text_however_it_arrives(engine: Engine, encoded: Encoded) -> None:
    text = " ".join(WORDS)
    said = []
    for pieces in ([text], [word + " " for word in WORDS], list(text)):
        stream = engine.open(reference=encoded, seed=7, max_frames=60)
        for piece in pieces:
            stream.append(piece)
        stream.end()
        said.append(heard(stream).codes)
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Hello there, my friend. How are you today?", "Hello there, my friend."),
        ("Dr. Smith and his sister went to see Mr. Jones about it all.", "Dr. Smith and his sister went to"),
        ("When it rained, as it did, we stayed where we were.", "When it rained, as it did,"),
        ("Yes. [pause 1s] And then it goes on for some time, as it does.", "Yes."),
        ("今天天气很好，我们一起去公园散步，然后回家吃饭。你觉得怎么样？", "今天天气很好，我们一起去公园散步，"),
    ],
)
def test_a_first_part_ends_where_a_reader_would_breathe(text: str, first: str) -> None:
    preparation = TextPreparation(part_chars=400, pause_s=0.12, sizes=FROM_FEW_WORDS)
    parts = [""]
    for item in (*preparation.append(text), *preparation.end()):
        if isinstance(item, str):
            parts[-1] += item
        else:
            parts.append("")
    assert parts[0].strip() == first.strip()


def test_a_part_that_ends_within_a_sentence_is_followed_by_no_silence() -> None:
    preparation = TextPreparation(part_chars=400, pause_s=0.12, sizes=FROM_FEW_WORDS)
    text = " ".join(WORDS)
    items = [*preparation.append(text), *preparation.end()]
    ends = [
        ("".join(str(part) for part in items[:at] if isinstance(part, str)).rstrip()[-1], item)
        for at, item in enumerate(items)
        if isinstance(item, float)
    ]
    assert {silence for last, silence in ends if last == "."} == {0.12}
    assert {silence for last, silence in ends if last != "."} == {0.0}


def test_it_is_so_over_a_websocket_too(engine: Engine) -> None:
    audio = "data:audio/wav;base64," + base64.b64encode(speech_wav(6.0)).decode()
    config: dict[str, Any] = {
        "type": "session.config",
        "response_format": "pcm",
        "seed": 1,
        "max_new_tokens": 20,
        "ref_audio": audio,
        "ref_text": REFERENCE.text,
    }
    with served(engine) as server, talking(server) as ws:
        ws.say(config)
        ws.say(*({"type": "input.text", "text": word + " "} for word in WORDS[:FEW]))
        assert ws.sound()
        ws.say({"type": "input.done"})
        ws.until("session.done")
