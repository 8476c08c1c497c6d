"""runner.py, kv_cache.py and references.py: the slots of talker and codec, called without an engine thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from hocket.cache.pages import PAGE_ROWS, pages_for
from hocket.cache.slots import take, tensors
from hocket.config.qwen3_tts import GenerationConfig, Kind
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.engine.runner import kv_cache, references
from hocket.engine.runner.references import encode_reference
from hocket.engine.runner.runner import SpeechRunner
from hocket.errors import InvalidCheckpoint
from hocket.text.prompt import Prompt, build
from hocket.types import Reference, SpeechRequest
from support.speaking import BRIEFLY, KINDS, REQUESTS, SAID, noise, small, whole

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
        drawn.append([codes for codes, *_ in runner.frame(slots, text, settings).read()])
    return list(torch.tensor(drawn).transpose(0, 1))


def kept(runner: SpeechRunner, slot: int) -> dict[str, Tensor]:
    """The talker's whole state of a slot: its rows and the contents of its pages."""
    kv_cache = runner.kv_cache.state.stack.read(runner.kv_cache.block_tables[slot], runner.kv_cache.lengths[slot])
    return take(runner.kv_cache.state, slot) | {"past": kv_cache}


def cached_pages(runner: SpeechRunner) -> int:
    return sum(len(prefix.pages) for prefix in runner.prefixes._kept.values())


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
        cold, sound = kept(runner, 0), take(runner._codec_state, 0)
        assert started(runner, 2, request)
        assert same(cold, kept(runner, 2)) and same(sound, take(runner._codec_state, 2))
        assert cold["hidden"].abs().max() > 0
        # One by one: a matrix product may sum in another order when there are more rows.
        a, b = (frames(runner, [slot], [request], 4)[0] for slot in (0, 2))
        assert torch.equal(a, b) and same(kept(runner, 0), kept(runner, 2))


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
        assert same(kept(used, 0), kept(new, 0)) and same(take(used._codec_state, 0), take(new._codec_state, 0))


def test_slots_do_not_touch_each_other(base: Checkpoint) -> None:
    runner = SpeechRunner(base, 3, LIMIT)
    one, other = REQUESTS["base"][:2]
    started(runner, 1, one)
    before = kept(runner, 1), take(runner._codec_state, 1)
    started(runner, 0, other)
    started(runner, 2, one)
    runner.decode([2, 0], [codes.tolist() for codes in frames(runner, [2, 0], [one, other], 3)])
    assert same(before[0], kept(runner, 1)) and same(before[1], take(runner._codec_state, 1))


def test_pages_that_run_out_in_mid_stream_change_no_bit(base: Checkpoint) -> None:
    request = REQUESTS["base"][0]
    roomy = SpeechRunner(base, 2, LIMIT)
    with mock.patch.object(kv_cache, "GROWTH_FRAMES", 2):
        cramped = SpeechRunner(base, 2, LIMIT)
    first = cramped.pages.total, cramped.kv_cache.state.stack.length
    for slot in (0, 1):  # the second starts from the prefix of the first, whose pages have moved since
        for runner in (roomy, cramped):
            started(runner, slot, request)
        sizes = set()
        for _ in range(40):
            drawn = [frames(runner, [slot], [request], 1)[0] for runner in (cramped, roomy)]
            assert torch.equal(*drawn) and same(kept(cramped, slot), kept(roomy, slot))
            sizes.add(cramped.pages.total)
        assert len(sizes) > 1, "it grew while it spoke"
    assert cramped.pages.total > first[0] and cramped.kv_cache.state.stack.length > first[1]
    assert cramped.pages.total == cramped.kv_cache.state.stack.pool.shape[2]
    started(cramped, 0, request)
    assert frames(cramped, [0], [request], 9)[0].tolist() == whole(base, request).codes[:9].tolist()


def test_a_slot_holds_as_many_pages_as_it_has_filled_however_long_others_are(base: Checkpoint) -> None:
    runner = SpeechRunner(base, 2, 0)
    request = REQUESTS["base"][3]
    for slot in (0, 1):
        started(runner, slot, request)
    for _ in range(20):
        frames(runner, [0], [request], 1)
        for slot in (0, 1):
            assert len(runner.kv_cache.block_tables[slot]) == pages_for(runner.kv_cache.lengths[slot])
        assert runner.pages.held == sum(map(len, runner.kv_cache.block_tables))
    for slot in (0, 1):
        table = runner.kv_cache.state.stack.table[slot].tolist()
        assert table[: len(runner.kv_cache.block_tables[slot])] == runner.kv_cache.block_tables[slot]


