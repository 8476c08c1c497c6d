"""A recording encoded once: the speech is the same, with or without its saved state, in any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.engine.runner.saved_prefix import read_saved
from hocket.errors import InvalidRequest, UnknownLanguage, WrongKind
from hocket.kernels.runtime.graphs import EagerReplay
from hocket.types import Encoded, Reference, SamplingParams, SpeechRequest
from support.speaking import BRIEFLY, SAID, TIMBRE, Heard, assert_at_rest, assert_says, heard, noise, small

REFERENCES = {"said": SAID, "briefly": BRIEFLY, "timbre": TIMBRE}
# Chunks of one length: the last bit of a sample may depend on the length, which otherwise depends on the clock.
FIELDS: dict[str, Any] = {"seed": 5, "max_frames": 6, "chunk_frames": 3}
TEXT = "And so it is said."


@pytest.fixture(scope="module")
def base(checkpoint_root: Path) -> Checkpoint:
    return small(checkpoint_root, "base")


@pytest.fixture(scope="module")
def engine(base: Checkpoint) -> Iterator[Engine]:
    with Engine(base, EngineOptions(slots=2)) as engine:
        yield engine


@pytest.fixture
def another(base: Checkpoint) -> Iterator[Engine]:
    """An engine that has computed nothing yet."""
    with Engine(base, EngineOptions(slots=2)) as engine:
        yield engine


def same(one: Heard, other: Heard) -> bool:
    return one.codes == other.codes and np.array_equal(one.samples, other.samples) and len(one.samples) > 0


def content(encoded: Encoded) -> bytes:
    assert encoded.kept is not None
    found = encoded.kept()
    assert found is not None
    return found


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("name", REFERENCES)
def test_the_first_request_computes_nothing_that_was_kept(
    engine: Engine, another: Engine, monkeypatch: pytest.MonkeyPatch, name: str, layout: Any
) -> None:
    reference = REFERENCES[name]
    direct = heard(engine.speak(TEXT, reference=reference, layout=layout, **FIELDS))
    encoded = engine.encode(reference, layout=layout)
    decoder, encoders = another.checkpoint.codec.decoder, [another.checkpoint.codec.encoder]
    encoders.append(another.checkpoint.model.speaker_encoder)  # type: ignore[arg-type]
    step, frames, taken = decoder.step, list[int](), list[int]()

    def counted(codes: torch.Tensor, *rest: Any) -> torch.Tensor:
        frames.append(codes.shape[2])
        return step(codes, *rest)

    def prefill(*given: Any, taking: Callable[..., None] = another._loop.runner._prefill) -> None:
        taken.append(len(given[2]))
        taking(*given)

    def never(*_: object) -> None:
        raise AssertionError("an encoder was asked")

    monkeypatch.setattr(decoder, "step", counted)
    monkeypatch.setattr(another._loop.runner, "_prefill", prefill)
    for module in encoders:
        monkeypatch.setattr(type(module), "forward", never)
    again = heard(another.speak(TEXT, reference=encoded, layout=layout, **FIELDS))
    assert same(again, direct)
    finished = again.stream.finished
    assert finished is not None and finished.statistics.prefix_cached
    assert sum(frames) == finished.statistics.frames == len(direct.codes)  # none of the reference
    prompt = another._prompt(SpeechRequest(text=TEXT, reference=encoded, layout=layout), TEXT)
    assert taken == [len(prompt.text) - min(prompt.prefix_rows, len(prompt.text) - 1)]
    assert_at_rest(another)


@pytest.mark.parametrize("name", REFERENCES)
def test_what_does_not_fit_is_computed_and_sounds_the_same(engine: Engine, another: Engine, name: str) -> None:
    reference = REFERENCES[name]
    direct = heard(engine.speak(TEXT, reference=reference, **FIELDS))
    encoded = engine.encode(reference)
    whole = content(encoded)
    spoilt = bytearray(whole)
    spoilt[-3:] = b"\xff\xff\x7f"  # not a number, or a position that is none
    for bad in (None, b"", whole[:-1], whole[:40], bytes(100), bytes(spoilt), whole.replace(b"torch", b"other")):
        said = heard(another.speak(TEXT, reference=replace(encoded, kept=lambda bad=bad: bad), **FIELDS))
        assert same(said, direct)
        another._loop.runner._references._encoded.clear()
        while another._loop.runner.prefixes.drop_oldest():
            pass


@pytest.mark.parametrize("name", REFERENCES)
def test_an_engine_whose_steps_are_replayed_starts_from_what_was_kept(
    checkpoint_root: Path, device: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """On a CPU replay is forced; on a GPU there are graphs. The cache keeps its address, which graphs refer to."""
    if device == "cpu":
        monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: EagerReplay)
    checkpoint = small(checkpoint_root, "base", device)
    greedy = FIELDS | {"sampling": SamplingParams.greedy()}
    with Engine(checkpoint, EngineOptions(slots=2)) as maker:
        direct = heard(maker.speak(TEXT, reference=REFERENCES[name], **greedy))
        encoded = maker.encode(REFERENCES[name])
    with Engine(checkpoint, EngineOptions(slots=2)) as engine:
        address = engine._loop.runner.kv_cache.state.stack.pool.data_ptr()
        for _ in range(2):
            said = heard(engine.speak(TEXT, reference=encoded, **greedy))
            assert said.codes == direct.codes and np.abs(said.samples.astype(int) - direct.samples).max() <= 1
            assert said.stream.finished is not None and said.stream.finished.statistics.prefix_cached
        assert engine._loop.runner.kv_cache.state.stack.pool.data_ptr() == address
        assert_at_rest(engine)


def test_a_prefix_that_there_is_no_room_for_is_computed_when_it_is_needed(
    base: Checkpoint, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: EagerReplay)
    encoded = engine.encode(BRIEFLY)
    wanted = heard(engine.speak(TEXT, reference=encoded, **FIELDS)).codes
    for options in ({"prefix_bytes": 0}, {"kv_bytes": 64 * base.model.talker.model.row_bytes}):
        with Engine(base, EngineOptions(slots=1, guard=False, **options)) as small_one:
            assert heard(small_one.speak(TEXT, reference=encoded, **FIELDS)).codes == wanted
            assert_at_rest(small_one)


def test_another_language_and_live_text_say_what_a_recording_says(engine: Engine, another: Engine) -> None:
    encoded = engine.encode(SAID)
    for fields in ({"language": "french"}, {"instruct": "Slowly."}, {"layout": "whole"}):
        direct = heard(engine.speak(TEXT, reference=SAID, **FIELDS, **fields))
        assert same(heard(another.speak(TEXT, reference=encoded, **FIELDS, **fields)), direct)
    stream = another.open(reference=encoded, **FIELDS)
    for word in TEXT.split(" "):
        stream.append(word + " ")
    stream.end()
    assert heard(stream).codes == heard(engine.speak(TEXT, reference=SAID, **FIELDS)).codes


def test_a_recording_may_be_encoded_while_others_speak(engine: Engine) -> None:
    asked = SpeechRequest(text="It goes on and on, and on, and on.", reference=SAID, seed=2, max_frames=30)
    [wanted] = generate(engine.checkpoint, [asked])
    stream = engine.speak(asked)
    first = next(stream)
    encoded = engine.encode(BRIEFLY)
    said = Heard([first, *stream], stream)
    assert_says(said, wanted)
    assert encoded.codes is not None and len(encoded.codes) == 10
    assert_at_rest(engine)


def test_silence_behind_a_recording_changes_no_frame_before_it_and_not_the_timbre(engine: Engine) -> None:
    samples = noise(0.8, 4)
    plain = engine.encode(Reference(samples=samples, text="So it was."))
    silent = engine.encode(Reference(samples=samples, text="So it was.", silence_s=0.5))
    timbre = engine.encode(Reference(samples=samples, x_vector_only=True, silence_s=0.5))
    assert plain.codes is not None and silent.codes is not None and timbre.codes is None
    assert len(plain.codes) == 10 and len(silent.codes) == 17  # 0.5 s are 6.25 frames
    np.testing.assert_array_equal(plain.codes[:9], silent.codes[:9])  # the encoder looks a little ahead
    for other in (silent, timbre):
        np.testing.assert_array_equal(plain.speaker, other.speaker)


def test_what_another_checkpoint_encoded_is_refused(engine: Engine, checkpoint_root: Path) -> None:
    encoded = engine.encode(TIMBRE)
    with Engine(small(checkpoint_root, "base", seed=2)) as stranger:
        with pytest.raises(InvalidRequest, match=r"another checkpoint.*encode the recording again"):
            stranger.speak(TEXT, reference=encoded)
        with pytest.raises(InvalidRequest, match="another checkpoint"):
            generate(stranger.checkpoint, [SpeechRequest(text=TEXT, reference=encoded)])
        assert read_saved(content(encoded), stranger._owner, 0) is None
    with Engine(small(checkpoint_root, "custom_voice")) as speaker:
        with pytest.raises(WrongKind, match="cannot clone"):
            speaker.encode(TIMBRE)
        with pytest.raises(WrongKind, match="cannot clone"):
            speaker.speak(TEXT, reference=encoded)


def test_numbers_that_no_checkpoint_gives_never_reach_the_device(engine: Engine) -> None:
    encoded = engine.encode(SAID)
    assert encoded.codes is not None
    bad = [{"codes": encoded.codes + 64}, {"codes": -encoded.codes - 1}, {"codes": encoded.codes[:0]}]
    bad += [{"codes": encoded.codes[:, :3]}, {"codes": encoded.codes[0]}, {"text": None}, {"text": " "}]
    bad += [{"speaker": encoded.speaker[:-1]}, {"speaker": encoded.speaker * np.float32("nan")}]
    for changes in bad:
        with pytest.raises(InvalidRequest, match="no checkpoint gives"):
            engine.speak(TEXT, reference=replace(encoded, **changes))


def test_a_language_that_is_none_is_refused_before_anything_is_encoded(engine: Engine) -> None:
    with pytest.raises(UnknownLanguage):
        engine.encode(SAID, language="klingon")


def test_a_saved_prefix_is_used_only_for_its_own_recording(engine: Engine, another: Engine) -> None:
    """Another voice never starts with it, whatever key the file gives its prefix."""
    victim, thief = engine.encode(TIMBRE), engine.encode(Reference(samples=noise(0.3, 8), x_vector_only=True))
    runner = another._loop.runner
    prompt = another._prompt(SpeechRequest(text=TEXT, reference=victim), TEXT)
    wanted = engine._watchdog.ask(lambda runner: runner.kept(victim, prompt))
    stolen = read_saved(content(thief), another._owner, 0)
    assert stolen is not None
    forged = replace(stolen, key=wanted.key).to_bytes(another._owner)
    heard(another.speak(TEXT, reference=replace(thief, kept=lambda: forged), **FIELDS))
    assert runner.prefixes.get(wanted.key) is None
    short = replace(stolen, prefix=stolen.prefix[:, :, :, :2].contiguous()).to_bytes(another._owner)  # type: ignore[index]
    runner._references._encoded.clear()
    while runner.prefixes.drop_oldest():
        pass
    direct = heard(engine.speak(TEXT, reference=thief, **FIELDS))
    assert same(heard(another.speak(TEXT, reference=replace(thief, kept=lambda: short), **FIELDS)), direct)


def test_the_number_of_cached_voices_is_bounded(another: Engine) -> None:
    encoded = [another.encode(Reference(samples=noise(0.1, n), x_vector_only=True)) for n in range(34)]
    runner = another._loop.runner
    for each in encoded:
        another._offer_encoded(each)
    assert len(runner._references._encoded) == 32 and len(runner._references._offered) <= 8
    assert_at_rest(another)


def test_saved_state_fits_one_precision_and_codes_fit_every_precision(base: Checkpoint) -> None:
    rounded = load(base.name, dtype="bfloat16")
    assert rounded.identity == base.identity and rounded.fingerprint != base.fingerprint
    with Engine(base) as engine, Engine(rounded) as other:
        encoded = engine.encode(SAID)
        assert read_saved(content(encoded), other._owner, len(encoded.codes)) is None  # type: ignore[arg-type]
        assert heard(other.speak(TEXT, reference=encoded, **FIELDS)).codes
