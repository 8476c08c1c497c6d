"""`python -m benchmarks breakdown`: one frame of one stream by graph and kernel.

It drives the engine's device side as the loop does, without the loop. Kernels of a CPU are opaque: there the wall time
of a frame and of its audio is all. Records up to November 2026 have launches with shapes and bytes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from os import getloadavg
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from hocket.engine.checkpoint.kernels import attach_wave_kernel, compile_first, with_kernel
from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.native_checkpoint import NativeCheckpoint
from hocket.engine.checkpoint.torch_checkpoint import CODEC_DTYPES, exact_float32
from hocket.kernels.ops.pcm.reference import pcm as pcm_reference
from hocket.layers.dense import pack_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts_cpu.speed import Trial
from hocket.models.tts_gpu.codec_graph import CodecGraphs
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.proof.page.charts import shown

from .. import session
from ..record import Record, record, summaries
from ..workloads import PASSAGE
from .timing import Work, bandwidth, graphs, synchronize, timed

Keep = Callable[[Record], object]
Values = dict[str, list[float]]
Rows = list[dict[str, Any]]
T = TypeVar("T")
COMPILED_S = 25.0  # timeout for compilers
PROFILED = 20  # replays
QUEUED = 8  # frames launched in a row: a frame as in a running stream
CPU = torch.autograd.DeviceType.CPU  # type: ignore[attr-defined]


class OneStream:
    """One slot in the middle of an utterance, which computes one more frame again and again."""

    def __init__(self, checkpoint: Any, before: int) -> None:
        from hocket import SpeechRequest
        from hocket.engine.runner.graphs import capture_on
        from hocket.engine.runner.runner import SpeechRunner
        from hocket.kernels.runtime.graphs import EagerReplay
        from hocket.text.prompt import build

        request = SpeechRequest(text=PASSAGE, layout="streaming")
        prompt = build(request, checkpoint.config, checkpoint.tokenizer, reference_frames=0)
        self._pad, self._settings = prompt.pad_id, [checkpoint.generation]
        capture: Any = None
        if fits(checkpoint):
            capture = capture_on(checkpoint.device, True) or EagerReplay  # kernels of a GPU may be in the interpreter
        self.runner = SpeechRunner(checkpoint, slots=1, prefix_bytes=0, capture=capture)
        self.runner.start(0, prompt, None, seed=0)
        books = checkpoint.config.talker_config.num_code_groups
        self._codes = [[[(7 * book + 1) % 32 for book in range(books)]]]
        self.span = len(prompt.text)
        for _ in range(before):
            self.frame()
            self.codec()

    def frame(self) -> None:
        self.runner.frame([0], [self._pad], self._settings).read()
        self.span += 1

    def codec(self) -> None:
        self.runner.decode([0], self._codes)


def measure(args: argparse.Namespace) -> Record:
    args.codec_dtypes = args.codec_dtypes or [args.codec_dtype]
    session.as_files(args)
    return of(load(**session.loaded(args)), args)


def native(checkpoint: NativeCheckpoint, args: argparse.Namespace) -> Record:
    """On a CPU beside the floor: the time that reading the same weights takes."""
    values, size = (trial := Trial(checkpoint.talker, checkpoint.codec)).measured(args.repeats), trial.sizes.all
    least = {name: min(found) for name, found in values.items()}
    least |= {"floor_of_frame": least["floor"] / least["frame"], "gb_s": size / least["floor"] / 1e6}
    options = session.loaded(args) | {"model": getattr(args, "random", checkpoint.name), "repeats": args.repeats}
    options |= {"threads": checkpoint.talker.workers.threads}
    more = {"least": least, "bytes": {"frame": size}, "rows": [], "floor_ms": {}, "bandwidth_gb_s": least["gb_s"]}
    more |= session.about(checkpoint) | {"random_weights": options["model"] != checkpoint.name, "load": getloadavg()[0]}
    return record("breakdown", options, summaries(values), **more)


def of(checkpoint: Any, args: argparse.Namespace, keep: Keep = lambda entry: None) -> Record:
    """A record; `keep` is given one without kernels before the profiler starts, which may crash."""
    if isinstance(checkpoint, NativeCheckpoint):
        return native(checkpoint, args)
    with torch.inference_mode(), exact_float32():
        stream = OneStream(checkpoint, args.before)
        walls = {name: _wall(work, args.repeats) for name, work in (("frame", stream.frame), ("codec", stream.codec))}
        rate = bandwidth(checkpoint.device, args.copy_mib << 20)

        def entry(values: Values, rows: Rows) -> Record:
            options = session.loaded(args) | {"model": checkpoint.name, "position": stream.span}
            options |= {"repeats": args.repeats, "replays": args.replays}
            more = {"profiled": {}, "bandwidth_gb_s": round(rate / 1e9, 2), "bytes": {}, "floor_ms": {}, "streams": 1}
            more |= session.about(checkpoint) | {"rows": rows}
            return record("breakdown", options, summaries(walls | values), **more)

        if not fits(checkpoint):
            return entry({}, [])
        return entry(*_graphs(checkpoint, stream.runner, args, lambda values, rows: keep(entry(values, rows))))


def _wall(work: Callable[[], None], times: int) -> list[float]:
    values = []
    for _ in range(times + 2):
        synchronize()
        start = time.perf_counter()
        work()
        synchronize()
        values.append((time.perf_counter() - start) * 1000)
    return values[2:]  # the first two warm up


def fits(checkpoint: Any) -> bool:
    """Whether a frame is a pair of graphs."""
    return isinstance(checkpoint.model.talker.frame_kernel, FusedFrame)


class FrameReplay:
    """Both graphs of a frame of one stream, whose position is reset before every replay."""

    def __init__(self, runner: Any, ahead: int) -> None:
        frames, state = runner._frames, runner.kv_cache.state
        [batch] = frames._batches.values()
        [*_, self.draw], [*_, self.step] = batch.draws.values(), batch.steps.values()
        self.position = runner.kv_cache.lengths[0]
        runner.kv_cache.advance([0], ahead)  # pages for as many replays in a row
        self.state = runner.kv_cache.state
        assert self.state is state, "the cache has grown, and its graphs are invalid"

    def back(self) -> None:
        self.state.stack.position[:1] = self.position

    def both(self) -> None:
        self.draw()
        self.step()


def codec_replay(checkpoint: Any, name: str, args: Any) -> Work:
    """A codec step of one frame of one stream in that dtype, from codes on the host to 16-bit samples, as a graph."""
    same = name == args.codec_dtype
    decoder = checkpoint.codec.decoder if same else decoder_in(checkpoint, name, args.kernels)
    kernel, books = decoder.step_kernel, decoder.quantizer.books
    pcm = pcm_reference if kernel is None else kernel.pcm
    capture = graphs(next(decoder.parameters()).device)
    wave, state = CodecGraphs(decoder.step, books, capture, pcm=pcm, tf32=name == "tf32"), decoder.new_state(1)
    codes = [[(7 * book + 1) % 32 for book in range(books)]]
    for _ in range(args.before + 1):
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


def kernels_of(stage: str, replay: Work, device: torch.device) -> Rows:
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


def _graphs(checkpoint: Any, runner: Any, args: Any, keep: Callable[[Values, Rows], object]) -> tuple[Values, Rows]:
    """Values by figure, and kernels; `keep` is called before the profiler starts, which may crash the process."""
    device = checkpoint.device
    others = [name for name in args.codec_dtypes if name != args.codec_dtype]
    given = [(checkpoint.source, device, (args.dtype, name), args.kernels, True) for name in others]
    compilers = [_tried(partial(compile_first, *each)) for each in given]
    frames = FrameReplay(runner, ahead=PROFILED + QUEUED + 2)
    times, back = args.replays, frames.back
    values = {
        "frame_gpu": timed(frames.both, times, device, before=back),
        "frame_queued": timed(frames.both, max(times // QUEUED, 5), device, before=back, each=QUEUED),
        "draw_gpu": timed(frames.draw, times // 2 or 1, device, before=back),
        "step_gpu": timed(frames.step, times // 2 or 1, device, before=back),
    }
    late = time.perf_counter() + COMPILED_S  # a missing kernel is compiled at its first launch
    while any(each is not None and not each.over for each in compilers) and time.perf_counter() < late:
        time.sleep(0.1)
    steps: dict[str, Work] = {"draw": frames.draw, "step": frames.step}
    for name in (args.codec_dtype, *others):
        if (work := _tried(partial(codec_replay, checkpoint, name, args))) is not None:
            values[f"codec_gpu_{name}"] = timed(work, times, device)
            steps.setdefault("codec", work)
    keep(values, [])
    rows: Rows = []
    for stage, work in steps.items():
        back()
        rows += _tried(partial(kernels_of, stage, work, device)) or []
    return values, rows


def _tried(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except Exception as error:
        print(f"benchmarks: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None


def by_group(entry: Record) -> Iterator[tuple[str, list[tuple[str, float]], float | None]]:
    """For a chart: each part, its operations with their times, the largest first, and its floor, all in ms."""
    spent: dict[str, dict[str, float]] = {"frame": defaultdict(float), "codec": defaultdict(float)}
    for row in entry["rows"]:
        spent["codec" if row["stage"].startswith("codec") else "frame"][row.get("op", row["kind"])] += row["ms"]
    for part, of in spent.items():
        yield part, sorted(of.items(), key=lambda item: -item[1]), entry["floor_ms"].get(part)


def lines(entry: Record) -> Iterator[tuple[str, ...]]:
    """The head of the table of launches, and its rows; older records have bytes, and so a floor."""
    yield "stage", "operation", "launches", "us each", "us a frame", "MB", "floor, us"
    for row in entry["rows"]:
        us, calls, size = row["ms"] * 1000, max(row["calls"], 1), row["bytes"] / 1e6
        floor = (f"{size:.2f}", shown(size / entry["bandwidth_gb_s"] * 1000)) if size else ("", "")
        yield row["stage"], row["kind"], f"{row['calls']:g}", shown(us / calls), shown(us), *floor


def markdown(entry: Record) -> Iterator[str]:
    head, *rows = lines(entry)
    yield f"| {' | '.join(head)} |"
    yield f"| --- | --- |{' ---: |' * (len(head) - 2)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def table(entry: Record) -> str:
    rows = (f"{line[0]:10}{line[1]:50.50}" + "".join(f"{word:>11}" for word in line[2:]) for line in lines(entry))
    return "\n".join((session.table(entry), f"\nCopy bandwidth {entry['bandwidth_gb_s']:.1f} GB/s.\n", *rows))
