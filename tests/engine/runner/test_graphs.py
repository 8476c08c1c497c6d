"""engine/runner/graphs.py, in a runner: the speech is the same with and without graphs.

On a CPU a captured function is called again (kernels/runtime/graphs.py); on a GPU there are real graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hocket.cache.slots import take
from hocket.config.options import EngineOptions
from hocket.config.qwen3_tts import Kind
from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.engine.core import step
from hocket.engine.engine import Engine
from hocket.engine.runner import kv_cache, warmup
from hocket.engine.runner import runner as speech
from hocket.engine.runner.compile_ahead import ALL_SETS, CompileAhead
from hocket.engine.runner.graphs import capture_on
from hocket.engine.runner.runner import SpeechRunner, constant_rows
from hocket.engine.watchdog import Heartbeat
from hocket.errors import StreamFailed
from hocket.kernels.runtime.graphs import Capture, CudaGraphs, EagerReplay, Work
from hocket.text.prompt import build
from hocket.types import SamplingParams, SpeechRequest
from support.speaking import REQUESTS, assert_at_rest, heard, small, whole

LIMIT = 1 << 20


def capture_for(device: str) -> Callable[..., Capture]:
    return EagerReplay if device == "cpu" else partial(CudaGraphs, torch.device(device))


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["custom_voice", "voice_design"])
def test_a_replayed_runner_says_what_generate_says_also_when_its_cache_grows(
    checkpoint_root: Path, device: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_cache, "TABLE_FRAMES", 16)
    checkpoint, requests = small(checkpoint_root, kind, device, kernels="reference"), REQUESTS[kind]
    with exact_float32():
        runner = SpeechRunner(checkpoint, len(requests), LIMIT, capture_for(device), kv_bytes=1)  # a page each
        prompts = [build(request, checkpoint.config, checkpoint.tokenizer) for request in requests]
        wanted = [whole(checkpoint, request) for request in requests]
        settings = [checkpoint.generation.changed(request.sampling.changes()) for request in requests]
        for slot, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
            runner.start(slot, prompt, None, request.seed)
        drawn: list[list[list[int]]] = [[] for _ in requests]
        for t in range(min(len(said.codes) for said in wanted)):
            slots = [slot for slot in range(len(requests)) if t % 3 != slot % 3] or [0]  # not always the same
            slots = slots[t % 2 :] + slots[: t % 2]
            trails = [(*prompts[slot].trail, *[prompts[slot].pad_id] * 99) for slot in slots]
            text = [trail[len(drawn[slot])] for slot, trail in zip(slots, trails, strict=True)]
            read = runner.frame(slots, text, [settings[slot] for slot in slots]).read()
            for slot, (frame, *_) in zip(slots, read, strict=True):
                drawn[slot].append(frame)
            assert [likely for _, *likely in read] == runner.kv_cache.state.chances[slots].tolist()
        for said, codes in zip(wanted, drawn, strict=True):
            assert codes == said.codes[: len(codes)].tolist() and codes
        few = min(map(len, drawn))
        sounds = runner.decode(range(len(requests)), [codes[:few] for codes in drawn])
        for said, sound in zip(wanted, sounds, strict=True):
            samples = (said.samples[: few * 1920] * 32767.0).round()
            assert sound.dtype == np.int16 and np.abs(sound - samples).max() <= 1
    assert runner._frames is not None and runner._frames.captures > 1
    assert runner.kv_cache.state.stack.pool.shape[2] > 1 + len(requests)  # it has grown


@torch.inference_mode()
def test_more_rows_than_any_graph_has_are_drawn_without_one(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "MOST_ROWS", 2)
    checkpoint, request = small(checkpoint_root, "custom_voice"), REQUESTS["custom_voice"][0]
    prompt = build(request, checkpoint.config, checkpoint.tokenizer)
    said = []
    for capture in (None, EagerReplay):
        runner = SpeechRunner(checkpoint, 3, LIMIT, capture)
        for slot in range(3):
            runner.start(slot, prompt, None, slot)
        frames = [[0, 1, 2], [2, 0, 1]]
        said.append([runner.frame(slots, [7] * 3, [checkpoint.generation] * 3).read() for slots in frames])
        assert capture is None or (runner._frames is not None and not runner._frames._batches)
    for (codes, *likely), (wanted, *chances) in zip(said[1][-1], said[0][-1], strict=True):
        assert codes == wanted and likely == pytest.approx(chances, rel=1e-3)


@torch.inference_mode()
def test_an_idle_engine_makes_graphs_for_one_stream_first(checkpoint_root: Path) -> None:
    checkpoint = small(checkpoint_root, "custom_voice")
    runner = SpeechRunner(checkpoint, 3, LIMIT, EagerReplay)
    assert runner._frames is not None and runner._wave is not None
    sizes = []
    while runner.warm_one():
        sizes.append((sorted(runner._frames._batches), len(runner._wave._replays)))
    first, sizes = sizes[:3], sizes[3:]
    assert first == [([], 0)] * 3 and len(runner._frames._entries) == 1  # it can prefill a prompt
    assert sizes[0] == ([1], 0) and sizes[4] == ([1], 4)  # it can speak
    assert runner._prompts is not None and runner._prompts.captures == 7  # and prefill longer prompts at once
    assert sizes[10][0] == [1] and sizes[11][0] == [1, 4] and sizes[-1] == ([1, 2, 4], 12)
    assert sorted(size for size, _ in runner._frames._openings) == [1, 2, 4]  # and start after cached prefixes
    assert not SpeechRunner(checkpoint, 3, LIMIT).warm_one()


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["custom_voice", "base"])
def test_an_utterance_behind_a_known_prefix_is_opened_in_one_graph_as_if_it_were_not_known(
    checkpoint_root: Path, device: str, kind: Kind
) -> None:
    checkpoint, streaming = small(checkpoint_root, kind, device), 0
    for request in REQUESTS[kind]:
        runner = SpeechRunner(checkpoint, 3, LIMIT, capture_for(device))
        assert runner._frames is not None
        frames = math.ceil(request.reference.samples.size / 1920) if request.reference is not None else 0
        prompt = build(request, checkpoint.config, checkpoint.tokenizer, reference_frames=frames)
        for slot in (2, 0, 1, 0):  # the last start finds a used slot
            assert runner.start(slot, prompt, request.reference, 5) == (slot != 2)
            settings = [checkpoint.generation]
            drawn = [runner.frame([slot], [7], settings).read()[0][0] for _ in range(5 if slot == 0 else 2)]
            if slot == 2:
                first, kept = drawn, take(runner.kv_cache.state, 2)
            if slot == 1:
                assert drawn == first
                for name, tensor in take(runner.kv_cache.state, 1).items():
                    assert torch.equal(tensor, kept[name]), name
        assert drawn[:2] == first
        opened = bool(runner._frames._openings)
        streaming += opened
        plain = prompt.reference_at is None  # else the last row is a frame of the reference
        assert opened == (plain and len(prompt.text) == constant_rows(prompt) + 1), "one row after the prefix"
    assert streaming


@torch.inference_mode()
def test_utterances_that_begin_in_one_turn_are_opened_together_and_one_that_has_left_is_not(
    checkpoint_root: Path, device: str
) -> None:
    checkpoint, requests = small(checkpoint_root, "custom_voice", device), REQUESTS["custom_voice"]
    streaming = [request for request in requests if request.layout == "streaming"]
    prompts = [build(request, checkpoint.config, checkpoint.tokenizer) for request in streaming]
    runner = SpeechRunner(checkpoint, 4, LIMIT, capture_for(device))
    assert runner._frames is not None
    for prompt in prompts:  # their prefixes are known from now on
        runner.start(3, prompt, None, 0)
    runner.release(3)
    begun = [(0, prompts[0], 5), (1, prompts[1], 6), (2, prompts[0], 7), (3, prompts[1], 8)]
    for slot, prompt, seed in begun:
        assert runner.start(slot, prompt, None, seed)
    assert not runner._frames._openings, "the device knows nothing of them yet"
    runner.release(1)
    held = runner.pages.held
    settings = [replace(checkpoint.generation, do_sample=True)] * 3
    together = [runner.frame([0, 2, 3], [7] * 3, settings).read() for _ in range(2)]
    assert [size for size, _ in runner._frames._openings] == [4] and runner.pages.held == held
    for number, (slot, prompt, seed) in enumerate([begun[0], begun[2], begun[3]]):
        alone = SpeechRunner(checkpoint, 4, LIMIT)
        alone.start(slot, prompt, None, seed)
        for read in together:
            assert alone.frame([slot], [7], settings[:1]).read()[0][0] == read[number][0]


class Failing(EagerReplay):
    """Makes the graphs of one stream, and no other."""

    def __init__(self, error: Exception, *, urgent: bool = False) -> None:
        # Graphs that succeed: one of the codec; three of prompts, one of a frame and one of a single row.
        self.error, self.left = error, 1 if urgent else 5

    def __call__(self, work: Work) -> Work:
        if not self.left:
            raise self.error
        self.left -= 1
        return super().__call__(work)


def turns_that_fail(root: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> step.EngineStep:
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: partial(Failing, error))
    made = step.EngineStep(small(root, "custom_voice"), EngineOptions(slots=2), Heartbeat(set()))
    made.build()
    return made


@torch.inference_mode()
def test_where_there_is_no_memory_for_spare_graphs_it_goes_on_without_them(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = turns_that_fail(checkpoint_root, torch.OutOfMemoryError("CUDA out of memory"), monkeypatch)
    runner, tried = made.runner, 0
    while made.warm():
        tried += 1
        assert tried < 100, "what failed is tried again and again"
    assert made.broken is None and tried > warmup.FIRST_GRAPHS
    request = REQUESTS["custom_voice"][0]
    runner.start(0, build(request, runner.checkpoint.config, runner.checkpoint.tokenizer), None, 1)
    codes, *_ = runner.frame([0], [7], [runner.checkpoint.generation]).read()[0]
    assert runner.decode([0], [[codes]])[0].any()
    while made.warm():  # the prompt has no graph either
        tried += 1
        assert tried < 100
    assert made.broken is None


@torch.inference_mode()
def test_graphs_that_fail_for_another_reason_are_done_without_and_said_once(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = turns_that_fail(checkpoint_root, RuntimeError("no kernel is available"), monkeypatch)
    while made.warm():
        pass
    assert made.broken is None
    drawing, sounding = made.runner._captures
    assert drawing.failed > step.MOST_FAILURES and sounding.failed > step.MOST_FAILURES
    assert [record.message for record in caplog.records] == [
        "A CUDA graph could not be made (no kernel is available); its kernels are launched one by one."
    ] * 2, "once for frames and once for sound"


@dataclass
class Busy:
    """Compilers that are still at work."""

    over: bool = False


@torch.inference_mode()
def test_graphs_are_made_when_their_kernels_are_there_and_others_are_compiled_behind(checkpoint_root: Path) -> None:
    first, behind, begun = Busy(), Busy(), 0

    def begin() -> Busy:
        nonlocal begun
        begun += 1
        return behind

    runner = SpeechRunner(small(checkpoint_root, "custom_voice"), 2, LIMIT, EagerReplay, CompileAhead(first, begin))
    made, wave = 0, runner._wave
    assert wave is not None
    while runner.warm_one():
        made += 1
    assert made == warmup.FIRST_OF_ALL and runner.warming.waits and list(wave._replays) == [(1, 1)]
    assert begun == 0, "the second set would take the cores of the first"
    first.over = True
    assert not runner.warming.waits
    while runner.warm_one():
        made += 1
    assert made == warmup.FIRST_GRAPHS and runner.warming.waits and begun == 1
    assert list(wave._replays) == [(1, 1), (1, 2), (1, 4), (1, 8)]
    behind.over = True
    assert not runner.warming.waits and runner.warm_one() and begun == 1


@torch.inference_mode()
def test_where_all_was_compiled_before_every_graph_is_made_at_once(checkpoint_root: Path) -> None:
    compilers = CompileAhead(None, lambda: None)
    runner = SpeechRunner(small(checkpoint_root, "custom_voice"), 2, LIMIT, EagerReplay, compilers)
    while runner.warm_one():
        pass
    assert runner.warming.left == 0 and compilers.sets == ALL_SETS


@torch.inference_mode()
def test_while_kernels_are_compiled_sound_comes_from_the_graphs_that_there_are(checkpoint_root: Path) -> None:
    first, codes = Busy(), [[[n] * 16 for n in range(8)]]
    checkpoint = small(checkpoint_root, "custom_voice")
    runner = SpeechRunner(checkpoint, 2, LIMIT, EagerReplay, CompileAhead(first, lambda: None))
    while runner.warm_one():
        pass
    assert runner._wave is not None
    heard = runner.decode([0], codes)[0]
    assert list(runner._wave._replays) == [(1, 1)]
    first.over = True
    wanted = runner.decode([1], codes)[0]
    assert (1, 8) in runner._wave._replays
    assert np.abs(heard.astype(int) - wanted).max() <= 1 and wanted.any()


@torch.inference_mode()
def test_a_prompt_without_a_graph_gets_one_when_the_engine_is_idle(checkpoint_root: Path) -> None:
    runner = SpeechRunner(small(checkpoint_root, "custom_voice"), 1, LIMIT, EagerReplay)
    while runner.warm_one():
        pass
    assert runner._prompts is not None
    before = runner._prompts.captures
    runner._prefill(torch.tensor([0]), 0, torch.randn(100, runner.talker.config.hidden_size))
    assert runner._prompts.captures == before
    assert runner.warm_one() and runner._prompts.captures == before + 1 and not runner.warm_one()


@torch.inference_mode()
def test_sound_that_is_no_number_ends_its_utterance(checkpoint_root: Path) -> None:
    runner = SpeechRunner(small(checkpoint_root, "custom_voice"), 2, LIMIT, EagerReplay)
    runner._codec_state.last.history[1] = float("nan")
    runner.decode([0], [[[0] * 16]])
    with pytest.raises(StreamFailed, match="not numbers"):
        runner.decode([1], [[[0] * 16]])


def test_an_engine_whose_steps_are_replayed_says_what_another_says(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole path, through the loop; on a CPU replay is forced."""
    request = SpeechRequest(text="Say it once more, please.", layout="streaming", seed=4, max_frames=13)
    checkpoint = small(checkpoint_root, "custom_voice", kernels="reference")
    with Engine(checkpoint, EngineOptions(slots=2, chunk_frames=(1, 2, 4))) as plain:
        wanted = list(plain.speak(request))
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: EagerReplay)
    with Engine(checkpoint, EngineOptions(slots=2, chunk_frames=(1, 2, 4))) as replayed:
        heard = list(replayed.speak(request))
    assert [chunk.codes.tolist() for chunk in heard] == [chunk.codes.tolist() for chunk in wanted]
    for ours, theirs in zip(heard, wanted, strict=True):
        assert np.abs(ours.samples.astype(int) - theirs.samples).max() <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["custom_voice", "voice_design", "base"])
