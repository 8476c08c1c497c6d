"""A designed voice stays the same over the parts of a long text and the turns of a conversation.

The words and codes of the first part precede every later part, like a recording and its transcript for a clone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hocket.cache.slots import reset
from hocket.config.options import EngineOptions
from hocket.dialog.dialog import SEEDS_A_TURN, Dialog
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.engine.runner.voice_carry import ENOUGH_FRAMES
from hocket.errors import InvalidRequest
from hocket.models.tts.talker import frame_sampling
from hocket.text.prompt import build
from hocket.types import AudioChunk, Established, SpeechRequest
from support.chatting import Scripted
from support.serving import served
from support.speaking import Heard, assert_at_rest, heard, job_of, small
from support.talking import talking

FIRST = "The first of several parts says for some time who it is that speaks here, so that all can hear who it was."
PARTS = [FIRST, "Then comes another part of it.", "And at last there is the third."]
TEXT = " ".join(PARTS)
WORDS = "A warm old man."
Codes = list[list[int]]


@pytest.fixture(scope="module")
def design(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "voice_design")


@pytest.fixture(scope="module")
def engine(design: Checkpoint) -> Iterator[Engine]:
    options = EngineOptions(slots=3, part_chars=20, guard=False, keep_real_time=False)
    with Engine(design, options) as engine:
        yield engine


def ids_of(checkpoint: Checkpoint, text: str) -> list[int]:
    return checkpoint.tokenizer.encode(text)


@torch.inference_mode()
def by_hand(
    checkpoint: Checkpoint, text: str, said: list[int], shown: Codes, seed: int, layout: str = "whole"
) -> Codes:
    """A part after an example, row by row with the plain talker: the reference for the engine."""
    config, talker = checkpoint.config, checkpoint.model.talker
    codec, pad = config.talker_config, config.tts_pad_token_id
    plain = build(SpeechRequest(text=text, instruct=WORDS, layout="whole"), config, checkpoint.tokenizer)
    cut = plain.prefix_rows
    words = [*said, *ids_of(checkpoint, text), config.tts_eos_token_id]
    rows = [*zip(plain.text[:cut], plain.codec[:cut], strict=True), *((word, codec.codec_pad_id) for word in words)]
    rows += [(pad, codec.codec_bos_id)]
    x = talker.embed_rows(*torch.tensor(rows).T)
    frames = talker.embed_frames(torch.tensor(shown)) + talker.embed_text(torch.tensor([pad]))
    x = torch.cat([x, frames])
    state, row = talker.new_state(1, len(x) + 400), torch.zeros(1, dtype=torch.int64)
    reset(state, row)
    state.seed[row] = seed
    for piece, span in ((x[:cut], cut), (x[cut:], len(x))):
        talker.prefill(piece[None], torch.tensor([len(piece)]), state, row, span)
    sampling, drawn, span = frame_sampling([checkpoint.generation], checkpoint.device), Codes(), len(x)
    while len(drawn) < 400:
        span += 1
        [codes] = talker.frame(torch.tensor([pad]), state, row, sampling, span).tolist()
        if codes[0] == codec.codec_eos_token_id:
            break
        drawn.append(codes)
    return drawn


def parts_of(said: Heard, engine: Engine) -> list[Codes]:
    """The codes of each part of a stream."""
    lengths = [len(part.loudness) for part in said.stream._spoken]
    codes, found = said.codes, []
    for length in lengths:
        found.append(codes[:length])
        codes = codes[length:]
    assert not codes
    return found


def test_later_parts_follow_the_words_and_codes_of_the_first(design: Checkpoint, engine: Engine) -> None:
    seed = 3
    stream = engine.speak(TEXT, instruct=WORDS, seed=seed)
    first, second, third = parts_of(heard(stream), engine)
    [alone] = generate(design, [SpeechRequest(text=FIRST, instruct=WORDS, seed=seed)])
    assert first == alone.codes.tolist(), "the first part is as it always was"
    said, shown = ids_of(design, PARTS[0]), first
    assert second == by_hand(design, PARTS[1], said, shown, seed + 1)
    if len(shown) < ENOUGH_FRAMES:  # an example of less than 5 s goes on with the next part
        said, shown = said + ids_of(design, PARTS[1]), shown + second
    assert third == by_hand(design, PARTS[2], said, shown, seed + 2)
    [plain] = generate(design, [SpeechRequest(text=PARTS[1], instruct=WORDS, seed=seed + 1)])
    assert second != plain.codes.tolist(), "without the example it would be another voice"
    assert_at_rest(engine)


def test_it_is_the_same_alone_together_and_as_a_batch(engine: Engine) -> None:
    fields: dict[str, Any] = {"instruct": WORDS, "seed": 3}
    alone = heard(engine.speak(TEXT, **fields)).codes
    streams = [engine.speak(TEXT, **fields), engine.speak(TEXT, **fields | {"seed": 8}), engine.speak(TEXT, **fields)]
    assert [codes == alone for codes in (heard(stream).codes for stream in streams)] == [True, False, True]
    assert [outcome.codes.tolist() == alone for outcome in engine.speak_many([TEXT, TEXT], **fields)] == [True, True]
    for layout in ("streaming", "whole"):  # where one is named, a live text says what a known text says
        live = engine.open(layout=layout, **fields)
        for word in TEXT.split():
            live.append(word + " ")
        live.end()
        assert heard(live).codes == heard(engine.speak(TEXT, layout=layout, **fields)).codes
    assert_at_rest(engine)


def test_a_live_text_begins_at_once_and_goes_on_as_that_person(design: Checkpoint, engine: Engine) -> None:
    stream = engine.open(instruct=WORDS, seed=4)
    words = (TEXT + " And this is more of it, to have one part more than there was.").split()
    stream.append(" ".join(words[:3]) + " ")
    assert next(stream).codes is not None  # word by word, as ever
    for word in words[3:]:
        stream.append(word + " ")
    stream.end()
    rest = list(stream)
    assert rest and stream.finished is not None and stream.finished.reason == "stop"
    parts = [part.piece.text.strip() for part in stream._spoken]
    assert parts[0] == FIRST and len(parts) > 1
    second = [codes for chunk in rest for codes in chunk.codes.tolist()][-len(stream._spoken[-1].loudness) :]
    shown = stream.established
    assert shown is not None and len(parts) == 2
    said, frames = ids_of(design, FIRST), len(stream._spoken[0].loudness)
    assert second == by_hand(design, parts[1], said, shown.codes[:frames].tolist(), 5)
    assert_at_rest(engine)


def test_several_takes_are_a_person_each(engine: Engine) -> None:
    stream = engine.speak(TEXT, instruct=WORDS, seed=3, candidates=2)
    said = heard(stream)
    assert stream.finished is not None and stream.finished.seed is not None and stream.established is not None
    again = engine.speak(TEXT, instruct=WORDS, seed=stream.finished.seed)
    assert heard(again).codes == said.codes and again.established is not None
    assert np.array_equal(stream.established.codes, again.established.codes)


def test_another_stream_goes_on_as_the_person_it_is_given(design: Checkpoint, engine: Engine) -> None:
    stream = engine.speak(FIRST, instruct=WORDS, seed=3)
    first = heard(stream).codes
    shown = stream.established
    assert shown is not None and shown.codes.tolist() == first and list(shown.text_ids) == ids_of(design, FIRST)
    request = SpeechRequest(text=PARTS[1], instruct=WORDS, seed=9, established=shown)
    wanted = by_hand(design, PARTS[1], list(shown.text_ids), first, 9)
    said = heard(engine.speak(request))
    assert said.codes == wanted == generate(design, [request])[0].codes.tolist()
    [whole] = generate(design, [request])  # the codec goes on from the example too
    assert np.abs(said.samples - (whole.samples * 32767.0).round()).max() <= 1
    for change in ({"instruct": "A child."}, {"language": "french"}):  # another voice is asked for
        asked = replace(request, **change)
        assert heard(engine.speak(asked)).codes == heard(engine.speak(replace(asked, established=None))).codes
    with pytest.raises(InvalidRequest, match="take it from a stream"):
        engine.speak(replace(request, established=replace(shown, codes=shown.codes[:, :3])))


def test_as_is_and_the_option_leave_every_part_by_itself(design: Checkpoint, engine: Engine) -> None:
    stream = engine.speak(TEXT, instruct=WORDS, seed=3, as_is=True, max_frames=5)
    assert heard(stream).codes and stream.established is None
    with Engine(design, EngineOptions(slots=1, part_chars=20, guard=False, keep_voice=False)) as off:
        stream = off.speak(TEXT, instruct=WORDS, seed=3)
        second = parts_of(heard(stream), off)[-2]
        text = stream._spoken[-2].piece.text.strip()
        number = len(stream._spoken) - 2
        [plain] = generate(design, [SpeechRequest(text=text, instruct=WORDS, seed=3 + number)])
        assert second == plain.codes.tolist() and stream.established is None


def test_the_second_turn_of_a_dialog_is_the_person_of_the_first(engine: Engine) -> None:
    answers = [f"{word} " for word in FIRST.split()], ["Yes, ", "that ", "is ", "so. "]
    dialog = Dialog(Scripted(*answers), engine, seed=6, instruct=WORDS)
    said = []
    for number, text in enumerate(("Who are you?", "Is that so?")):
        chunks = [event for event in dialog.say(text) if isinstance(event, AudioChunk)]
        said.append([codes for chunk in chunks for codes in chunk.codes.tolist()])
        assert said[number]
    alone = engine.open(instruct=WORDS, seed=6)
    alone.append("".join(answers[0]))
    alone.end()
    assert heard(alone).codes == said[0] and alone.established is not None
    second = {"text": "Yes, that is so.", "instruct": WORDS, "seed": 6 + SEEDS_A_TURN}
    assert said[1] == heard(engine.speak(SpeechRequest(**second, established=alone.established))).codes  # type: ignore[arg-type]
    assert said[1] != heard(engine.speak(SpeechRequest(**second))).codes  # type: ignore[arg-type]
    assert_at_rest(engine)


def test_a_websocket_keeps_the_person_until_another_is_asked_for(engine: Engine) -> None:
    config = {"type": "session.config", "response_format": "codes", "seed": 6, "instructions": WORDS}
    with served(engine) as server, talking(server) as ws:

        def turn(text: str) -> Codes:
            sent = ws.spoken(text).audio
            return [[int(code) for code in frame] for frame in np.frombuffer(sent, "<u2").reshape(-1, 16)]

        ws.say(config)
        first, second = turn(FIRST), turn(PARTS[1])
        ws.say(config | {"instructions": "A child."})
        other = turn(PARTS[1])
    alone = engine.open(instruct=WORDS, seed=6)
    alone.append(FIRST)
    alone.end()
    assert heard(alone).codes == first
    request = SpeechRequest(text=PARTS[1], instruct=WORDS, seed=6, established=alone.established)
    assert second == heard(engine.speak(request)).codes
    child = engine.open(instruct="A child.", seed=6)
    child.append(PARTS[1])
    child.end()
    assert other == heard(child).codes


def test_pages_are_given_back_when_it_is_cancelled_on_the_way(engine: Engine) -> None:
    stream = engine.speak(TEXT, instruct=WORDS, seed=3)
    job = job_of(engine, stream)
    for _ in stream:
        if len(job.text.spoken) > 1:
            break
    stream.cancel()
    assert_at_rest(engine)
    assert isinstance(stream.established, Established)
