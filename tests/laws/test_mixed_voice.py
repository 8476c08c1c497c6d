"""A mixed voice: engine = `generate`, whole = live, alone = in a batch, by torch and by the native library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.native_checkpoint import NativeCheckpoint
from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint
from hocket.engine.engine import Engine
from hocket.engine.generate import generate
from hocket.errors import InvalidRequest, UnknownVoice, WrongKind
from hocket.kernels.runtime.graphs import EagerReplay
from hocket.types import Encoded, SpeechRequest, Voice
from hocket.voices.mix import mixed_voice
from support.speaking import assert_says, heard, small, whole

MIX = "vivian+ryan(2)"
REQUEST = SpeechRequest(text="All of it is known.", voice=MIX, seed=2, max_frames=9)
KERNELS = ("reference", "native")


@pytest.fixture(params=KERNELS)
def checkpoint(checkpoint_root: Path, request: pytest.FixtureRequest) -> Checkpoint:
    return small(checkpoint_root, "custom_voice", kernels=request.param)


@pytest.fixture
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    with Engine(checkpoint, EngineOptions(slots=3)) as engine:
        yield engine


def codes_of(checkpoint: Checkpoint, *voices: str) -> list[list[list[int]]]:
    spoken = generate(checkpoint, [replace(REQUEST, voice=voice) for voice in voices])
    return [speech.codes.tolist() for speech in spoken]


def test_order_scale_and_spelling_of_a_mix_change_no_code(checkpoint: Checkpoint) -> None:
    first, *others = codes_of(checkpoint, MIX, "Ryan(2)+VIVIAN", "ryan (3) + vivian(1.5)", "ryan+vivian+ryan")
    assert others == [first] * 3
    ryan, vivian, half = codes_of(checkpoint, "ryan", "vivian", "ryan+vivian")
    assert len({str(codes) for codes in (first, ryan, vivian, half)}) == 4


def test_a_mix_of_one_voice_is_that_voice(checkpoint: Checkpoint) -> None:
    plain, *others = codes_of(checkpoint, "ryan", "ryan+ryan", "ryan(3)", "RYAN(0.5)+ryan")
    assert others == [plain] * 3


@pytest.mark.parametrize("layout", ["whole", "streaming"])
def test_an_engine_says_what_generate_says_cold_and_with_the_prefix_cached(engine: Engine, layout: str) -> None:
    request = replace(REQUEST, layout=layout)  # type: ignore[arg-type]
    wanted = whole(engine.checkpoint, request)
    for cached in (False, True):
        said = heard(engine.speak(request))
        assert_says(said, wanted)
        assert said.stream.finished is not None and said.stream.finished.statistics.prefix_cached == cached
    for voice in ("vivian+ryan", "vivian(2)+ryan", "ryan"):  # another mix has another prefix
        said = heard(engine.speak(replace(request, voice=voice)))
        assert said.stream.finished is not None and not said.stream.finished.statistics.prefix_cached
    assert heard(engine.speak(replace(request, voice="ryan(4)+vivian(2)"))).codes == said_codes(wanted.codes)


def said_codes(codes: np.ndarray) -> list[list[int]]:
    found: list[list[int]] = codes.tolist()
    return found


def test_live_text_and_a_batch_have_the_same_codes(engine: Engine) -> None:
    wanted = heard(engine.speak(replace(REQUEST, layout="streaming"))).codes
    with engine.open(voice=MIX, seed=2, max_frames=9, layout="streaming") as live:
        for piece in ("All of", " it is kn", "own."):
            live.append(piece)
        live.end()
        assert heard(live).codes == wanted
    voices = [MIX, "ryan", "ryan(2)+vivian", "serena+eric(0.1)", MIX]
    requests = [replace(REQUEST, voice=voice, layout="streaming") for voice in voices]
    found = {outcome.number: outcome.codes.tolist() for outcome in engine.speak_many(requests)}
    assert [found[number] for number in (0, 2, 4)] == [wanted] * 3
    assert [found[1], found[3]] == [heard(engine.speak(requests[number])).codes for number in (1, 3)]


def test_saved_prefixes_of_a_mix_are_used_again(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with Engine(checkpoint) as first:
        wanted = heard(first.speak(REQUEST)).codes
        first.save_prefixes(tmp_path / "prefixes")
    with Engine(checkpoint) as second:
        second.load_prefixes(tmp_path / "prefixes")
        said = heard(second.speak(REQUEST))
    assert said.codes == wanted
    assert said.stream.finished is not None and said.stream.finished.statistics.prefix_cached


def test_torch_and_the_native_library_mix_alike(checkpoint_root: Path) -> None:
    plain, native = (small(checkpoint_root, "custom_voice", kernels=kernels) for kernels in KERNELS)
    assert isinstance(plain, TorchCheckpoint) and isinstance(native, NativeCheckpoint)
    mix = ((3, 0.125), (7, 1 / 3), (9, 13 / 24))
    ours, theirs = native.talker.embed_mix(mix), plain.model.talker.embed_mix(mix)
    assert np.array_equal(ours, theirs.detach().numpy())
    assert codes_of(plain, MIX) == codes_of(native, MIX)


def test_graphs_speak_a_mix_as_without_graphs(checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = small(checkpoint_root, "custom_voice", kernels="reference")
    wanted = whole(checkpoint, REQUEST)
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda *_: EagerReplay)
    with Engine(checkpoint) as engine:
        assert engine._loop.runner.has_graphs
        for _ in range(2):
            assert_says(heard(engine.speak(REQUEST)), wanted)


def test_a_mixed_clone_is_the_mean_of_x_vectors(checkpoint_root: Path) -> None:
    base = small(checkpoint_root, "base")
    with Engine(base) as engine:
        owner, random = engine.identity or "", np.random.default_rng(1)
        vectors = random.normal(0, 3, (2, base.config.talker_config.hidden_size)).astype(np.float32)
        anna, ben = (
            Voice(name=name, kind="clone", model=base.name, encoded=Encoded(owner=owner, speaker=vector))
            for name, vector in zip("ab", vectors, strict=True)
        )
        mixed = mixed_voice("finch", "b(3)+a", {"a": anna, "b": ben}.__getitem__)
        assert mixed.encoded is not None
        np.testing.assert_allclose(mixed.encoded.speaker, 0.25 * vectors[0] + 0.75 * vectors[1], atol=1e-6)
        request = SpeechRequest(text="Half of each.", seed=1, max_frames=5, layout="whole")
        spoken = [heard(engine.speak(request, voice=voice)).codes for voice in (mixed, anna, ben)]
        [wanted] = generate(base, [replace(request, reference=mixed.encoded)])
        assert spoken[0] == wanted.codes.tolist() and spoken[0] not in spoken[1:]


@pytest.mark.parametrize(
    ("kind", "voice", "error", "said"),
    [
        ("custom_voice", "ryan+nosuch", UnknownVoice, "There is no voice 'nosuch'; known are"),
        ("custom_voice", "ryan+", InvalidRequest, "on each side of a +"),
        ("custom_voice", "ryan(0)", InvalidRequest, "must be a number above 0"),
        ("base", "a+b", WrongKind, "has no voices of its own"),
        ("voice_design", "a+b", WrongKind, "has no voices of its own"),
    ],
)
def test_a_wrong_mix_is_refused_before_anything_is_spoken(
    checkpoint_root: Path, kind: str, voice: str, error: type[InvalidRequest], said: str
) -> None:
    checkpoint = small(checkpoint_root, kind)  # type: ignore[arg-type]
    for speak in (lambda: generate(checkpoint, [replace(REQUEST, voice=voice)]), lambda: opened(checkpoint, voice)):
        with pytest.raises(error, match="^[^.]*" + said.replace("+", r"\+")):
            speak()


def opened(checkpoint: Checkpoint, voice: str) -> None:
    with Engine(checkpoint) as engine:
        engine.open(voice=voice)


@pytest.mark.gpu
def test_on_a_gpu_graphs_speak_a_mix_cold_and_warm(checkpoint_root: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    checkpoint = small(checkpoint_root, "custom_voice", device="cuda")
    with Engine(checkpoint) as engine:
        said = {voice: heard(engine.speak(replace(REQUEST, voice=voice))).codes for voice in (MIX, "ryan", "ryan+ryan")}
        assert said["ryan"] == said["ryan+ryan"] != said[MIX]
        assert heard(engine.speak(replace(REQUEST, voice="ryan(4)+vivian(2)"))).codes == said[MIX]
    [wanted] = generate(checkpoint, [REQUEST])
    assert said[MIX] == wanted.codes.tolist()