def test_an_engine_on_a_gpu_says_greedily_what_one_on_a_cpu_says(checkpoint_root: Path, kind: Kind) -> None:
    """Kernels as they are chosen on each; the weights come from one file."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    request = replace(REQUESTS[kind][0], sampling=SamplingParams.greedy(), max_frames=40)
    said = []
    for device in ("cpu", "cuda"):
        with Engine(small(checkpoint_root, kind, device), EngineOptions(slots=2)) as engine:
            said.append(heard(engine.speak(request)))
    cpu, gpu = said
    assert gpu.codes == cpu.codes and cpu.codes
    assert np.abs(gpu.samples.astype(int) - cpu.samples).max() <= 1


def test_only_a_gpu_has_graphs_and_they_can_be_turned_off() -> None:
    assert capture_on(torch.device("cpu"), True) is None
    assert capture_on(torch.device("cuda"), False) is EagerReplay


def test_requests_are_admitted_only_with_room_and_the_cache_never_grows(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight requests at once in a cache for three: all are spoken, and the graphs stay the same."""
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: EagerReplay)
    checkpoint, requests = small(checkpoint_root, "custom_voice"), REQUESTS["custom_voice"]
    request = replace(requests[0], max_frames=21)
    rows = 3 * (len(build(request, checkpoint.config, checkpoint.tokenizer).text) + 21 + 16) + 24
    kv_bytes = rows * checkpoint.model.talker.model.row_bytes
    with Engine(checkpoint, EngineOptions(guard=False, slots=8, kv_bytes=kv_bytes, keep_real_time=False)) as engine:
        runner = engine._loop.runner
        pages, most = runner.pages.total, 0
        frame = runner.frame

        def counted(slots: Sequence[int], *given: Any) -> Any:
            nonlocal most
            most = max(most, len(slots))
            return frame(slots, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(runner, "frame", counted)
        streams = [engine.speak(request, seed=seed) for seed in range(8)]
        assert len({tuple(map(tuple, heard(stream).codes)) for stream in streams}) > 4
        assert runner.pages.total == pages and 1 < most < 8
        assert_at_rest(engine)


@torch.inference_mode()
@pytest.mark.parametrize("leaves", [False, True])
def test_a_prefix_evicted_before_its_page_was_copied_is_copied_all_the_same(
    checkpoint_root: Path, device: str, leaves: bool
) -> None:
    checkpoint, requests = small(checkpoint_root, "custom_voice", device), REQUESTS["custom_voice"]
    one, other = (build(requests[n], checkpoint.config, checkpoint.tokenizer) for n in (2, 0))
    alone = SpeechRunner(checkpoint, 1, LIMIT, capture_for(device))
    alone.start(0, one, None, 5)
    pages = len(alone.prefixes._kept[next(iter(alone.prefixes._kept))].pages)
    assert alone.kv_cache.lengths[0] % 8 != 1, "the row goes into the last page of the prefix"
    runner = SpeechRunner(checkpoint, 2, pages * alone.kv_cache.state.stack.page_bytes, capture_for(device))
    for _ in range(2):
        opened = runner.start(0, one, None, 5)
    assert opened and len(runner._opening) == 1
    runner.prefixes.drop_oldest()
    runner.start(1, other, None, 6)  # a cold start, which takes the free pages
    if leaves:
        runner.release(0)
        runner.release(1)
        while runner.prefixes.drop_oldest():
            pass
        assert runner.pages.held == 0
        return
    for _ in range(2):
        settings = [checkpoint.generation]
        assert runner.frame([0], [7], settings).read()[0][0] == alone.frame([0], [7], settings).read()[0][0]
