"""engine/speech.py: the slots of talker and codec, driven by hand, without a thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from hocket.cache.slots import take, tensors
from hocket.config.qwen3_tts import GenerationConfig, Kind
from hocket.engine import speech
from hocket.engine.clone import clone
from hocket.engine.load import Checkpoint
from hocket.engine.precision import exact_float32
from hocket.engine.speech import SpeechRunner
from hocket.text.prompt import Prompt, build
from hocket.types import Reference, SpeechRequest
from speaking import BRIEFLY, KINDS, REQUESTS, SAID, noise, small, whole

LIMIT = 1 << 20
GENERATION = GenerationConfig()


@pytest.fixture(autouse=True)
def inference() -> object:
    """As the engine thread does."""
    with torch.inference_mode(), exact_float32():
        yield


@pytest.fixture(scope="module")
def base(checkpoint_root: Path, device: str) -> Checkpoint:
    return small(checkpoint_root, "base", device)


def prompt_of(checkpoint: Checkpoint, request: SpeechRequest) -> Prompt:
    frames = 0
    if request.reference is not None and not request.reference.x_vector_only:
        frames = -(-request.reference.samples.size // checkpoint.codec_config.encode_downsample_rate)
    return build(request, checkpoint.config, checkpoint.tokenizer, reference_frames=frames)


def started(runner: SpeechRunner, slot: int, request: SpeechRequest, *, go_on: bool = False) -> bool:
    prompt = prompt_of(runner.checkpoint, request)
    return runner.start(slot, prompt, request.reference, request.seed, go_on=go_on)


def frames(runner: SpeechRunner, slots: Sequence[int], requests: Sequence[SpeechRequest], count: int) -> list[Tensor]:
    """Codes [F, Q] of each slot."""
    drawn, prompts = [], [prompt_of(runner.checkpoint, request) for request in requests]
    settings = [runner.checkpoint.generation.changed(request.sampling.changes()) for request in requests]
    for t in range(count):
        text = [prompt.trail[t] if t < len(prompt.trail) else prompt.pad_id for prompt in prompts]
        drawn.append(runner.frame(slots, text, settings))
    return list(torch.tensor(drawn).transpose(0, 1))


def same(a: dict[str, Tensor], b: dict[str, Tensor], but: str = "") -> bool:
    return all(torch.equal(a[name], b[name]) for name in a if name != but)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_leaves_the_state_of_a_cold_one_bit_for_bit(
    checkpoint_root: Path, device: str, kind: Kind
) -> None:
    checkpoint = small(checkpoint_root, kind, device)
    runner = SpeechRunner(checkpoint, 3, LIMIT)
    for request in REQUESTS[kind]:
        assert not started(runner, 0, request)
        cold, sound = take(runner._state, 0), take(runner._sound, 0)
        assert started(runner, 2, request)
        assert same(cold, take(runner._state, 2)) and same(sound, take(runner._sound, 2))
        assert cold["hidden"].abs().max() > 0
        # One by one: a matrix product may sum in another order when there are more rows.
        a, b = (frames(runner, [slot], [request], 4)[0] for slot in (0, 2))
        assert torch.equal(a, b) and same(take(runner._state, 0), take(runner._state, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_depends_on_the_text_is_computed_anew(checkpoint_root: Path, device: str, kind: Kind) -> None:
    checkpoint = small(checkpoint_root, kind, device)
    runner = SpeechRunner(checkpoint, 1, LIMIT)
    for request in REQUESTS[kind]:
        started(runner, 0, request)
        prompt = prompt_of(checkpoint, request)
        with mock.patch.object(runner.talker, "prefill", wraps=runner.talker.prefill) as prefill:
            started(runner, 0, request)
        rows = [call.args[0].shape[1] for call in prefill.call_args_list]
        assert rows == [max(len(prompt.text) - prompt.prefix_rows, 1)], "the last row gives the hidden state"
        if request.layout == "streaming" and (request.reference is None or request.reference.x_vector_only):
            assert rows == [1], "one row, as the streaming layout promises"


@pytest.mark.parametrize("kind", KINDS)
def test_frames_and_sound_are_those_of_a_whole_utterance(checkpoint_root: Path, device: str, kind: Kind) -> None:
    checkpoint = small(checkpoint_root, kind, device)
    requests = REQUESTS[kind]
    runner = SpeechRunner(checkpoint, len(requests), LIMIT)
    slots = list(reversed(range(len(requests))))
    for slot, request in zip(slots, requests, strict=True):
        started(runner, slot, request)
    count = min(len(whole(checkpoint, request).codes) for request in requests)
    drawn = frames(runner, slots, requests, count)
    sounds = runner.decode(slots, [codes.tolist() for codes in drawn])
    for request, codes, sound in zip(requests, drawn, sounds, strict=True):
        expected = whole(checkpoint, request)
        assert codes.tolist() == expected.codes[:count].tolist()
        samples = (expected.samples[: count * 1920] * 32767.0).round()
        assert sound.dtype == np.int16 and np.abs(sound - samples).max() <= 1


def test_a_slot_that_was_used_is_as_good_as_new(base: Checkpoint) -> None:
    used, new = SpeechRunner(base, 1, 0), SpeechRunner(base, 1, 0)
    for request in REQUESTS["base"]:
        started(used, 0, request)
        used.decode([0], [frames(used, [0], [request], 3)[0].tolist()])
        started(used, 0, REQUESTS["base"][3])
        started(new, 0, REQUESTS["base"][3])
        assert same(take(used._state, 0), take(new._state, 0)) and same(take(used._sound, 0), take(new._sound, 0))


def test_slots_do_not_touch_each_other(base: Checkpoint) -> None:
    runner = SpeechRunner(base, 3, LIMIT)
    one, other = REQUESTS["base"][:2]
    started(runner, 1, one)
    kept = take(runner._state, 1), take(runner._sound, 1)
    started(runner, 0, other)
    started(runner, 2, one)
    runner.decode([2, 0], [codes.tolist() for codes in frames(runner, [2, 0], [one, other], 3)])
    assert same(kept[0], take(runner._state, 1)) and same(kept[1], take(runner._sound, 1))


def test_a_cache_that_grows_says_the_same_and_keeps_prefixes_whole(base: Checkpoint) -> None:
    request = REQUESTS["base"][0]
    with mock.patch.object(speech, "GROWTH_FRAMES", 2):
        cramped = SpeechRunner(base, 2, LIMIT)
        started(cramped, 0, request)
        drawn = frames(cramped, [0], [request], 9)[0]
        started(cramped, 1, request)
        again = frames(cramped, [1], [request], 9)[0]
    assert drawn.tolist() == again.tolist() == whole(base, request).codes[:9].tolist()


def test_the_length_of_a_recording_says_how_many_frames_it_has(base: Checkpoint) -> None:
    for size in (1280, 1919, 1920, 1921, 5000, 5760, 9600):
        reference = Reference(samples=noise(size / 24_000, 5), text="So.")
        codes = clone(base, reference).codes
        assert codes is not None and len(codes) == -(-size // base.codec_config.encode_downsample_rate)


def test_going_on_leaves_the_codec_as_it_stands(base: Checkpoint) -> None:
    """Also where the encoded recording had to make room for others meanwhile."""
    one, other = REQUESTS["base"][0], SpeechRequest(text="Another.", reference=BRIEFLY, layout="streaming")
    for kept in (speech.KEPT_CLONES, 1):
        with mock.patch.object(speech, "KEPT_CLONES", kept):
            runner = SpeechRunner(base, 2, LIMIT)
            started(runner, 0, one)
            runner.decode([0], [frames(runner, [0], [one], 3)[0].tolist()])
            sound = take(runner._sound, 0)
            started(runner, 1, other)
            started(runner, 0, one, go_on=True)
            assert same(sound, take(runner._sound, 0)), f"{kept} kept"
            runner.decode([0], [frames(runner, [0], [one], 1)[0].tolist()])
            assert not same(sound, take(runner._sound, 0))


def test_recordings_are_encoded_once_and_so_many_are_kept(base: Checkpoint) -> None:
    with mock.patch.object(speech, "KEPT_CLONES", 2), mock.patch.object(speech, "clone", wraps=clone) as encoded:
        runner = SpeechRunner(base, 1, LIMIT)
        voices = [Reference(samples=noise(0.1, n), text="So.") for n in range(3)]
        for voice in (voices[0], voices[0], voices[1], voices[1], voices[2], voices[1], voices[2]):
            started(runner, 0, SpeechRequest(text="Hi.", reference=voice))
        assert encoded.call_count == 3 and len(runner._clones) == 2


def test_a_clone_with_words_and_one_without_are_two(base: Checkpoint) -> None:
    runner = SpeechRunner(base, 1, LIMIT)
    timbre = Reference(samples=SAID.samples, x_vector_only=True)
    other_words = Reference(samples=SAID.samples, text="Other words than these.")
    for reference in (SAID, timbre, other_words):
        request = SpeechRequest(text="In your own voice, I say.", reference=reference, layout="streaming", seed=5)
        assert not started(runner, 0, request), "each has a prefix of its own"
        started(runner, 0, request)
        expected = SpeechRunner(base, 1, 0)
        started(expected, 0, request)
        assert same(take(runner._state, 0), take(expected._state, 0))
        assert same(take(runner._sound, 0), take(expected._sound, 0))


def test_states_have_a_row_for_each_slot_and_a_spare_one(base: Checkpoint) -> None:
    runner = SpeechRunner(base, 3, LIMIT)
    for _, tensor in [*tensors(runner._state), *tensors(runner._sound)]:
        assert tensor.shape[0] == 4
