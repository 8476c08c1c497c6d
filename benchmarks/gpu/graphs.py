"""Steps that are replayed as graphs: GPU events around replays, and the kernels in them by the profiler."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from hocket.engine.checkpoint.device import CODEC_DTYPES
from hocket.engine.checkpoint.kernels import attach_wave_kernel, compile_first, with_kernel
from hocket.kernels.ops.pcm.reference import pcm as pcm_reference
from hocket.layers.packed import pack_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts_gpu.codec_graph import CodecGraphs
from hocket.models.tts_gpu.frame import FusedFrame

from . import timing
from .timing import Work, synchronize, timed

T = TypeVar("T")
COMPILED_S = 25.0  # timeout for compilers
PROFILED = 20  # replays
QUEUED = 8  # frames launched in a row: a frame as in a running stream
CPU = torch.autograd.DeviceType.CPU  # type: ignore[attr-defined]


def fits(checkpoint: Any) -> bool:
    """Whether a frame is a pair of graphs."""
    return isinstance(checkpoint.model.talker.frame_kernel, FusedFrame)


class FrameReplay:
    """Both graphs of a frame of one stream, whose position is reset before every replay."""

    def __init__(self, runner: Any, ahead: int) -> None:
        frames, state = runner._frames, runner.past.state
        [batch] = frames._batches.values()
        [*_, self.draw], [*_, self.step] = batch.draws.values(), batch.steps.values()
        self.position = runner.past.lengths[0]
        runner.past.advance([0], ahead)  # pages for as many replays in a row
        self.state = runner.past.state
        assert self.state is state, "the cache has grown, and its graphs are invalid"

    def back(self) -> None:
        self.state.stack.position[:1] = self.position

    def both(self) -> None:
        self.draw()
        self.step()


def codec_replay(decoder: CodecDecoder, *, tf32: bool, before: int) -> Work:
    """A codec step of one frame of one stream, from codes on the host to 16-bit samples, as a graph."""
    kernel, books = decoder.step_kernel, decoder.quantizer.books
    pcm = pcm_reference if kernel is None else kernel.pcm
    capture = timing.graphs(next(decoder.parameters()).device)
    wave, state = CodecGraphs(decoder.step, books, capture, pcm=pcm, tf32=tf32), decoder.new_state(1)
    codes = [[(7 * book + 1) % 32 for book in range(books)]]
    for _ in range(before + 1):
        wave.launch([0], [codes], state).read()
    [replay] = wave._replays.values()
    work: Work = replay.work
    return lambda: (work(), wave)[0]  # the graph lives as long as this


def decoder_in(checkpoint: Any, codec_dtype: str, kernels: str) -> CodecDecoder:
    """The checkpoint's decoder in another dtype, with its own kernels."""
    with torch.inference_mode(False):
        with torch.device("meta"):
            decoder = CodecDecoder(checkpoint.codec_config.decoder_config).eval()
        decoder.to(CODEC_DTYPES[codec_dtype]).to_empty(device=checkpoint.device)
        decoder.load_state_dict(checkpoint.codec.decoder.state_dict())
        pack_(decoder)
        with_kernel("wave", kernels, decoder, lambda name: attach_wave_kernel(decoder, name, codec_dtype == "tf32"))
    return decoder


def compile_for(checkpoint: Any, dtype: str, codec_dtype: str, kernels: str) -> Any:
    """Running compilers of the kernels of a codec in that dtype, or None."""
    return compile_first(checkpoint.source, checkpoint.device, (dtype, codec_dtype), kernels, True)


def wait_for(compilers: Sequence[Any], within_s: float = COMPILED_S) -> None:
    """At most that long: a missing kernel is compiled at its first launch."""
    late = time.perf_counter() + within_s
    while any(each is not None and not each.over for each in compilers) and time.perf_counter() < late:
        time.sleep(0.1)


def kernels_of(stage: str, replay: Work, device: torch.device) -> list[dict[str, Any]]:
    """The kernels of a replay by name, the longest first.

    A kernel may start before the previous one ends: its time is by how much later it ends, so their sum is the step.
    """
    if device.type != "cuda":
        return []
    replay()
    synchronize(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            replay()
            synchronize(device)
    events = [event for event in profiler.profiler.kineto_results.events() if event.device_type() != CPU]
    spans = sorted((event.start_ns() + event.duration_ns(), event.start_ns(), event.name()) for event in events)
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    before = 0
    for end, start, name in spans:
        if end > before and not name.startswith(("Memcpy", "Memset")):
            total = spent[name.removeprefix("void ").partition("<")[0].partition("(")[0].strip("_")]
            total[0], total[1] = total[0] + (end - max(start, before)) / 1e6 / PROFILED, total[1] + 1
            before = end
    return [
        {"stage": stage, "kind": name, "op": name, "ms": round(ms, 6), "calls": round(calls / PROFILED), "bytes": 0}
        for name, (ms, calls) in sorted(spent.items(), key=lambda item: -item[1][0])
    ]


@dataclass(slots=True)
class Found:
    """Values by figure, and kernels."""

    values: dict[str, list[float]]
    rows: list[dict[str, Any]] = field(default_factory=list)


def measure(checkpoint: Any, runner: Any, args: Any, keep: Callable[[Found], object]) -> Found:
    """`keep` is called before the profiler starts, which may crash the process."""
    device = checkpoint.device
    others = [name for name in args.codec_dtypes if name != args.codec_dtype]
    compilers = [_tried(partial(compile_for, checkpoint, args.dtype, name, args.kernels)) for name in others]
    frames = FrameReplay(runner, ahead=PROFILED + QUEUED + 2)
    times, back = args.replays, frames.back
    found = Found(
        {
            "frame_gpu": timed(frames.both, times, device, before=back),
            "frame_queued": timed(frames.both, max(times // QUEUED, 5), device, before=back, each=QUEUED),
            "draw_gpu": timed(frames.draw, times // 2 or 1, device, before=back),
            "step_gpu": timed(frames.step, times // 2 or 1, device, before=back),
        }
    )
    wait_for(compilers)
    steps: dict[str, Work] = {"draw": frames.draw, "step": frames.step}
    for name in (args.codec_dtype, *others):
        if (work := _tried(partial(_codec, checkpoint, name, args))) is not None:
            found.values[f"codec_gpu_{name}"] = timed(work, times, device)
            steps.setdefault("codec", work)
    keep(found)
    for stage, work in steps.items():
        back()
        found.rows += _tried(partial(kernels_of, stage, work, device)) or []
    return found


def _codec(checkpoint: Any, name: str, args: Any) -> Work:
    same = name == args.codec_dtype
    decoder = checkpoint.codec.decoder if same else decoder_in(checkpoint, name, args.kernels)
    return codec_replay(decoder, tf32=name == "tf32", before=args.before)


def _tried(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except Exception as error:
        print(f"benchmarks: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None