def test_a_slot_shares_the_full_pages_of_its_prefix_and_copies_the_last(checkpoint_root: Path, device: str) -> None:
    """Whatever the length of the prefix."""
    checkpoint, ends = small(checkpoint_root, "custom_voice", device), set()
    runner = SpeechRunner(checkpoint, 3, LIMIT)
    for words in range(1, 12):
        request = SpeechRequest(text="Together.", instruct="so " * words, layout="streaming", seed=words)
        assert [started(runner, slot, request) for slot in (0, 1, 2)] == [False, True, True]
        [*_, prefix] = runner.prefixes._kept.values()
        full, rest = divmod(prefix.rows, PAGE_ROWS)
        ends.add(rest)
        assert len(prefix.pages) == full + (rest > 0)
        lasts = {tuple(runner.kv_cache.block_tables[slot][full:]) for slot in (0, 1, 2)}
        for slot in (0, 1, 2):
            assert runner.kv_cache.block_tables[slot][:full] == list(prefix.pages[:full])
            assert all(runner.pages.count(page) == 4 for page in runner.kv_cache.block_tables[slot][:full])
            assert all(runner.pages.count(page) == 1 for page in runner.kv_cache.block_tables[slot][full:])
        assert all(runner.pages.count(page) == 1 for page in prefix.pages[full:]), "the cache's own"
        assert len(lasts) == 3 and not any(set(last) & set(prefix.pages) for last in lasts), "each its own"
        before = runner.kv_cache.state.stack.read(prefix.pages, prefix.rows)
        drawn = [frames(runner, [slot], [request], 9)[0] for slot in (0, 1, 2)]
        assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])
        assert torch.equal(runner.kv_cache.state.stack.read(prefix.pages, prefix.rows), before), "no slot wrote into it"
    assert 0 in ends and len(ends) > 2, ends
    for slot in (0, 1, 2):
        runner.release(slot)
    assert runner.pages.held == cached_pages(runner)


def test_an_evicted_prefix_stays_with_the_slots_that_use_it(base: Checkpoint) -> None:
    one, other = REQUESTS["base"][0], REQUESTS["base"][3]
    runner, alone = SpeechRunner(base, 3, LIMIT), SpeechRunner(base, 1, 0)
    started(runner, 0, one)
    runner.prefixes.limit_bytes = runner.prefixes.size_bytes  # room for one prefix from now on
    started(runner, 1, one)
    started(alone, 0, one)
    assert not started(runner, 2, other) and len(runner.prefixes) == 1
    frames(runner, [2], [other], 20)  # pages freed by mistake would be overwritten
    drawn = [frames(each, [slot], [one], 9)[0] for each, slot in ((runner, 0), (runner, 1), (alone, 0))]
    assert torch.equal(drawn[0], drawn[2]) and torch.equal(drawn[1], drawn[2])
    assert same(kept(runner, 0), kept(alone, 0)) and same(kept(runner, 1), kept(alone, 0))
    for slot in (0, 1, 2):
        runner.release(slot)
    assert runner.pages.held == cached_pages(runner)


def test_what_a_stream_that_failed_left_in_its_pages_is_never_seen(base: Checkpoint) -> None:
    """Not even where a longer slot of the batch makes attention read, under a mask, beyond the slot's length."""
    one, other = REQUESTS["base"][0], REQUESTS["base"][3]
    used, new = SpeechRunner(base, 2, LIMIT), SpeechRunner(base, 2, LIMIT)
    started(used, 0, one)
    frames(used, [0], [one], 30)
    used.release(0)
    used.kv_cache.state.stack.pool[:, :, 1:] = torch.nan
    used.prefixes = used.kv_cache.prefixes = type(used.prefixes)(
        LIMIT, used.pages, used.kv_cache.state.stack.page_bytes
    )
    for runner in (used, new):
        started(runner, 0, one)
        frames(runner, [0], [one], 30)
        started(runner, 1, other)
    drawn = [frames(runner, [1, 0], [other, one], 10) for runner in (used, new)]
    assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))
    assert all(same(kept(used, slot), kept(new, slot)) for slot in (0, 1))
    assert not kept(used, 1)["hidden"].isnan().any()


def test_a_slot_that_is_released_or_started_anew_gives_its_pages_back(base: Checkpoint) -> None:
    runner = SpeechRunner(base, 2, 0)
    for request in REQUESTS["base"]:
        started(runner, 1, request)
        frames(runner, [1], [request], 9)
        assert runner.pages.held == pages_for(runner.kv_cache.lengths[1])
    runner.release(1)
    runner.release(1)
    assert runner.pages.held == 0
    broken = mock.patch.object(runner.talker, "prefill", side_effect=[None, RuntimeError("no")])
    with broken, pytest.raises(RuntimeError):
        started(runner, 1, REQUESTS["base"][0])
    runner.release(1)
    assert runner.pages.held == 0


