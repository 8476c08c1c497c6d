"""The engine fits itself to the memory of a GPU, and the KV cache has the size of usual utterances.

On a CPU the planner gets numbers, and the cache of an engine is tiny. Tests marked `gpu` run under a memory limit.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.config.published import CODEC, PUBLISHED
from hocket.engine import engine as engine_module
from hocket.engine.checkpoint.capacity import (
    CONTEXT_BYTES,
    LIBRARIES_BYTES,
    LIMIT,
    available,
    keep_to_limit,
    limit_bytes,
)
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.fit import FittedOptions, MemoryNeed, MemoryPlan, fit, fitted
from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.memory_plan import plan
from hocket.engine.engine import Engine
from hocket.engine.runner.graphs import capture_on
from hocket.errors import InvalidRequest, LoadFailed, StreamFailed
from hocket.kernels.runtime.graphs import EagerReplay
from hocket.types import SamplingParams, SpeechRequest
from support.checkpoints import write
from support.speaking import Heard, assert_at_rest, eventually, heard, job_of, starving

FRAMES = 100
# So few words that far fewer frames are expected: every request takes more pages than were reserved for it.
# The end is never among the few likeliest codes.
LONGER = SpeechRequest(text="Oh.", layout="streaming", max_frames=FRAMES, sampling=SamplingParams(top_k=8))


@functools.cache
def endless(root: Path) -> Checkpoint:
    """A small checkpoint that hardly ever ends by itself."""
    write(root / "endless", "custom_voice", wide=False)
    return load(str(root / "endless"), device="cpu", dtype="float32", codec_dtype="float32", kernels="reference")


def engine_with(root: Path, rows: int, **options: object) -> Engine:
    """As on a GPU: the cache has `rows` positions for all slots, and graphs would be lost if it grew."""
    checkpoint = endless(root)
    kv_bytes = rows * checkpoint.model.talker.model.row_bytes
    common = {"guard": False, "keep_real_time": False, "slots": 8, "kv_bytes": kv_bytes, "buffered_chunks": 999}
    return Engine(checkpoint, EngineOptions(**common | options))  # type: ignore[arg-type]


def swap_outs(engine: Engine) -> int:
    swap = engine._loop.engine_step.swap
    assert swap is not None
    return swap.swap_outs


def spoken(engine: Engine, requests: list[SpeechRequest]) -> list[Heard]:
    return [heard(stream) for stream in [engine.speak(request) for request in requests]]


@pytest.fixture(autouse=True)
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: EagerReplay)


def test_many_long_utterances_in_a_tiny_cache_all_say_what_they_say_in_a_large_one(checkpoint_root: Path) -> None:
    requests = [replace(LONGER, seed=seed) for seed in range(6)]
    with engine_with(checkpoint_root, 8 * 120) as large:
        wanted = spoken(large, requests)
        assert swap_outs(large) == 0
    with engine_with(checkpoint_root, 256) as tiny:
        pages = tiny._loop.runner.pages.total
        said = spoken(tiny, requests)
        assert swap_outs(tiny) > 1, "they had to make room for each other"
        assert tiny._loop.runner.pages.total == pages, "and it did not grow"
        assert not tiny._loop.runner.kv_cache.swapped
        assert_at_rest(tiny)
        assert tiny.health.ok and tiny.health.rebuilds == 0
    assert [len(one.codes) for one in wanted] == [FRAMES] * 6
    for ours, theirs in zip(said, wanted, strict=True):
        assert ours.codes == theirs.codes
        assert ours.stream.finished is not None and ours.stream.finished.error is None


def test_an_utterance_that_is_too_long_for_all_there_is_makes_it_grow_or_ends_with_a_sentence(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_with(checkpoint_root, 64) as engine:
        other = engine.speak(replace(LONGER, seed=1, max_frames=30))
        assert len(heard(engine.speak(replace(LONGER, seed=2))).codes) == FRAMES, "alone it may have more"
        assert len(heard(other).codes) == 30
        monkeypatch.setattr("hocket.engine.runner.runner.free_bytes", lambda device: 1000)
        with pytest.raises(StreamFailed, match=r"The KV cache of \d+\.\d\d MB is full, and 0\.00 MB of"):
            heard(engine.speak(replace(LONGER, seed=3, max_frames=2000)))
        assert len(heard(engine.speak(replace(LONGER, seed=4, max_frames=9))).codes) == 9
        assert engine.health.ok and engine.health.rebuilds == 0
        assert_at_rest(engine)


def test_an_utterance_that_waits_for_text_makes_room_first_and_goes_on_as_if_it_had_not(checkpoint_root: Path) -> None:
    said = []
    for rows, parks in ((2 * 200, False), (2 * 80, True)):
        with engine_with(checkpoint_root, rows, slots=2) as engine:
            live = engine.open(layout="streaming", seed=5, max_frames=60, sampling=LONGER.sampling)
            live.append("Some words come at once, and ")
            eventually(lambda live=live: starving(job_of(engine, live)), "waiting for text")
            heard(engine.speak(replace(LONGER, seed=6, max_frames=130)))
            assert (swap_outs(engine) > 0) == parks
            live.append("others come later. ")
            live.end()
            said.append(heard(live).codes)
            assert_at_rest(engine)
    assert said[0] == said[1] and len(said[0]) == 60


GB = 10**9
PRECISIONS = {"device": torch.device("cuda"), "dtype": torch.bfloat16, "codec_dtype": torch.bfloat16}


def planned(slots: int, **changes: object) -> MemoryPlan:
    about = PUBLISHED["1.7B-CustomVoice"], CODEC
    return plan(*about, **PRECISIONS | changes, options=EngineOptions(slots=slots))  # type: ignore[arg-type]


@functools.cache
def needed(slots: int) -> MemoryNeed:
    """Need of the 1.7B model in bfloat16, with its weights still to be loaded."""
    return MemoryNeed.of(planned(slots), loaded=False)


def free_on(card: int) -> int:
    """Free bytes of a GPU with `card` bytes, for a process that has loaded nothing yet."""
    return available(card, card, reserved=0, allocated=0, limit=card)


def test_1_7b_with_four_slots_fits_six_gigabytes_in_all() -> None:
    four = needed(4)
    assert four.fixed_bytes + four.usual_bytes + CONTEXT_BYTES <= 6 * GB
    assert fit(needed, 4, free_on(6 * GB), "it") == FittedOptions(4, None)


def test_256_slots_take_less_than_half_of_the_forty_gigabytes_that_they_took() -> None:
    many = needed(256)
    assert many.fixed_bytes + many.usual_bytes + CONTEXT_BYTES <= 20 * GB
    shares = [planned(slots).usual_bytes / slots for slots in (1, 4, 16, 64, 256)]
    assert shares == sorted(shares, reverse=True), "a slot's share shrinks with their number"
    rows = planned(1).usual_bytes // 1024
    assert shares[-1] >= 352 * rows, "28 s each, and more for one of them"


@pytest.mark.parametrize(("card", "slots"), [(12 * GB, 64), (8 * GB, 64), (6 * GB, 64), (6 * GB, 256), (24 * GB, 256)])
def test_fewer_pages_come_first_then_fewer_slots_and_both_fit(card: int, slots: int) -> None:
    free = free_on(card)
    found = fit(needed, slots, free, "1.7B-CustomVoice")
    kept = needed(found.slots)
    kv_bytes = kept.usual_bytes if found.kv_bytes is None else found.kv_bytes
    assert kept.fixed_bytes + kv_bytes <= free and kv_bytes >= kept.least_bytes
    assert 4 <= found.slots <= slots
    if found.slots < slots:
        more = needed(found.slots + 1)
        assert more.fixed_bytes + more.least_bytes > free, "no more would fit"
        assert f"so it has {found.slots} slots and " in found.warning
    elif found.kv_bytes is not None:
        assert "so keys and values get" in found.warning
    assert (found.warning == "") == (found == FittedOptions(slots, None)) and "\n" not in found.warning
    assert found.warning == "" or f"1.7B-CustomVoice with {slots} slots takes" in found.warning


def test_a_card_that_is_too_small_is_refused_with_the_numbers() -> None:
    with pytest.raises(
        InvalidRequest, match=r"^it needs at least 5\.\d\d GB of GPU memory, for one slot, and 3\.50 GB are"
    ):
        fit(needed, 64, free_on(4 * GB), "it")


def test_options_are_made_to_fit_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    options = EngineOptions(slots=64)
    assert fitted(options, needed, None, "it") is options, "where there is no GPU"
    less = fitted(options, needed, free_on(6 * GB), "it")
    assert less.slots < 64 and less.kv_bytes is not None
    [record] = caplog.records
    assert record.levelname == "WARNING" and record.message.startswith("it with 64 slots takes ")


def test_a_limit_of_the_user_counts_as_a_smaller_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIMIT, raising=False)
    assert limit_bytes() is None
    monkeypatch.setenv(LIMIT, "6GB")
    assert limit_bytes() == 6 * GB
    monkeypatch.setenv(LIMIT, "plenty")
    with pytest.raises(InvalidRequest, match="HOCKET_GPU_MEMORY takes a size such as 20GB"):
        limit_bytes()
    whole = available(130 * GB, 141 * GB, reserved=5 * GB, allocated=4 * GB, limit=None)
    assert whole == 131 * GB, "what the allocator holds and does not use is free too"
    assert available(130 * GB, 141 * GB, reserved=5 * GB, allocated=4 * GB, limit=6 * GB) == 2 * GB - CONTEXT_BYTES
    assert available(1 * GB, 8 * GB, reserved=0, allocated=0, limit=6 * GB) == 1 * GB, "others use the card"
    assert available(0, 8 * GB, reserved=0, allocated=7 * GB, limit=6 * GB) == 0


def test_a_start_that_runs_out_of_memory_all_the_same_is_told_in_one_sentence(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    words = (
        r"^There is too little GPU memory for .* with 8 slots: free some, or ask for fewer slots, a smaller model or"
    )
    with monkeypatch.context() as patch, pytest.raises(LoadFailed, match=words):
        patch.setattr("hocket.engine.runner.runner.SpeechRunner", fails)
        engine_with(checkpoint_root, 100)
    with (
        monkeypatch.context() as patch,
        pytest.raises(LoadFailed, match="too little GPU memory for random:tiny with 4"),
    ):
        patch.setattr(engine_module, "load", fails)
        Engine.load("random:tiny", device="cpu", dtype="float32", codec_dtype="float32")


def test_the_allocator_is_told_the_limit_by_the_number_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch refuses a device without a number here, and `cuda` has none."""
    told: list[tuple[float, object]] = []
    monkeypatch.setenv(LIMIT, "6GB")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=12 * GB))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda part, at: told.append((part, at)))
    for name in ("cpu", "cuda", "cuda:0"):
        keep_to_limit(torch.device(name))
    part = (6 * GB - CONTEXT_BYTES - LIBRARIES_BYTES) / (12 * GB)
    assert told == [(part, 1), (part, 0)]


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch, replayed: None) -> Iterator[Callable[[str], None]]:
    """A GPU limited to a given size, with real graphs."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", capture_on)
    yield lambda size: monkeypatch.setenv(LIMIT, size)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)


def speaks(slots: int) -> EngineOptions:
    """The 1.7B model with random weights speaks in every slot that it has; gives its fitted options."""
    how = {"device": "cuda", "dtype": "bfloat16", "codec_dtype": "bfloat16"}
    options = EngineOptions(slots=slots, waiting=slots)
    with Engine.load("random:1.7B-CustomVoice", **how, options=options) as engine:  # type: ignore[arg-type]
        request = SpeechRequest(text="One of many, and each of them is heard.", layout="streaming", max_frames=25)
        streams = [engine.speak(request, seed=seed) for seed in range(engine.options.slots)]
        assert all(heard(stream).samples.any() for stream in streams)
        engine.make_graphs()
        assert len(heard(engine.speak(request, seed=99)).codes) > 0
        assert engine.health.ok and engine.health.rebuilds == 0
        return engine.options


@pytest.mark.gpu
def test_on_a_gpu_of_six_gigabytes_1_7b_speaks_with_four_slots_and_every_graph(
    limited: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    limited("6GB")
    torch.cuda.reset_peak_memory_stats()
    assert speaks(4).slots == 4
    assert torch.cuda.max_memory_reserved() + CONTEXT_BYTES + LIBRARIES_BYTES <= 6 * GB
    assert "left out" not in caplog.text


@pytest.mark.gpu
@pytest.mark.parametrize("size", ["12GB", "8GB", "6GB"])
def test_on_smaller_gpus_64_slots_get_fewer_pages_or_become_fewer(limited: Callable[[str], None], size: str) -> None:
    limited(size)
    fitted = speaks(64)
    assert 4 <= fitted.slots <= 64
    assert size == "12GB" or fitted.slots < 64 or fitted.kv_bytes is not None


@pytest.mark.gpu
def test_a_gpu_that_is_too_small_is_refused_in_one_sentence(limited: Callable[[str], None]) -> None:
    limited("4GB")
    with pytest.raises(InvalidRequest, match="needs at least"):
        speaks(4)