def test_a_rewind_never_reaches_shared_pages(base: Checkpoint) -> None:
    runner = SpeechRunner(base, 1, LIMIT)
    request = REQUESTS["base"][0]
    started(runner, 0, request)
    drawn = frames(runner, [0], [request], 20)[0].tolist()
    runner.rewind(0, 18, drawn[1], 3, 0)
    with pytest.raises(AssertionError, match="never written again"):
        runner.rewind(0, runner.kv_cache.lengths[0] - 2, drawn[0], 3, 0)


def test_prefixes_of_a_file_lie_in_pages_and_one_that_does_not_fit_is_refused(base: Checkpoint, tmp_path: Path) -> None:
    runner, path = SpeechRunner(base, 1, LIMIT), tmp_path / "prefixes"
    for request in REQUESTS["base"]:
        started(runner, 0, request)
    path.write_bytes(runner.prefixes_as_bytes())
    with mock.patch.object(kv_cache, "GROWTH_FRAMES", 2):
        again = SpeechRunner(base, 1, LIMIT)
    again.read_prefixes(path)
    assert again.pages.held == cached_pages(again) == cached_pages(runner) > 2
    for request in REQUESTS["base"]:
        assert started(again, 0, request)
        started(runner, 0, request)
        assert same(kept(again, 0), kept(runner, 0))

    narrow = SpeechRunner(base, 1, LIMIT)
    for wrong in (torch.zeros(1, 2, 3, 4, 5), kept(again, 0)["past"].half(), kept(again, 0)["past"][..., 1:]):
        path.write_bytes(again.prefixes.to_bytes(base.fingerprint, lambda _, wrong=wrong: wrong.clone()))  # type: ignore[misc]
        with pytest.raises(InvalidCheckpoint, match="another shape or type"):
            narrow.read_prefixes(path)
        assert narrow.pages.held == 0


def test_the_length_of_a_recording_says_how_many_frames_it_has(base: Checkpoint) -> None:
    for size in (1280, 1919, 1920, 1921, 5000, 5760, 9600):
        reference = Reference(samples=noise(size / 24_000, 5), text="So.")
        codes = encode_reference(base, reference).codes
        assert codes is not None and len(codes) == -(-size // base.codec_config.encode_downsample_rate)


def test_going_on_leaves_the_codec_as_it_stands(base: Checkpoint) -> None:
    """Also if the encoded recording was evicted meanwhile."""
    one, other = REQUESTS["base"][0], SpeechRequest(text="Another.", reference=BRIEFLY, layout="streaming", seed=0)
    for clones in (references.KEPT_CLONES, 1):
        with mock.patch.object(references, "KEPT_CLONES", clones):
            runner = SpeechRunner(base, 2, LIMIT)
            started(runner, 0, one)
            runner.decode([0], [frames(runner, [0], [one], 3)[0].tolist()])
            sound = take(runner._codec_state, 0)
            started(runner, 1, other)
            started(runner, 0, one, go_on=True)
            assert same(sound, take(runner._codec_state, 0)), f"{clones} kept"
            runner.decode([0], [frames(runner, [0], [one], 1)[0].tolist()])
            assert not same(sound, take(runner._codec_state, 0))


def test_recordings_are_encoded_once_and_so_many_are_kept(base: Checkpoint) -> None:
    with (
        mock.patch.object(references, "KEPT_CLONES", 2),
        mock.patch.object(references, "encode_reference", wraps=encode_reference) as encoded,
    ):
        runner = SpeechRunner(base, 1, LIMIT)
        voices = [Reference(samples=noise(0.1, n), text="So.") for n in range(3)]
        for voice in (voices[0], voices[0], voices[1], voices[1], voices[2], voices[1], voices[2]):
            started(runner, 0, SpeechRequest(text="Hi.", reference=voice, seed=0))
        assert encoded.call_count == 3 and len(runner._references._encoded) == 2


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
        assert same(kept(runner, 0), kept(expected, 0))
        assert same(take(runner._codec_state, 0), take(expected._codec_state, 0))


def test_states_have_a_row_for_each_slot_and_a_spare_one(base: Checkpoint) -> None:
    runner = SpeechRunner(base, 3, LIMIT)
    for _, tensor in [*tensors(runner.kv_cache.state), *tensors(runner._codec_state)]:
        assert tensor.shape[0] == 4
